"""`Report`: the events of a session, arranged by agent and run."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from freeact_sub.agent_names import agent_name
from freeact_sub.calls import Call
from freeact_sub.cells import CellError, ClearOutput, DisplayData, ExecuteResult, StreamText
from freeact_sub.config.budget import Usage
from freeact_sub.events import (
    AgentFinished,
    AgentMessage,
    AgentStarted,
    ApprovalAnswered,
    ApprovalRequest,
    Cancelled,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    Compacted,
    Event,
    KernelLost,
    Notice,
    QuestionAnswered,
    Response,
    StrategyProgress,
    Thoughts,
    ToolCallStarted,
    ToolOutput,
)
from freeact_sub.events.strategy_step import SearchedState
from freeact_sub.show.agent_view import shows
from freeact_sub.text import one_line

CELL_TOOL = "execute_ipython_cell"
MAX_NODES = 1_000
"""Nodes of one search that a report has."""


@dataclass(kw_only=True)
class Question:
    """An approval request, answered by a person or a rule."""

    call: Call
    time: float
    reason: str = ""
    allowed: bool | None = None
    """None: nobody answered."""
    answer: str = ""
    """The reason of a denial."""
    seconds: float = 0.0
    """Seconds until its answer."""


ReportedOutput: TypeAlias = StreamText | DisplayData | ExecuteResult | CellError
"""One output of a cell."""
CellItem: TypeAlias = ReportedOutput | Question | QuestionAnswered
"""What happened while a cell ran: an output, or a question about what its code does."""


@dataclass(kw_only=True)
class Cell:
    """A cell and its outputs."""

    code: str
    time: float
    tool_call_id: str | None = None
    outputs: list[CellItem] = field(default_factory=list)
    """Its outputs, and the questions between them, in order."""
    text: str = ""
    """The text that the model read."""
    status: str = ""
    """Its outcome. Empty: it did not end."""
    seconds: float = 0.0
    uses_host: bool = False
    """Whether its code made calls outside the kernel: a child, a server's tool, a command."""

    @property
    def has_output(self) -> bool:
        """Whether anything but questions stands between its code and its end."""
        return any(not isinstance(item, Question | QuestionAnswered) for item in self.outputs)


@dataclass(kw_only=True)
class ToolUse:
    """A call of another tool and its result."""

    name: str
    args: dict[str, object]
    time: float
    tool_call_id: str | None = None
    call_id: str = ""
    """Tells apart the calls of a cell's code. Empty: the model's call."""
    label: str = ""
    result: str = ""
    outcome: str = ""
    """Its outcome. Empty: it did not end."""

    @property
    def title(self) -> str:
        """What was called, with its label, in one line."""
        return one_line(f"{self.name}: {self.label}" if self.label else self.name, 120)


@dataclass(kw_only=True)
class StrategyReport:
    """A strategy and, if it searches, its tree."""

    name: str
    time: float
    steps: int = 0
    done: bool = False
    """Whether it has ended by itself."""
    nodes: dict[str, SearchedState] = field(default_factory=dict)
    """The latest of each node, by id."""
    best: str = ""
    """The id of the best node."""


ReportItem: TypeAlias = (
    AgentStarted
    | AgentFinished
    | Thoughts
    | Response
    | Cell
    | ToolUse
    | Question
    | StrategyReport
    | Notice
    | QuestionAnswered
    | Compacted
    | KernelLost
    | AgentMessage
    | Cancelled
)
"""An item in an agent's history. A run begins with AgentStarted and ends with AgentFinished."""


@dataclass(kw_only=True)
class ReportedRun:
    """One run of an agent, perhaps cut off."""

    began: float
    ended: float
    """Time of its end, or of the last event of a run that was cut off."""
    status: str = "interrupted"


@dataclass(kw_only=True)
class AgentReport:
    """One agent."""

    agent_id: str
    parent_id: str | None
    depth: int
    description: str = ""
    agent_type: str = ""
    model: str = ""
    mode: str = ""
    tool_call_id: str | None = None
    """The tool call that started it."""
    items: list[ReportItem] = field(default_factory=list)
    work: list[ReportedRun] = field(default_factory=list)
    usage: Usage = Usage()
    """Its own spending, over all its runs."""

    @property
    def name(self) -> str:
        """Its name for people."""
        return agent_name(self.agent_id, self.description)

    @property
    def status(self) -> str:
        """The status of its last run."""
        return self.work[-1].status.replace("_", " ") if self.work else ""

    @property
    def seconds(self) -> float:
        """Seconds of work, over all its runs."""
        return sum(work.ended - work.began for work in self.work)


