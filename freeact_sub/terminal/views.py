"""What a front end keeps of each agent while it reads events: enough to draw the next one.

Both front ends of the terminal (`transcript.py` draws, `plain.py` writes lines) need the same memory: who is whose
child, what is being written but not finished, which calls were shown already. It is kept here, once.
"""

from dataclasses import dataclass, field

from freeact_sub.budget import Usage
from freeact_sub.calls import Call, CodeAction, McpCall, SpawnCall, ToolCall
from freeact_sub.events import (
    AgentEvent,
    AgentFinished,
    AgentStarted,
    ApprovalRequest,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    ModelProgress,
    Response,
    ResponseChunk,
    Thoughts,
    ThoughtsChunk,
    ToolCallStarted,
    ToolOutput,
    UsageUpdated,
)
from freeact_sub.terminal.sanitize import LineBuffer
from freeact_sub.text import one_line

TAIL_CHARS = 4000
"""How much of a text that is still being written is kept."""
LABEL_CHARS = 40


@dataclass(kw_only=True)
class AgentView:
    """One agent, as its events have told of it."""

    agent_id: str
    parent_id: str | None
    depth: int
    number: int
    """Order of appearance: decides its colour."""
    label: str = ""
    status: str = "running"
    """`queued` or `running`, then how the run ended."""
    started: float = 0.0
    """When its run began, in seconds since the epoch."""
    usage: Usage = field(default_factory=Usage)
    tree_usage: Usage = field(default_factory=Usage)
    thinking: str = ""
    """The end of the thoughts that are being written."""
    writing: str = ""
    """The end of the response that is being written."""
    answer: str = ""
    """The last response that was finished."""
    output: LineBuffer = field(default_factory=LineBuffer)
    """What the running cell prints."""
    calls: dict[str, ToolCallStarted] = field(default_factory=dict)
    """The tool calls of this run by id."""
    waits: ModelProgress | None = None
    """How far its model request is; None where it is quick, or has been answered."""
    cells: set[str] = field(default_factory=set)
    """The tool calls that ran a cell: their output was shown as it came."""
    asked: set[str] = field(default_factory=set)
    """The tool calls for which a person was asked: the answer was shown."""

    @property
    def name(self) -> str:
        """The agent's id, and its label where it has one."""
        return f"{self.agent_id} ({self.label})" if self.label else self.agent_id

    @property
    def is_running(self) -> bool:
        """Whether its run has not ended."""
        return self.status in ("queued", "running")

    def observe(self, event: AgentEvent) -> None:
        """Take in one of its events."""
        match event:
            case AgentStarted():
                self.label = one_line(event.description, LABEL_CHARS)
                self.status = "queued" if event.queued else "running"
                self.started, self.usage, self.tree_usage, self.answer = event.time, Usage(), Usage(), ""
            case AgentFinished():
                self.status, self.usage, self.tree_usage = event.status, event.usage, event.tree_usage
                self.thinking, self.writing, self.waits = "", "", None
                for known in (self.calls, self.cells, self.asked):
                    known.clear()
            case ModelProgress():
                self.waits = event
            case UsageUpdated():
                self.waits = None
                self.usage, self.tree_usage = event.usage, event.tree_usage
            case ToolCallStarted() if event.tool_call_id:
                self.calls[event.tool_call_id] = event
            case CodeExecutionOutputChunk() | CodeExecutionOutput() if event.tool_call_id:
                self.cells.add(event.tool_call_id)
            case ApprovalRequest() if event.tool_call_id:
                self.asked.add(event.tool_call_id)
            case _:
                self._observe_text(event)
        if self.status == "queued" and not isinstance(event, AgentStarted):
            self.status = "running"

    def _observe_text(self, event: AgentEvent) -> None:
        match event:
            case ThoughtsChunk():
                self.thinking = (self.thinking + event.content)[-TAIL_CHARS:]
            case ResponseChunk():
                self.writing = (self.writing + event.content)[-TAIL_CHARS:]
            case Thoughts():
                self.thinking = ""
            case Response():
                self.writing, self.answer = "", event.content

    def has_shown_result(self, output: ToolOutput) -> bool:
        """Whether what the model reads of a call was shown before, in another form."""
        known = self.asked if output.outcome == "denied" else self.cells
        return output.tool_call_id in known

    def has_shown(self, request: ApprovalRequest) -> bool:
        """Whether what the request asks for is just what its tool call has shown."""
        call = self.calls.get(request.tool_call_id or "")
        return call is not None and _shows(call, request.call)


class Views:
    """All agents of a session, in order of appearance."""

    def __init__(self) -> None:
        self.by_id: dict[str, AgentView] = {}
        self.requests: dict[str, ApprovalRequest] = {}
        """The approval requests of the agents that work, by id."""

    @property
    def root(self) -> AgentView | None:
        """The agent without a parent; None before its first event."""
        return next((view for view in self.by_id.values() if view.parent_id is None), None)

    def of(self, event: AgentEvent) -> AgentView:
        """The agent that the event is from."""
        view = self.by_id.get(event.agent_id)
        if view is None:
            view = self.by_id[event.agent_id] = AgentView(
                agent_id=one_line(event.agent_id),
                parent_id=event.parent_id,
                depth=event.depth,
                number=len(self.by_id),
                started=event.time,
            )
        return view

    def without_answer(self, output: ToolOutput) -> str:
        """What the model reads of a call, without the answer of a child at its end: that was shown when it came."""
        content = output.content.rstrip()
        for view in self.by_id.values():
            answer = view.answer.strip()
            if answer and view.parent_id == output.agent_id and content.endswith(answer):
                return content.removesuffix(answer).rstrip()
        return content

    def observe(self, event: AgentEvent) -> AgentView:
        """Take in what the event tells, before it is drawn."""
        view = self.of(event)
        view.observe(event)
        match event:
            case ApprovalRequest():
                self.requests[event.request_id] = event
            case AgentFinished():
                self.requests = {key: item for key, item in self.requests.items() if item.agent_id != event.agent_id}
        return view


def _shows(shown: ToolCallStarted, call: Call) -> bool:
    match call:
        case CodeAction():
            return shown.args.get("code") == call.code
        case SpawnCall():
            return shown.args.get("prompt") == call.prompt
        case McpCall():
            return call.server in shown.tool_name and call.tool in shown.tool_name and shown.args == call.args
        case ToolCall():
            return shown.tool_name == call.tool_name and shown.args == call.args
        case _:  # what the code of a cell does
            return False
