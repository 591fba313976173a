"""`StoryBlock`: the piece of an agent's story that people see, in any front end.

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
"""Characters above which a text of the model shows only its head and its tail while it streams."""
MAX_NODES: Final = 1_000
"""Maximum number of kept nodes of one search."""


E = TypeVar("E", bound=ev.AgentEvent)
CellOutput: TypeAlias = StreamText | DisplayData | ExecuteResult | CellError | ClearOutput
Form: TypeAlias = Literal["text", "markdown", "code", "arguments", "output", "bundle"]
"""The form of a part. `output` and `bundle` come from a cell; their text may set colours."""
Tone: TypeAlias = Literal["", "good", "bad", "success", "failure", "warning", "question", "prompt", "thought", "quiet"]
"""The meaning of the text. `success` and `failure` are a run's."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of the content below a title."""

    text: str
    """The text, whatever the form."""
    form: Form = "text"
    tone: Tone = ""
    data: dict[str, Any] = field(default_factory=dict)
    """The values of `arguments`, or the MIME bundle of `bundle`."""
    name: str = ""
    """Its kind, if the title does not say it."""
    brief: bool = False
    """Whether the part fits behind the title on the same line."""
    folds: bool = False
    """Whether a conversation whose actions are folded has only the name of the part, and the key that shows it."""


@dataclass(kw_only=True, eq=False)
class StoryBlock:
    """An agent's act, or an event that concerns it."""

    reaches_parents: ClassVar[bool] = False
    """Whether viewers of an agent above are told even without a `line`."""
    title: str = ""
    """Words after the agent's name. Empty: another block says them, and there is nothing to read here."""
    detail: str = ""
    """Words after the title."""
    parts: tuple[Part, ...] = ()
    tone: Tone = ""
    line: str = ""
    """The whole as a note of few words, for viewers of an agent above."""
    short: str = ""
    """The line for viewers of an agent above, if it is too long for them."""
    sentence: str = ""
    """The whole as a sentence of a document. Empty: made of the words."""
    goes_on: bool = False
    """Whether the title can be left out after a block with the same agent and title."""
    passing: bool = False
    """Whether the block describes a moment: front ends that redraw use `Activity` instead; no story keeps it."""
    is_repeated: bool = False
    """Whether another block says the same: conversations omit this one, logs and documents do not."""
    is_detail: bool = False
    """Whether a conversation whose actions are folded omits the block."""

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
        """The block as a sentence of a document; empty if it has no words."""
        return self.sentence or (f"The agent {visible(self.text)}." if self.title else "")


@dataclass(kw_only=True, eq=False)
class Growth(StoryBlock):
    """A piece of a text of the model, or the progress of a call."""

    passing: bool = True
    piece: str
    kind: Literal["answer", "thoughts", "call"]
    call_id: str = ""
    """The id of a call by code."""


@dataclass(kw_only=True, eq=False)
class Said(StoryBlock):
    """A whole text of the model."""

    content: str
    is_thought: bool = False
    """Whether the text is the model's thinking. A child's has no words: it is for readers of the stream."""


@dataclass(kw_only=True, eq=False)
class Output(StoryBlock):
    """An output of a running cell: lines and displays that are settled, or an error."""

    output: CellOutput | None = None
    """The new output, settled or not. None: the block has only output that was held back."""
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
    """Whether the tool call has shown the whole request."""


class QuestionAsked(OfEvent[ev.QuestionRequest]):
    """A question to a person."""


class Answered(OfEvent[ev.QuestionAnswered]):
    """The end of a question."""


class End(OfEvent[ev.AgentFinished]):
    """The end of a run."""

    reaches_parents = True


