"""`AgentStory`: an agent's present and past work, made from its events; front ends draw it.

This is the one reducer of events for people. A front end that draws each event once, as the terminal does, keeps no items;
others say by `StoryLimits` how many.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from freeact_sub import events as ev
from freeact_sub.activity import Activity
from freeact_sub.agent_names import agent_name, short_id
from freeact_sub.cells import ClearOutput, DisplayData, ExecuteResult, StreamText
from freeact_sub.show import blocks as bl
from freeact_sub.show.blocks import GrowingText, StoryLimits
from freeact_sub.show.teller import TAIL_CHARS, UndrawnOutput, blocks
from freeact_sub.show.wording import cell_notes
from freeact_sub.text import prompt_title


class StoryItems:
    """The kept blocks of an agent, bounded by its limits."""

    def __init__(self, limits: StoryLimits | None = None) -> None:
        """Args: limits: how much to keep. None: nothing."""
        self.items: list[bl.StoryBlock] = []
        self.left_out = 0
        """Number of dropped items; they stood after the first `limits.first`."""
        self.version = 0
        """Number of changes so far, without those of growing texts."""
        self.limits = limits or StoryLimits()
        self.keeps = limits is not None
        """Whether blocks are kept."""
        self._calls: dict[str | None, list[bl.CallStep]] = defaultdict(list)
        """The kept calls, by `tool_call_id`: a cell, and the calls of its code."""
        self._searches: dict[str, bl.StrategySteps] = {}
        self._plans: dict[str, bl.Plan] = {}
        """The plans of the present run, by `plan_id`."""

    @property
    def calls_made(self) -> Iterator[bl.CallStep]:
        """The calls among the items."""
        return (item for item in self.items if isinstance(item, bl.CallStep))

    def take(self, told: Sequence[bl.StoryBlock], tool_call_id: str | None, streaming: GrowingText | None) -> None:
        """Keep the blocks of an event. Args: tool_call_id: the event's. streaming: the text that streams."""
        changes = False
        for block in told:
            if isinstance(block, bl.End):
                self.end_calls()
                if streaming is not None and str(streaming).strip():
                    self.items.append(bl.Said(content=str(streaming), is_thought=streaming.kind == "thoughts"))
            if isinstance(block, bl.Prompt):
                self._plans.clear()
            changes |= not block.passing and self._tell(block, tool_call_id)
        if changes:
            self.version += 1
            self._drop()

    def remark(self, text: str) -> None:
        """Add an item of the front end's own."""
        self.items.append(bl.StoryBlock(title=text))
        self.version += 1

    def end_calls(self) -> None:
        """End all calls."""
        for call in self.calls_made:
            call.end(self.limits)

    def _tell(self, block: bl.StoryBlock, tool_call_id: str | None) -> bool:
        """Keep a block. Returns whether a settled part changes."""
        match block:
            case bl.Output(output=output) if output is not None:
                return self._add_output(output, tool_call_id)
            case bl.Approval():
                self._ask(block, tool_call_id)
            case bl.QuestionAsked() | bl.Answered():
                self._add_inside(block, tool_call_id)
            case bl.CallStep():
                self._add_call(block)
            case bl.CellEnd():
                self._end_cell(block.of)
            case bl.CallEnd():
                self._settle_call(block.of)
            case bl.Plan():
                self._add_plan(block, tool_call_id)
            case bl.StrategySteps() if (known := self._searches.setdefault(block.strategy_id, block)) is not block:
                known.update(block)
            case _ if not isinstance(block, bl.Decided):  # which its approval has
                self.items.append(block)
        return True

    def _add_call(self, call: bl.CallStep) -> bl.CallStep:
        cell = self._running_cell(call.tool_call_id)
        if cell is not None:
            cell.reaches_out = True
        self._calls[call.tool_call_id].append(call)
        self.items.append(call)
        return call

    def _running_cell(self, tool_call_id: str | None) -> bl.CallStep | None:
        calls = () if tool_call_id is None else self._calls[tool_call_id]
        return next((call for call in calls if call.code is not None and call.running), None)

    def _cell(self, tool_call_id: str | None) -> bl.CallStep:
        calls = self._calls[tool_call_id]
        cells = [call for call in calls if call.code is not None] or calls[:1]
        running = self._running_cell(tool_call_id) or (cells[-1] if cells else None)
        return running or self._add_call(bl.CallStep(tool_call_id=tool_call_id))

    def _add_output(self, output: bl.CellOutput, tool_call_id: str | None) -> bool:
        """Add output of a running cell, or replace what an earlier cell displayed."""
        if isinstance(output, DisplayData) and output.update:
            changed = max([call.update(output) for call in self.calls_made], default=False)
        elif isinstance(output, ClearOutput):
            self._cell(tool_call_id).clear()
            changed = True
        else:
            changed = self._cell(tool_call_id).add(output, self.limits)
        if not isinstance(output, StreamText):
            self._drop_displays()
        return changed

    def _end_cell(self, event: ev.CodeExecutionOutput) -> None:
        """End a cell; add output that came without a chunk."""
        call = self._cell(event.tool_call_id)
        shown = [output.data for output in call.outputs if isinstance(output, DisplayData | ExecuteResult)]
        if not call.shown and not event.displays and event.text:
            call.add(StreamText(name="stdout", text=event.text), self.limits)
        for data in event.displays:
            if data not in shown:
                call.add(DisplayData(data=data), self.limits)
        call.status, call.seconds, call.notes = event.status, event.seconds, cell_notes(event)
        call.end(self.limits)
        self._drop_displays()

    def _settle_call(self, event: ev.ToolOutput) -> None:
        if event.tool_name == bl.PLAN_TOOL and event.outcome == "success":
            return  # its plan says it
        calls = [call for call in self._calls[event.tool_call_id] if call.call_id == event.call_id and not call.outcome]
        found = next((call for call in calls if call.tool_name == event.tool_name), None) or next(iter(calls), None)
        call = found or self._add_call(bl.CallStep(tool_call_id=event.tool_call_id, call_id=event.call_id))
        call.tool_name = call.tool_name or event.tool_name
        call.result, call.outcome = event.content, event.outcome
        call.end(self.limits)

    def _ask(self, approval: bl.Approval, tool_call_id: str | None) -> None:
        calls = self._calls[tool_call_id] if tool_call_id is not None else []
        about = [call for call in calls if bl.shows(call.tool_name, call.args, approval.request.call)]
        cell = self._running_cell(tool_call_id)
        if about and (cell is None or cell in about):
            (cell or about[-1]).approvals.append(approval)
        else:
            self._add_inside(approval, tool_call_id)

    def _add_inside(self, block: bl.StoryBlock, tool_call_id: str | None) -> None:
        """Add a question between the outputs of the running cell, else as an item."""
        cell = self._running_cell(tool_call_id)
        if cell is not None:
            cell.reaches_out = cell.reaches_out or isinstance(block, bl.Approval)
            cell.add(block, self.limits)
        else:
            self.items.append(block)

    def _add_plan(self, block: bl.Plan, tool_call_id: str | None) -> None:
        """Put a plan at its first place, and drop the call that told it."""
        told = [call for call in self._calls[tool_call_id] if call.tool_name == bl.PLAN_TOOL]
        for call in told:
            self._calls[tool_call_id].remove(call)
            self.items.remove(call)
        known = self._plans.setdefault(block.plan.plan_id, block)
        known.plan = block.plan
        if known is block:
            self.items.append(block)

    def _drop(self) -> None:
        surplus = len(self.items) - self.limits.first - self.limits.last
        if surplus <= 0:
            return
        for item in self.items[self.limits.first : self.limits.first + surplus]:
            if isinstance(item, bl.CallStep):
                self._calls[item.tool_call_id].remove(item)
            elif isinstance(item, bl.Plan):
                self._plans = {name: known for name, known in self._plans.items() if known is not item}
            elif isinstance(item, bl.StrategySteps):
                self._searches = {name: known for name, known in self._searches.items() if known is not item}
        del self.items[self.limits.first : self.limits.first + surplus]
        self.left_out += surplus

    def _drop_displays(self) -> None:
        if self.limits.display_chars < StoryLimits().display_chars:
            bl.drop_displays(reversed([*self.calls_made]), self.limits.display_chars)


