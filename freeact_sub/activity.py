"""`Activities`: what each agent of a tree does right now, in one line, as its events tell."""

from dataclasses import dataclass, field

from freeact_sub.calls import CodeAction, ToolCall
from freeact_sub.events import (
    AgentEvent,
    AgentFinished,
    AgentStarted,
    ApprovalAnswered,
    ApprovalRequest,
    Response,
    ResponseChunk,
    Thoughts,
    ThoughtsChunk,
    ToolCallStarted,
    ToolOutput,
)
from freeact_sub.text import one_line


class Activities:
    """Learns from all events of a tree; its `observe` is a tap of the channel."""

    def __init__(self) -> None:
        self._by_id: dict[str, _Activity] = {}

    def observe(self, event: AgentEvent) -> None:
        """Take an event in."""
        match event:
            case AgentStarted():
                self._by_id[event.agent_id] = _Activity()
            case AgentFinished():
                self._by_id.pop(event.agent_id, None)
            case _ if event.agent_id in self._by_id:
                self._by_id[event.agent_id].observe(event)

    def of(self, agent_id: str) -> str:
        """What the agent does, in one line; empty where it is not known to be at work."""
        activity = self._by_id.get(agent_id)
        return "" if activity is None else one_line(activity.text)


@dataclass(kw_only=True)
class _Activity:
    calls: list[ToolCallStarted] = field(default_factory=list)
    """Those that have not ended, in order of start: a cell, and what its code has called."""
    questions: dict[str, ApprovalRequest] = field(default_factory=dict)
    writes: str = ""

    def observe(self, event: AgentEvent) -> None:
        match event:
            case ResponseChunk() | ThoughtsChunk():
                self.writes = "writing" if isinstance(event, ResponseChunk) else "thinking"
                self.calls.clear()  # a model writes again when all it has called has ended, also where nobody told of it
            case Response() | Thoughts():
                self.writes = ""
            case ToolCallStarted():
                self.calls.append(event)
            case ToolOutput():
                self._end_call(event)
            case ApprovalRequest() if not event.headless:
                self.questions[event.request_id] = event
            case ApprovalAnswered():
                self.questions.pop(event.request_id, None)

    @property
    def text(self) -> str:
        if self.questions:
            return f"waiting for approval: {next(iter(self.questions.values())).call.summary}"
        if self.calls:
            others = len(self.calls) - 1
            return _words(self.calls[-1]) + (f" (and {others} more)" if others else "")
        return self.writes or "waiting for the model"

    def _end_call(self, output: ToolOutput) -> None:
        # what a cell's code calls has the id of the cell: the name tells them apart
        for call in self.calls:
            if (call.tool_call_id, call.tool_name) == (output.tool_call_id, output.tool_name):
                self.calls.remove(call)
                return


def _words(call: ToolCallStarted) -> str:
    code, label = call.args.get("code"), call.args.get("description")
    if isinstance(code, str):
        return CodeAction(code=code).summary
    if isinstance(label, str) and label:
        return f"{call.tool_name}: {label}"
    return ToolCall(tool_name=call.tool_name, args=call.args).summary