@dataclass(frozen=True, kw_only=True)
class StoryLimits:
    """Limits on an agent's kept work; left-out items are counted."""

    first: int = sys.maxsize
    last: int = 0
    """Number of last items; more items than `first` and `last` together lose those between."""
    outputs: int = sys.maxsize
    """Outputs of one call; the last ones are kept."""
    text_chars: int = sys.maxsize
    """Characters above which a text of a cell keeps its head and its tail."""
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
        """Return the last characters."""
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
    """Whether the strategy has ended by itself."""
    nodes: dict[str, SearchedState] = field(default_factory=dict)
    """The latest state of each node, by id."""
    best: str = ""
    """The id of the best node."""

    def update(self, newer: "StrategySteps") -> None:
        """Take a step."""
        self.steps, self.done, self.best = newer.steps, newer.done, newer.best or self.best
        self.nodes |= {name: node for name, node in newer.nodes.items() if name in self.nodes or len(self.nodes) < MAX_NODES}

    @property
    def written(self) -> str:
        """The strategy's progress, and its best result."""
        best = self.nodes.get(self.best)
        found = f"; the best of {counted(len(self.nodes), 'node')}: {best.score:.2f} {one_line(best.action)}" if best else ""
        return f"Strategy {one_line(self.name)}: {counted(self.steps, 'step')}{found}"


@dataclass(kw_only=True, eq=False)
class Plan(StoryBlock):
    """A plan, in its place among the other blocks."""

    plan: PlanState


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
    """The id of a call by a cell's code. Empty: the model's call."""
    approvals: list[Approval] = field(default_factory=list)
    """Approvals of the call itself."""
    outputs: list[CallItem] = field(default_factory=list)
    settled: int = 0
    """Number of settled outputs; the text after them may still grow."""
    left_out: int = 0
    """Number of dropped outputs."""
    status: str = ""
    """The status of its ended cell. Empty: no cell, or one that did not run to an end."""
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    result: str = ""
    outcome: str = ""
    """The `outcome` of its `ToolOutput`; empty while the call runs."""
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
        """The called tool with its label, or a cell's work, in one line."""
        if self.code is not None:
            return calls.CodeAction(code=self.code, description=self.label).title
        return one_line(": ".join(filter(None, [tool_words(self.tool_name), self.label])), 120)

    @property
    def shown(self) -> list[Shown]:
        """The outputs without the questions between them."""
        return [item for item in self.outputs if isinstance(item, Shown)]

    def add(self, item: StreamText | CallItem, limits: StoryLimits) -> bool:
        """Add an output of the running cell, or a question. Returns whether a settled part changes."""
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
        """Take back all output; the questions stay."""
        self.outputs = [item for item in self.outputs if not isinstance(item, Shown)]
        self.settled, self.left_out = len(self.outputs), 0

    def update(self, newer: DisplayData) -> bool:
        """Replace the displays of the same id. Returns whether there are any."""
        found = False
        for index, shown in enumerate(self.outputs):
            if isinstance(shown, DisplayData) and shown.display_id == newer.display_id:
                self.outputs[index], found = newer, True
        return found

    def settle(self, limits: StoryLimits) -> None:
        """End the text that grows."""
        surplus = len(self.outputs) - limits.outputs
        if surplus > 0:
            self.left_out += surplus
            del self.outputs[:surplus]
        self.settled = len(self.outputs)

    def end(self, limits: StoryLimits) -> None:
        """End the call: no more output will come."""
        self.running = False
        self.settle(limits)


def drop_displays(made: Iterator[CallStep], chars: int) -> None:
    """Leave out displays. Args: made: the calls, the newest first. chars: room for the displays that stay."""
    for call in made:
        for index in reversed(range(len(call.outputs))):
            output = call.outputs[index]
            if isinstance(output, DisplayData | ExecuteResult):
                chars -= sum(len(data) for data in output.data.values() if isinstance(data, str))
                if chars < 0:
                    call.outputs[index] = DisplayData(data={"text/plain": f"[left out: {', '.join(output.data)}]"})


def shows(tool_name: str, args: dict[str, Any], call: calls.Call) -> bool:
    """Return whether the tool call, as shown, holds everything that the approval request for `call` asks for."""
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
