"""What an agent's story consists of: calls with their outputs, approvals, strategies, and texts that grow."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from freeact_sub import events as ev
from freeact_sub.calls import Call, CodeAction, McpCall, SpawnCall, ToolCall
from freeact_sub.cells import CELL_TOOL, CellError, DisplayData, ExecuteResult, StreamText
from freeact_sub.events.progress import PlanState, SearchedState
from freeact_sub.show.wording import tool_words
from freeact_sub.text import one_line

PLAN_TOOL: Final = "update_plan"
ANSWER_CHARS: Final = 60_000
"""A longer text of the model shows its head and its tail while it streams."""
MAX_NODES: Final = 1_000
"""Nodes of one search that are kept."""


@dataclass(frozen=True, kw_only=True)
class StoryLimits:
    """How much of an agent's work is kept. Of what is left out, the number is kept."""

    first: int = sys.maxsize
    last: int = 0
    """Of more items than both together, those between are left out."""
    outputs: int = sys.maxsize
    """Outputs of one call; the last ones are kept."""
    text_chars: int = sys.maxsize
    """Of a longer text of a cell, the head and the tail are kept."""
    display_chars: int = sys.maxsize
    """Characters of all pictures and tables; the newest ones are kept."""


@dataclass
class GrowingText:
    """A text that grows; a long one keeps its head and its tail."""

    kind: str
    """`text`, `stderr`, `answer` or `thoughts`."""
    limit: int = ANSWER_CHARS
    head: str = ""
    tail: str = ""
    left_out: int = 0

    def add(self, piece: str) -> None:
        """Append text."""
        half = self.limit // 2
        room = max(0, half - len(self.head))
        self.head += piece[:room]
        self.tail += piece[room:]
        if len(self.tail) > 2 * half:  # cutting seldom makes many small pieces cheap
            self.left_out += len(self.tail) - half
            self.tail = self.tail[-half:]

    def end(self, chars: int) -> str:
        """The last characters."""
        return self.tail[-chars:] if len(self.tail) >= chars else str(self)[-chars:]

    def __str__(self) -> str:
        between = f"\n… {self.left_out:,} characters left out …\n" if self.left_out else ""
        return f"{self.head}{between}{self.tail}"


@dataclass(eq=False)
class Approval:
    """An approval request, and the decision on it once there is one."""

    request: ev.ApprovalRequest
    decision: ev.ApprovalDecided | None = None


@dataclass(kw_only=True)
class StrategySteps:
    """A strategy and, if it searches, its tree."""

    name: str
    steps: int = 0
    done: bool = False
    """Whether it has ended by itself."""
    nodes: dict[str, SearchedState] = field(default_factory=dict)
    """The latest of each node, by id."""
    best: str = ""
    """The id of the best node."""

    def add(self, event: ev.StrategyProgress) -> None:
        """Handles a step."""
        self.steps, self.done, self.best = event.step, event.done, event.best or self.best
        if event.node is not None and (event.node.node_id in self.nodes or len(self.nodes) < MAX_NODES):
            self.nodes[event.node.node_id] = event.node


@dataclass(kw_only=True)
class PlanItem:
    """A plan, in its place among the other steps."""

    plan: PlanState
    """As it is now."""


Shown: TypeAlias = GrowingText | DisplayData | ExecuteResult | CellError
"""An output of a cell."""
CallItem: TypeAlias = Shown | Approval | ev.QuestionRequest | ev.QuestionAnswered
"""An output, or a question about what the code of the cell does."""


@dataclass(kw_only=True, eq=False)
class CallStep:
    """A tool call: its arguments, outputs and outcome."""

    name: str = ""
    args: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    """Its name for people."""
    tool_call_id: str | None = None
    call_id: str = ""
    """Tells apart the calls of a cell's code. Empty: the model's call."""
    approvals: list[Approval] = field(default_factory=list)
    """Those of the call itself."""
    outputs: list[CallItem] = field(default_factory=list)
    settled: int = 0
    """Number of outputs that do not change any more; the text after them may still grow."""
    left_out: int = 0
    """Number of outputs that were dropped."""
    status: str = ""
    """How its cell ended. Empty: it is no cell, or did not run to an end."""
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    result: str = ""
    outcome: str = ""
    """That of `ToolOutput`; empty while the call runs."""
    running: bool = True
    reaches_out: bool = False
    """Whether its code made calls outside the kernel: a server's tool, a command, a write."""

    @classmethod
    def of(cls, event: ev.ToolCallStarted) -> "CallStep":
        """The step of a call that begins."""
        return cls(
            name=event.tool_name,
            args=event.args,
            label=event.label,
            tool_call_id=event.tool_call_id,
            call_id=event.call_id,
        )

    @property
    def code(self) -> str | None:
        """The cell's code; None for other tools."""
        code = self.args.get("code") if self.name == CELL_TOOL else None
        return code if isinstance(code, str) else None

    @property
    def title(self) -> str:
        """What was called, with its label, in one line; of a cell, what it does."""
        if self.code is not None:
            return CodeAction(code=self.code, description=self.label).title
        return one_line(": ".join(filter(None, [tool_words(self.name), self.label])), 120)

    @property
    def shown(self) -> list[Shown]:
        """Its outputs without the questions between them."""
        return [item for item in self.outputs if isinstance(item, Shown)]

    def add(self, item: StreamText | CallItem, limits: StoryLimits) -> bool:
        """Adds an output of the running cell, or a question. Returns whether what is settled changes."""
        if isinstance(item, StreamText):
            kind = "stderr" if item.name == "stderr" else "text"
            last = self.outputs[-1] if len(self.outputs) > self.settled else None
            if not isinstance(last, GrowingText) or last.kind != kind:
                self.outputs.append(last := GrowingText(kind, limits.text_chars))
            last.add(item.text)
            if len(self.outputs) <= limits.outputs:
                return False
        else:
            self.outputs.append(item)
        self.settle(limits)
        return True

    def clear(self) -> None:
        """Takes back all output; the questions stay."""
        self.outputs = [item for item in self.outputs if not isinstance(item, Shown)]
        self.settled, self.left_out = len(self.outputs), 0

    def update(self, newer: DisplayData) -> bool:
        """Replaces the displays of the same id. Returns whether there are any."""
        found = False
        for index, shown in enumerate(self.outputs):
            if isinstance(shown, DisplayData) and shown.display_id == newer.display_id:
                self.outputs[index], found = newer, True
        return found

    def settle(self, limits: StoryLimits) -> None:
        """Ends the text that grows."""
        surplus = len(self.outputs) - limits.outputs
        if surplus > 0:
            self.left_out += surplus
            del self.outputs[:surplus]
        self.settled = len(self.outputs)

    def end(self, limits: StoryLimits) -> None:
        """Ends the call: no more output will come."""
        self.running = False
        self.settle(limits)


StoryItem: TypeAlias = ev.AgentEvent | CallStep | Approval | StrategySteps | PlanItem | str
"""An item of an agent's story; a text is a remark of the front end's own."""


def drop_displays(calls: Iterator[CallStep], chars: int) -> None:
    """Leaves out displays. Args: calls: the newest first. chars: room for the displays that stay."""
    for call in calls:
        for index in reversed(range(len(call.outputs))):
            output = call.outputs[index]
            if isinstance(output, DisplayData | ExecuteResult):
                chars -= sum(len(data) for data in output.data.values() if isinstance(data, str))
                if chars < 0:
                    call.outputs[index] = DisplayData(data={"text/plain": f"[left out: {', '.join(output.data)}]"})


def shows(tool_name: str, args: dict[str, Any], call: Call) -> bool:
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
