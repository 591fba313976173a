"""The state of an agent in a front end: its `Activity`, and what was shown already."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from freeact_sub.activity import Activity
from freeact_sub.agent_names import agent_name
from freeact_sub.calls import Call, CodeAction, McpCall, SpawnCall, ToolCall
from freeact_sub.cells import ClearOutput, DisplayData, ExecuteResult, StreamText, size_of, text_of
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
    ToolOutput,
)
from freeact_sub.text import clean, colours_only

LINE_CHARS: Final = 8192
"""A line that does not end is drawn in pieces of this size, so that memory stays bounded."""

MAX_HELD: Final = 200
MAX_HELD_CHARS: Final = 200_000
"""Output of a cell that is held back, in pieces and in characters; more is drawn although the cell may clear it."""
MAX_COLOURS: Final = 16
"""Active colour sequences that continue in the next line; newer ones usually replace older ones."""

_COLOUR: Final = re.compile(r"\x1b\[([0-9;]*)m")


HeldOutput: TypeAlias = StreamText | DisplayData | ExecuteResult


class LineBuffer:
    """Cuts a stream of pieces into whole lines; each sets the colours that continue from the one before it."""

    def __init__(self) -> None:
        self._rest = ""
        self._colours = ""

    def add(self, piece: str) -> Iterator[str]:
        """Accept a piece, and yield the lines that it ends."""
        *lines, self._rest = (self._rest + piece).split("\n")
        if "\r" in self._rest:  # drop what is overwritten; a return at the end may yet become the end of a line
            shown = self._rest.rstrip("\r")
            self._rest = shown.rpartition("\r")[2] + ("\r" if shown != self._rest else "")
        while len(self._rest) > LINE_CHARS:
            lines.append(self._rest[:LINE_CHARS])
            self._rest = self._rest[LINE_CHARS:]
        for line in lines:
            yield self._coloured(line)

    def rest(self) -> str:
        """The unfinished line, such as a progress bar that is still moving."""
        return clean(self._rest)

    def flush(self) -> Iterator[str]:
        """Yields the unfinished line, if there is one; what comes next starts without colour."""
        rest, self._rest = self._rest, ""
        if rest:
            yield self._coloured(rest)
        self._colours = ""

    def _coloured(self, line: str) -> str:
        line = self._colours + colours_only(line)
        in_force: list[str] = []
        for match in _COLOUR.finditer(line):
            if match[1].partition(";")[0] in ("", "0"):
                in_force.clear()
            if match[1] not in ("", "0"):
                in_force.append(match[0])
        self._colours = "".join(in_force[-MAX_COLOURS:])
        return line


class UndrawnOutput:
    """The output of a running cell that is not drawn yet: an unfinished line, and what the cell may clear or replace.

    A cell that has cleared its output, or has replaced a display, is likely to do so again. Where nothing that is drawn can
    be taken back, only its last state is drawn, when the cell ends.
    """

    def __init__(self) -> None:
        self.lines = LineBuffer()
        self._held: list[HeldOutput] = []
        self._held_chars = 0
        self._clears = False

    def settled(self, output: HeldOutput | ClearOutput) -> list[HeldOutput]:
        """Takes an output of the cell, and returns those that can be drawn."""
        if isinstance(output, ClearOutput):
            self.lines, self._clears = LineBuffer(), True
            self.rest()
            return []
        replaced = output.display_id if isinstance(output, DisplayData) and output.update else None
        if not self._clears and replaced is None:
            return [output]
        for index, held in enumerate(self._held):
            if isinstance(held, DisplayData) and replaced is not None and held.display_id == replaced:
                self._held[index] = output
                return []
        self._held.append(output)
        self._held_chars += size_of(output)
        return self.rest() if len(self._held) > MAX_HELD or self._held_chars > MAX_HELD_CHARS else []

    def rest(self) -> list[HeldOutput]:
        """What was held back; it is not held any more."""
        held, self._held, self._held_chars = self._held, [], 0
        return held

    @property
    def text(self) -> str:
        """The end of all this as text, for a place that is drawn again and again."""
        texts = [text_of(output) for output in self._held]
        return clean("".join(texts)[-TAIL_CHARS:]) + self.lines.rest()


TAIL_CHARS = 4000
"""Characters that are kept of a text while it streams."""


@dataclass(kw_only=True)
class AgentView(Activity):
    """One agent: what it is doing, and what was shown so far."""

    number: int = 0
    """Order of appearance: decides its colour."""
    thinking: str = ""
    """The end of unfinished thoughts."""
    writing: str = ""
    """The end of an unfinished response."""
    answer: str = ""
    """Its last complete response."""
    child_answers: dict[str, str] = field(default_factory=dict)
    """The last complete response of each child, by the child's id."""
    outputs: dict[str | None, UndrawnOutput] = field(default_factory=lambda: defaultdict(UndrawnOutput))
    """The output of running cells that is not drawn yet, by `tool_call_id`."""
    pause_begins: bool = False
    """The newest event is the first to say that the request waits for a busy provider."""
    requests: dict[str, ApprovalRequest] = field(default_factory=dict)
    """All approval requests of this run, by id."""
    cells: set[str] = field(default_factory=set)
    """The tool calls that ran a cell, whose output was shown as it came."""

    @property
    def output_text(self) -> str:
        """The end of the output that is not drawn yet."""
        return "\n".join(filter(None, (output.text for output in self.outputs.values())))

    @property
    def name(self) -> str:
        """The agent's short id, with its label if it has one."""
        return agent_name(self.agent_id, self.label)

    def observe(self, event: AgentEvent) -> None:
        """See `Activity.observe`."""
        match event:
            case ResponseChunk():
                self.writing = (self.writing + event.content)[-TAIL_CHARS:]
            case ThoughtsChunk():
                self.thinking = (self.thinking + event.content)[-TAIL_CHARS:]
            case CodeExecutionOutputChunk() | CodeExecutionOutput() if event.tool_call_id:
                self.cells.add(event.tool_call_id)
            case Response() | AgentStarted():
                self.writing, self.answer = "", event.content if isinstance(event, Response) else ""
            case Thoughts():
                self.thinking = ""
            case ApprovalRequest():
                self.requests[event.request_id] = event
            case ModelProgress(paused_seconds=paused):
                self.pause_begins = paused is not None and self.paused_seconds is None
            case AgentFinished():
                self.thinking = self.writing = ""
                for known in (self.child_answers, self.requests, self.cells):
                    known.clear()
        super().observe(event)

    def has_shown_result(self, output: ToolOutput) -> bool:
        """Whether the result of a call was shown already: as the output of its cell, or as a person's denial."""
        if output.outcome != "denied":
            return output.tool_call_id in self.cells
        asked = {request.tool_call_id for request in self.requests.values()}
        return output.tool_call_id is not None and output.tool_call_id in asked

    def has_shown(self, request: ApprovalRequest) -> bool:
        """Whether the tool call of the request has shown everything that the request asks for."""
        calls = (call for call in self.calls if call.tool_call_id == request.tool_call_id)
        return any(shows(call.tool_name, call.args, request.call) for call in calls)

    def without_answer(self, output: ToolOutput) -> str:
        """The result of a call without a child's answer at its end, which was shown when the child gave it."""
        content = output.content.rstrip()
        answers = (answer.strip() for answer in self.child_answers.values())
        shown = next((answer for answer in answers if answer and content.endswith(answer)), "")
        return content.removesuffix(shown).rstrip()