INTERRUPTED = "interrupted"


@dataclass(kw_only=True)
class WorkSpan:
    """The time of one run."""

    began: float
    ended: float
    """The end so far."""


@dataclass(kw_only=True)
class AgentStory(Activity):
    """One agent: its present and past work."""

    number: int = 0
    """Order of appearance: decides its colour."""
    called: Callable[[str], str] = short_id
    """Function that names another agent in words about this one."""
    named: Callable[[str], str] = short_id
    """Function that names another agent where the names of all are seen."""
    description: str = ""
    """The whole label of its work."""
    prompt: str = ""
    """Its first prompt."""
    agent_type: str = ""
    model: str = ""
    mode: str = ""
    tool_call_id: str | None = None
    """The call of its parent that started it."""
    runs: list[WorkSpan] = field(default_factory=list)
    finished: ev.AgentFinished | None = None
    """The end of its run; None: still running."""
    kept: StoryItems = field(default_factory=StoryItems)
    """The kept items of its work."""
    streaming: GrowingText | None = None
    """The model's text or thoughts while they stream."""
    answer: str = ""
    """Its last complete response."""
    child_answers: dict[str, str] = field(default_factory=dict)
    """The last complete response of each child, by the child's id."""
    outputs: dict[str | None, UndrawnOutput] = field(default_factory=lambda: defaultdict(UndrawnOutput))
    """The output of running cells that is not drawn yet, by `tool_call_id`."""
    pause_begins: bool = False
    """Whether the newest event is the first to say that the request waits until it is made again."""
    approvals: dict[str, bl.Approval] = field(default_factory=dict)
    """The approvals of this run, by the request's id."""
    cells: set[str] = field(default_factory=set)
    """The tool calls that ran a cell, whose output was shown as it came."""

    @property
    def name(self) -> str:
        """The agent's short id, with its label if it has one."""
        return agent_name(self.agent_id, self.label)

    @property
    def long_name(self) -> str:
        """The agent's short id, with more of its label."""
        return agent_name(self.agent_id, self.description)

    @property
    def writing(self) -> str:
        """The end of an unfinished response."""
        return self._growing("answer")

    @property
    def thinking(self) -> str:
        """The end of unfinished thoughts."""
        return self._growing("thoughts")

    @property
    def output_text(self) -> str:
        """The end of the output that is not drawn yet."""
        return "\n".join(filter(None, (output.text for output in self.outputs.values())))

    @property
    def items(self) -> list[bl.StoryBlock]:
        """The kept items of its work, in order."""
        return self.kept.items

    @property
    def calls_made(self) -> Iterator[bl.CallStep]:
        """The calls among the items."""
        return self.kept.calls_made

    def asked(self, request_id: str) -> ev.ApprovalRequest | None:
        """Return an approval request of this run."""
        approval = self.approvals.get(request_id)
        return None if approval is None else approval.request

    def observe(self, event: ev.AgentEvent) -> None:
        """Update the agent with one of its events."""
        if isinstance(event, ev.ResponseChunk | ev.ThoughtsChunk):
            self._stream(event)
        elif isinstance(event, ev.CodeExecutionOutputChunk | ev.CodeExecutionOutput):
            self.cells |= {event.tool_call_id} if event.tool_call_id else set()
        else:
            self._take(event)
        if self.runs and event.time:
            self.runs[-1].ended = max(self.runs[-1].ended, event.time)
        if self.kept.keeps:
            self.kept.take(blocks(self, event), event.tool_call_id, self.streaming)
        if isinstance(event, ev.Response | ev.Thoughts | ev.ToolCallStarted | ev.AgentFinished):
            self.streaming = None
        super().observe(event)

    def _stream(self, event: ev.ResponseChunk | ev.ThoughtsChunk) -> None:
        kind = "answer" if isinstance(event, ev.ResponseChunk) else "thoughts"
        if self.streaming is None or self.streaming.kind != kind:
            self.streaming = GrowingText(kind)
        self.streaming.add(event.content)

    def _take(self, event: ev.AgentEvent) -> None:
        match event:
            case ev.ModelProgress(pause=pause):
                self.pause_begins = bool(pause) and not self.pause
            case ev.ApprovalRequest():
                self.approvals[event.request_id] = bl.Approval(request=event)
            case ev.ApprovalDecided() if event.request_id in self.approvals:
                self.approvals[event.request_id].decision = event
            case ev.Response():
                self.answer = event.content
            case ev.AgentStarted():
                self._begin(event)
            case ev.AgentFinished():
                self.finished = event
                for known in (self.child_answers, self.approvals, self.cells):
                    known.clear()

    def cut_off(self) -> None:
        """End a run that the end of the program has cut off."""
        if self.is_running:
            self.status = INTERRUPTED
            self.kept.end_calls()

    def has_shown_result(self, output: ev.ToolOutput) -> bool:
        """Return whether the result of a call was shown already: as a plan, output of its cell, or a person's denial."""
        if output.tool_name == bl.PLAN_TOOL and output.outcome == "success":
            return True
        if output.outcome != "denied":
            return output.tool_call_id in self.cells
        asked = {approval.request.tool_call_id for approval in self.approvals.values()}
        return output.tool_call_id is not None and output.tool_call_id in asked

    def has_shown(self, request: ev.ApprovalRequest) -> bool:
        """Return whether the request's tool call has shown everything that the request asks for."""
        calls = (call for call in self.calls if call.tool_call_id == request.tool_call_id)
        return any(bl.shows(call.tool_name, call.args, request.call) for call in calls)

    def without_answer(self, output: ev.ToolOutput) -> str:
        """Return a call's result without the child's answer at its end, which was shown before."""
        content = output.content.rstrip()
        answers = (answer.strip() for answer in self.child_answers.values())
        shown = next((answer for answer in answers if answer and content.endswith(answer)), "")
        return content.removesuffix(shown).rstrip()

    def _growing(self, kind: str) -> str:
        return self.streaming.end(TAIL_CHARS) if self.streaming is not None and self.streaming.kind == kind else ""

    def _begin(self, event: ev.AgentStarted) -> None:
        self.description = event.description or self.description or (prompt_title(event.prompt) if event.parent_id else "")
        self.prompt = self.prompt or event.prompt
        self.agent_type, self.model, self.mode = event.agent_type or "", event.model, event.mode or ""
        self.tool_call_id = self.tool_call_id or event.tool_call_id
        self.runs.append(WorkSpan(began=event.time, ended=event.time))
        self.finished, self.streaming, self.answer = None, None, ""


