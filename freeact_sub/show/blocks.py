"""`StoryBlock`: what people see of an agent, whichever front end draws it.

`teller.py` makes the blocks of each event. All have words: a title that follows the agent's name, and parts below it. Those
with more to draw have a class of their own; a front end that does not know the class draws the words. All text in titles and
parts is safe to show: escape sequences and control characters are gone, except for the colours of a cell's output.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar

from freeact_sub import calls
from freeact_sub import events as ev
from freeact_sub.cells import CELL_TOOL, CellError, ClearOutput, DisplayData, ExecuteResult, StreamText
from freeact_sub.events.progress import PlanState, SearchedState
from freeact_sub.show.wording import tool_words
from freeact_sub.text import counted, one_line, visible

PLAN_TOOL: Final = "update_plan"
ANSWER_CHARS: Final = 60_000
"""A longer text of the model shows its head and its tail while it streams."""
MAX_NODES: Final = 1_000
"""Nodes of one search that are kept."""


E = TypeVar("E", bound=ev.AgentEvent)
CellOutput: TypeAlias = StreamText | DisplayData | ExecuteResult | CellError | ClearOutput
Form: TypeAlias = Literal["text", "markdown", "code", "arguments", "output", "bundle"]
"""The form of a part. `output` and `bundle` come from a cell; their text may set colours."""
Tone: TypeAlias = Literal["", "good", "bad", "success", "failure", "warning", "question", "prompt", "thought", "quiet"]
"""The meaning of the text. `success` and `failure` are those of a run."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of what stands below a title."""

    text: str
    """As text, whatever its form."""
    form: Form = "text"
    tone: Tone = ""
    data: dict[str, Any] = field(default_factory=dict)
    """The values of `arguments`, or the MIME bundle of `bundle`."""
    name: str = ""
    """Its kind, if the title does not say it."""
    brief: bool = False
    """It is short enough to follow the title on the same line."""


@dataclass(kw_only=True, eq=False)
class StoryBlock:
    """Something that an agent does or that happens to it."""

    reaches_parents: ClassVar[bool] = False
    """Whether those who look at an agent above are told of it, even without a `line`."""
    title: str = ""
    """Follows the agent's name. Empty: another block says it, and there is nothing to read here."""
    detail: str = ""
    """Follows the title."""
    parts: tuple[Part, ...] = ()
    tone: Tone = ""
    line: str = ""
    """The whole as a note of few words. Those who look at an agent above are told it."""
    sentence: str = ""
    """The whole as a sentence of a document. Empty: it is made of the words."""
    goes_on: bool = False
    """The title can be left out if the block before has the same agent and title."""
    passing: bool = False
    """It describes a moment; front ends that redraw take it from `Activity` and omit this block, and no story keeps it."""
    is_repeated: bool = False
    """Another block says it too: conversations omit it, logs and documents do not."""
    is_detail: bool = False
    """A conversation whose actions are folded omits it."""

    @property
    def head(self) -> str:
        """The title with its detail."""
        return f"{self.title}: {self.detail}" if self.detail else self.title

    @property
    def text(self) -> str:
        """The whole block as text."""
        return ": ".join(filter(None, [self.head, *(part.text for part in self.parts)]))

    @property
    def written(self) -> str:
        """It as a sentence of a document; empty if it has no words."""
        return self.sentence or (f"The agent {visible(self.text)}." if self.title else "")


@dataclass(kw_only=True, eq=False)
class Growth(StoryBlock):
    """A piece of a text of the model, or how far a call is."""

    passing: bool = True
    piece: str
    kind: Literal["answer", "thoughts", "call"]
    call_id: str = ""
    """The call, if it is one by code."""


@dataclass(kw_only=True, eq=False)
class Said(StoryBlock):
    """A whole text of the model."""

    content: str
    is_thought: bool = False
    """It belongs to the model's thinking. That of a child has no words: it is for readers of the stream."""


@dataclass(kw_only=True, eq=False)
class Output(StoryBlock):
    """An output of a running cell: lines and displays that do not change any more, or an error."""

    output: CellOutput | None = None
    """The output that has come, settled or not. None: the block has only what was held back."""
    tool_call_id: str | None = None


@dataclass(kw_only=True, eq=False)
class OfEvent(StoryBlock, Generic[E]):
    """A block that front ends draw with the facts of its event."""

    of: E


class Prompt(OfEvent[ev.AgentStarted]):
    """The beginning of a run."""

    reaches_parents = True


@dataclass(kw_only=True, eq=False)
class Spent(OfEvent[ev.UsageUpdated]):
    """The usage after a response of the model."""

    passing: bool = True