@dataclass(kw_only=True)
class Report:
    """A session."""

    title: str
    agents: list[AgentReport]
    """The agents, root first, each child after its parent and older siblings."""
    files_written: list[str]
    files_removed: list[str]

    @property
    def began(self) -> float:
        """Seconds since the epoch; 0 if there are no events."""
        return min((work.began for agent in self.agents for work in agent.work), default=0.0)

    @property
    def usage(self) -> Usage:
        """The spending of all agents."""
        return sum((agent.usage for agent in self.agents), Usage())

    def started_by(self, parent: AgentReport, tool_call_id: str | None) -> list[AgentReport]:
        """The children that a call of an agent has started."""
        children = (agent for agent in self.agents if agent.parent_id == parent.agent_id)
        return [child for child in children if tool_call_id is not None and child.tool_call_id == tool_call_id]


def report_of(events: Iterable[Event], *, title: str = "") -> Report:
    """The report. Args: events: of one session, in order. title: default: the first prompt."""
    reader = _EventReader()
    for event in events:
        reader.take(event)
    agents = [agent for root in reader.by_id.values() if root.parent_id not in reader.by_id for agent in reader.tree(root)]
    ends = [item for agent in agents for item in agent.items if isinstance(item, AgentFinished)]
    removed = {file for end in ends for file in end.files_removed}
    prompts = [item.prompt for agent in agents for item in agent.items if isinstance(item, AgentStarted)]
    return Report(
        title=title or one_line(prompts[0] if prompts else "An empty session", 120),
        agents=agents,
        files_written=sorted({file for end in ends for file in end.files_written}),
        files_removed=sorted(removed),
    )