class Stories:
    """All agents of a session, in order of appearance."""

    def __init__(self, limits: StoryLimits | None = None) -> None:
        """Args: limits: how many items of each agent to keep. None: none."""
        self.by_id: dict[str, AgentStory] = {}
        self._limits = limits
        self.called: Callable[[str], str] = short_id
        """Function that names an agent, by its id, in words about another one."""

    @property
    def root(self) -> AgentStory | None:
        """The agent without a parent; None before its first event."""
        return next((story for story in self.by_id.values() if story.parent_id is None), None)

    @property
    def labels(self) -> dict[str, str]:
        """The label of each agent, by id."""
        return {agent_id: story.label for agent_id, story in self.by_id.items()}

    def name(self, story: AgentStory) -> str:
        """Return an agent's name for people, in a conversation with the root."""
        return "agent" if story.parent_id is None else story.name

    def _named(self, agent_id: str) -> str:
        return self.name(self.by_id[agent_id]) if agent_id in self.by_id else short_id(agent_id)

    def chain(self, story: AgentStory) -> list[AgentStory]:
        """Return the agent and all above it, the root first."""
        found = [story]
        while (parent := self.by_id.get(found[0].parent_id or "")) is not None and parent not in found:
            found.insert(0, parent)
        return found

    def in_order(self, parent_id: str | None = None) -> Iterator[AgentStory]:
        """Yield all agents, children below their parents. A child whose parent has no event stands as a root does."""
        for story in self.by_id.values():
            if (story.parent_id if story.parent_id in self.by_id else None) == parent_id:
                yield story
                yield from self.in_order(story.agent_id)

    def of(self, event: ev.AgentEvent) -> AgentStory:
        """Return the agent that the event is from."""
        story = self.by_id.get(event.agent_id)
        if story is None:
            story = self.by_id[event.agent_id] = AgentStory.of(event)
            story.number, story.kept, story.called = len(self.by_id) - 1, StoryItems(self._limits), self.called
            story.named = self._named
        return story

    def observe(self, event: ev.AgentEvent) -> AgentStory:
        """Update the event's agent; call this before the event is drawn."""
        story = self.of(event)
        story.observe(event)
        self._time(story, event)
        parent = self.by_id.get(event.parent_id or "")
        if parent is not None and isinstance(event, ev.Response):
            parent.child_answers[event.agent_id] = event.content
        return story

    def _time(self, story: AgentStory, event: ev.AgentEvent) -> None:
        """Note how long a person is waited for, by the agent and by all above it."""
        match event:
            case ev.ApprovalRequest() | ev.QuestionRequest() if not event.headless:
                for each in self.chain(story):
                    each.asks(event.request_id, event.time)
            case ev.ApprovalDecided() | ev.QuestionAnswered():
                for each in self.chain(story):
                    each.is_answered(event.request_id, event.time)