class CellEnd(OfEvent[ev.CodeExecutionOutput]):
    """The end of a cell."""


@dataclass(kw_only=True, eq=False)
class CallEnd(OfEvent[ev.ToolOutput]):
    """The return of a call."""

    content: str = ""
    """The result without a child's answer that was told before."""


@dataclass(kw_only=True, eq=False)
class Decided(OfEvent[ev.ApprovalDecided]):
    """The decision on an approval."""

    reaches_parents = True
    request: ev.ApprovalRequest | None
    is_shown: bool = False
    """Whether the tool call has shown all that was asked for."""


class QuestionAsked(OfEvent[ev.QuestionRequest]):
    """A question to a person."""


class Answered(OfEvent[ev.QuestionAnswered]):
    """The end of a question."""


class End(OfEvent[ev.AgentFinished]):
    """The end of a run."""

    reaches_parents = True


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


@dataclass(kw_only=True, eq=False)
class Approval(StoryBlock):
    """An approval request, and the decision on it once there is one."""

    reaches_parents = True
    request: ev.ApprovalRequest
    decision: ev.ApprovalDecided | None = None

    @property
    def written(self) -> str:
        """The question and the answer."""
        decision, answer = self.decision, "never answered"
        if decision is not None:
            answer = ("yes" if decision.allowed else "no") + (f" ({visible(decision.reason)})" if decision.reason else "")
        return f"The agent {visible(self.request.call.question)}. Answer: {answer}"


@dataclass(kw_only=True, eq=False)
class StrategySteps(StoryBlock):
    """A strategy and, if it searches, its tree."""

    strategy_id: str
    name: str
    steps: int = 0
    done: bool = False
    """Whether it has ended by itself."""
    nodes: dict[str, SearchedState] = field(default_factory=dict)
    """The latest of each node, by id."""
    best: str = ""
    """The id of the best node."""

    def update(self, newer: "StrategySteps") -> None:
        """Takes a step."""
        self.steps, self.done, self.best = newer.steps, newer.done, newer.best or self.best
        self.nodes |= {name: node for name, node in newer.nodes.items() if name in self.nodes or len(self.nodes) < MAX_NODES}

    @property
    def written(self) -> str:
        """How far it is, and the best that it has found."""
        best = self.nodes.get(self.best)
        found = f"; the best of {counted(len(self.nodes), 'node')}: {best.score:.2f} {one_line(best.action)}" if best else ""
        return f"Strategy {one_line(self.name)}: {counted(self.steps, 'step')}{found}"


@dataclass(kw_only=True, eq=False)
class Plan(StoryBlock):
    """A plan, in its place among the other blocks."""

    plan: PlanState
    """As it is now."""


Shown: TypeAlias = GrowingText | DisplayData | ExecuteResult | CellError
"""An output of a cell."""
CallItem: TypeAlias = Shown | StoryBlock
"""An output, or a question about what the code of the cell does."""


@dataclass(kw_only=True, eq=False)
class CallStep(StoryBlock):
    """A tool call: its arguments, outputs and outcome."""

    tool_name: str = ""
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

    @property
    def code(self) -> str | None:
        """The cell's code; None for other tools."""
        code = self.args.get("code") if self.tool_name == CELL_TOOL else None
        return code if isinstance(code, str) else None

    @property
    def named(self) -> str:
        """What was called, with its label, in one line; of a cell, what it does."""
        if self.code is not None:
            return calls.CodeAction(code=self.code, description=self.label).title
        return one_line(": ".join(filter(None, [tool_words(self.tool_name), self.label])), 120)

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


def drop_displays(made: Iterator[CallStep], chars: int) -> None:
    """Leaves out displays. Args: made: the calls, the newest first. chars: room for the displays that stay."""
    for call in made:
        for index in reversed(range(len(call.outputs))):
            output = call.outputs[index]
            if isinstance(output, DisplayData | ExecuteResult):
                chars -= sum(len(data) for data in output.data.values() if isinstance(data, str))
                if chars < 0:
                    call.outputs[index] = DisplayData(data={"text/plain": f"[left out: {', '.join(output.data)}]"})


def shows(tool_name: str, args: dict[str, Any], call: calls.Call) -> bool:
    """Whether the tool call, as it is shown, holds everything that the approval request for `call` asks for."""
    match call:
        case calls.CodeAction():
            return args.get("code") == call.code
        case calls.SpawnCall():
            return args.get("prompt") == call.prompt
        case calls.McpCall():
            return call.server in tool_name and call.tool in tool_name and args == call.args
        case calls.ToolCall():
            return tool_name == call.tool_name and args == call.args
        case _:  # what the code of a cell does
            return False