class Views:
    """All agents of a session, in order of appearance."""

    def __init__(self) -> None:
        self.by_id: dict[str, AgentView] = {}

    @property
    def root(self) -> AgentView | None:
        """The agent without a parent; None before its first event."""
        return next((view for view in self.by_id.values() if view.parent_id is None), None)

    def name(self, view: AgentView) -> str:
        """An agent's name for people, in a conversation with the root."""
        return "agent" if view.parent_id is None else view.name

    @property
    def labels(self) -> dict[str, str]:
        """The label of each agent, by id."""
        return {agent_id: view.label for agent_id, view in self.by_id.items()}

    def chain(self, view: AgentView) -> list[AgentView]:
        """The agent and all above it, the root first."""
        found = [view]
        while (parent := self.by_id.get(found[0].parent_id or "")) is not None and parent not in found:
            found.insert(0, parent)
        return found

    def of(self, event: AgentEvent) -> AgentView:
        """The agent that the event is from."""
        view = self.by_id.get(event.agent_id)
        if view is None:
            view = self.by_id[event.agent_id] = AgentView.of(event)
            view.number = len(self.by_id) - 1
        return view

    def observe(self, event: AgentEvent) -> AgentView:
        """Updates the event's agent; call it before the event is drawn."""
        view = self.of(event)
        view.observe(event)
        parent = self.by_id.get(event.parent_id or "")
        if parent is not None and isinstance(event, Response):
            parent.child_answers[event.agent_id] = event.content
        return view


def shows(tool_name: str, args: Mapping[str, Any], call: Call) -> bool:
    """Whether the tool call, as it is shown, holds everything that the approval request for `call` asks for."""
    match call:
        case CodeAction():
            return args.get("code") == call.code
        case SpawnCall():
            return args.get("prompt") == call.prompt
        case McpCall():
            return call.server in tool_name and call.tool in tool_name and args == call.args
        case ToolCall():
            return tool_name == call.tool_name and args == call.args
        case _:  # what the code of a cell does
            return False