class _EventReader:
    def __init__(self) -> None:
        self.by_id: dict[str, AgentReport] = {}
        self._uses: dict[tuple[str, str | None], list[ToolUse]] = {}
        """Calls that have not ended; calls from code have the id of their cell."""
        self._cells: dict[tuple[str, str | None], Cell] = {}
        self._questions: dict[str, Question] = {}
        self._strategies: dict[tuple[str, str], StrategyReport] = {}
        self._displays: dict[tuple[str, str], tuple[Cell, int]] = {}

    def tree(self, agent: AgentReport) -> list[AgentReport]:
        """An agent and all below it."""
        below = [child for child in self.by_id.values() if child.parent_id == agent.agent_id]
        return [agent, *(found for child in below for found in self.tree(child))]

    def take(self, event: Event) -> None:
        """Read one more event."""
        agent = self.by_id.get(event.agent_id)
        if agent is None:
            agent = self.by_id[event.agent_id] = AgentReport(
                agent_id=event.agent_id, parent_id=event.parent_id, depth=event.depth
            )
        if isinstance(event, AgentStarted):
            self._begin(agent, event)
        elif agent.work and event.time:
            agent.work[-1].ended = max(agent.work[-1].ended, event.time)
        match event:
            case ToolCallStarted() | ToolOutput():
                self._call(agent, event)
            case CodeExecutionOutputChunk() | CodeExecutionOutput():
                self._output(event)
            case ApprovalRequest() | ApprovalAnswered() | QuestionAnswered():
                self._question(agent, event)
            case StrategyProgress():
                self._strategy(agent, event)
            case AgentFinished():
                self._finish(agent, event)
            case (
                AgentStarted()
                | Thoughts()
                | Response()
                | Notice()
                | Compacted()
                | KernelLost()
                | AgentMessage()
                | Cancelled()
            ):
                agent.items.append(event)

    def _begin(self, agent: AgentReport, event: AgentStarted) -> None:
        agent.description = event.description or agent.description
        agent.agent_type, agent.model, agent.mode = event.agent_type or "", event.model, event.mode or ""
        agent.tool_call_id = agent.tool_call_id or event.tool_call_id
        agent.work.append(ReportedRun(began=event.time, ended=event.time))
        cell = self._cells.get((event.parent_id or "", event.tool_call_id))
        if cell is not None:
            cell.uses_host = True

    def _finish(self, agent: AgentReport, event: AgentFinished) -> None:
        agent.usage += event.usage
        if agent.work:
            agent.work[-1].status = event.status
        agent.items.append(event)

    def _call(self, agent: AgentReport, event: ToolCallStarted | ToolOutput) -> None:
        key = (event.agent_id, event.tool_call_id)
        if isinstance(event, ToolOutput):
            cell = self._cells.get(key)
            if event.tool_name == CELL_TOOL and cell is not None:
                cell.text = cell.text or event.content
                cell.status = cell.status or event.outcome
            elif found := [
                use for use in self._uses.get(key, []) if (use.name, use.call_id) == (event.tool_name, event.call_id)
            ]:
                found[0].result, found[0].outcome = event.content, event.outcome
                self._uses[key].remove(found[0])
            return
        if event.tool_name == CELL_TOOL:
            cell = Cell(code=str(event.args.get("code", "")), time=event.time, tool_call_id=event.tool_call_id)
            self._cells[key] = cell
            agent.items.append(cell)
            return
        if key in self._cells and not self._cells[key].status:  # code in the cell makes the call
            self._cells[key].uses_host = True
        use = ToolUse(
            name=event.tool_name,
            args=event.args,
            time=event.time,
            tool_call_id=event.tool_call_id,
            call_id=event.call_id,
            label=event.label,
        )
        self._uses.setdefault(key, []).append(use)
        agent.items.append(use)

    def _strategy(self, agent: AgentReport, event: StrategyProgress) -> None:
        key = (event.agent_id, event.strategy_id)
        found = self._strategies.get(key)
        if found is None:
            found = self._strategies[key] = StrategyReport(name=event.strategy, time=event.time)
            agent.items.append(found)
        found.steps, found.done, found.best = event.step, event.done, event.best or found.best
        if event.node is not None and (event.node.node_id in found.nodes or len(found.nodes) < MAX_NODES):
            found.nodes[event.node.node_id] = event.node

    def _output(self, event: CodeExecutionOutputChunk | CodeExecutionOutput) -> None:
        cell = self._cells.get((event.agent_id, event.tool_call_id))
        if cell is None:
            return
        if isinstance(event, CodeExecutionOutput):
            cell.text, cell.status, cell.seconds = event.text, event.status, event.seconds
            return
        output = event.output
        if isinstance(output, ClearOutput):
            cell.outputs = [item for item in cell.outputs if isinstance(item, Question | QuestionAnswered)]
            self._displays = {key: place for key, place in self._displays.items() if place[0] is not cell}
            return
        if isinstance(output, DisplayData) and output.display_id is not None:
            key = (event.agent_id, output.display_id)
            if output.update:
                if key in self._displays:
                    shown, index = self._displays[key]
                    shown.outputs[index] = output
                return
            self._displays[key] = (cell, len(cell.outputs))
        last = cell.outputs[-1] if cell.outputs else None
        if isinstance(output, StreamText) and isinstance(last, StreamText) and last.name == output.name:
            cell.outputs[-1] = StreamText(name=last.name, text=last.text + output.text)
        else:
            cell.outputs.append(output)

    def _question(self, agent: AgentReport, event: ApprovalRequest | ApprovalAnswered | QuestionAnswered) -> None:
        if isinstance(event, QuestionAnswered):
            cell = self._running_cell(event)
            (agent.items if cell is None else cell.outputs).append(event)
        elif isinstance(event, ApprovalRequest):
            question = self._questions[event.request_id] = Question(call=event.call, time=event.time, reason=event.reason)
            self._ask(agent, event, question)
        elif (asked := self._questions.get(event.request_id)) is not None:
            asked.allowed, asked.answer, asked.seconds = event.allowed, event.reason, event.time - asked.time

    def _ask(self, agent: AgentReport, event: ApprovalRequest, question: Question) -> None:
        """Puts a question where it was asked: between the outputs of a cell whose code asks, else before its call."""
        cell = self._running_cell(event)
        if cell is not None and not shows(CELL_TOOL, {"code": cell.code}, event.call):
            cell.outputs.append(question)
            cell.uses_host = True
        else:
            agent.items.insert(_place_of(agent, event), question)

    def _running_cell(self, event: ApprovalRequest | QuestionAnswered) -> Cell | None:
        cell = self._cells.get((event.agent_id, event.tool_call_id))
        return cell if cell is not None and not cell.status else None


def _place_of(agent: AgentReport, event: ApprovalRequest) -> int:
    """The index of the call that a question is about, else of the end."""
    for place in reversed(range(len(agent.items))):
        item = agent.items[place]
        if not isinstance(item, Cell | ToolUse) or item.tool_call_id != event.tool_call_id:
            continue
        name, args = (CELL_TOOL, {"code": item.code}) if isinstance(item, Cell) else (item.name, item.args)
        if shows(name, args, event.call):
            return place
    return len(agent.items)
