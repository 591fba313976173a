"""`Block`: what a notebook shows of one agent, as state made from its events; nothing is drawn here (`render.py`).

`ROWS` is the table from event type to what it changes; a test holds it against `events.Event`. Everything in a block is
bounded: an agent may run for hours, and its block is drawn again at every step.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from freeact_sub import events
from freeact_sub.budget import Usage
from freeact_sub.calls import Call as CallValue
from freeact_sub.calls import CodeAction, McpCall, SpawnCall, ToolCall
from freeact_sub.cells import CellError, DisplayData, ExecuteResult, StreamText
from freeact_sub.notebook.markup import TEXT_CHARS, bounded

WAITING = "waiting for your answer"
CODE_TOOL, SPAWN_TOOL = "execute_ipython_cell", "task"

FIRST_STEPS, LAST_STEPS = 10, 60
"""Of an agent with more steps than both, those between are counted, not shown."""

ANSWER_CHARS = 60_000
"""Of a longer answer the head and the tail are shown."""

OUTPUTS_PER_CALL = 40
"""A call with more outputs (texts, pictures, tables) shows the last of them."""

QUESTIONS_PER_CALL = 30
"""A cell that has asked for more shows the last of them."""

DISPLAY_CHARS = 6_000_000
"""Pictures and tables of one block over this sum are left out, the oldest first."""


@dataclass
class Text:
    """A stretch of text that grows; of a long one the head and the tail are kept."""

    kind: str
    """`text`, `stderr`, `answer` or `thoughts`."""
    limit: int = TEXT_CHARS
    head: str = ""
    tail: str = ""
    left_out: int = 0

    def add(self, piece: str) -> None:
        """Append text."""
        half = self.limit // 2
        room = max(0, half - len(self.head))
        self.head += piece[:room]
        self.tail += piece[room:]
        if len(self.tail) > 2 * half:  # cut seldom, so that many small pieces cost little
            self.left_out += len(self.tail) - half
            self.tail = self.tail[-half:]

    def __str__(self) -> str:
        between = f"\n… {self.left_out:,} characters left out …\n" if self.left_out else ""
        return f"{self.head}{between}{self.tail}"


@dataclass
class Call:
    """A tool call: what was asked, what came out, how it ended."""

    name: str
    args: dict[str, Any]
    outputs: list[Text | DisplayData | ExecuteResult | CellError] = field(default_factory=list)
    settled: int = 0
    """So many of the outputs stand in the body; the last text may still grow, in the foot."""
    left_out: int = 0
    questions: dict[str, list[str]] = field(default_factory=dict)
    """Of each approval request: what is asked (empty: this call itself), and the answer."""
    notes: list[str] = field(default_factory=list)
    result: str = ""
    outcome: str = ""
    """Of `ToolOutput`; empty while the call runs."""
    running: bool = True

    @property
    def code(self) -> str | None:
        """The cell's code, where the call runs one."""
        code = self.args.get("code") if self.name == CODE_TOOL else None
        return code if isinstance(code, str) else None

    def is_asked_by(self, asked: CallValue) -> bool:
        """Whether the question is about this call itself, not about one that its code makes."""
        match asked:
            case CodeAction(code=code):
                return code == self.code
            case SpawnCall():
                return self.name == SPAWN_TOOL
            case ToolCall(tool_name=name):
                return name == self.name
            case McpCall():
                return self.code is None
            case _:  # what the code of a cell does
                return False

    def add(self, output: StreamText | DisplayData | ExecuteResult | CellError) -> bool:
        """Take in output of the running cell. True if the body changes."""
        if isinstance(output, StreamText):
            kind = "stderr" if output.name == "stderr" else "text"
            last = self.outputs[-1] if len(self.outputs) > self.settled else None
            if not isinstance(last, Text) or last.kind != kind:
                self.outputs.append(last := Text(kind))
            last.add(output.text)
            if len(self.outputs) <= OUTPUTS_PER_CALL:
                return False
        else:
            self.outputs.append(output)
        self._settle()
        return True

    def update(self, newer: DisplayData) -> bool:
        """Replace the display of the same id. True if there was one."""
        for index, shown in enumerate(self.outputs):
            if isinstance(shown, DisplayData) and shown.display_id == newer.display_id:
                self.outputs[index] = newer
                return True
        return False

    def end(self) -> None:
        """No more output will come."""
        self.running = False
        self._settle()

    def _settle(self) -> None:
        surplus = len(self.outputs) - OUTPUTS_PER_CALL
        if surplus > 0:
            self.left_out += surplus
            del self.outputs[:surplus]
        self.settled = len(self.outputs)


@dataclass
class Note:
    """A remark on the run: a lost kernel, a cancel, an error."""

    text: str
    kind: str = "warning"


Step = Text | Call | Note


class Block:
    """What is shown of one agent."""

    def __init__(self, started: events.AgentStarted) -> None:
        self.agent_id = started.agent_id
        self.parent_id = started.parent_id
        self.depth = started.depth
        self.label = started.description or started.prompt
        self.prompt = started.prompt
        self.status = "queued" if started.queued else "running"
        self.finished: events.AgentFinished | None = None
        self.started_at = started.time
        self.usage = self.tree_usage = Usage()
        self.steps: list[Step] = []
        self.left_out_steps = 0
        self.open_questions: set[str] = set()
        self.streaming: Text | None = None
        """Text of the model that is not whole yet."""
        self._calls: dict[str | None, Call] = {}

    @property
    def running_calls(self) -> list[Call]:
        """Calls that may still put something out."""
        return [call for call in self._calls.values() if call.running]

    @property
    def shown_status(self) -> str:
        """The status in a person's words."""
        if self.open_questions:
            return WAITING
        return self.status.replace("_", " ")

    def apply(self, event: events.Event) -> bool:
        """Take in an event of this agent. True if the body changes, False if only the foot does."""
        if self.status == "queued" and not isinstance(event, events.AgentStarted | events.AgentFinished):
            self.status = "running"
        changed = ROWS[type(event)](self, event)
        self._drop_steps()
        return changed

    def call(self, tool_call_id: str | None) -> Call:
        """The tool call that an event belongs to."""
        if tool_call_id not in self._calls:
            self._add_call(tool_call_id, Call(name="", args={}))
        return self._calls[tool_call_id]

    def stream(self, kind: str, piece: str) -> bool:
        """Take in a piece of the model's text or thinking."""
        if self.streaming is None or self.streaming.kind != kind:
            self.streaming = Text(kind, limit=ANSWER_CHARS)
        self.streaming.add(piece)
        return False

    def settle(self, kind: str, content: str) -> bool:
        """Take in a whole text of the model, in place of its pieces."""
        self.streaming = None
        if content.strip():
            text = Text(kind, limit=ANSWER_CHARS)
            text.add(content)
            self.steps.append(text)
        return True

    def add_call(self, event: events.ToolCallStarted) -> bool:
        """Take in the start of a tool call."""
        self.streaming = None
        self._add_call(event.tool_call_id, Call(name=event.tool_name, args=event.args))
        return True

    def add_output(self, event: events.CodeExecutionOutputChunk) -> bool:
        """Take in output of a running cell; it may replace what an earlier cell displayed."""
        output = event.output
        if isinstance(output, DisplayData) and output.update:
            changed = any(call.update(output) for call in self._calls.values())
        else:
            changed = self.call(event.tool_call_id).add(output)
        if not isinstance(output, StreamText):
            self._drop_displays()
        return changed

    def end_cell(self, event: events.CodeExecutionOutput) -> bool:
        """Take in the end of a cell; shows what came without a chunk."""
        call = self.call(event.tool_call_id)
        shown = [output.data for output in call.outputs if isinstance(output, DisplayData | ExecuteResult)]
        if not call.outputs and not event.displays and event.text:
            call.add(StreamText(name="stdout", text=event.text))
        for data in event.displays:
            if data not in shown:
                call.add(DisplayData(data=data))
        if event.status not in ("ok", "error"):
            call.notes.append(f"the cell ended: {event.status.replace('_', ' ')}")
        if event.left_out_chars:
            call.notes.append(f"{event.left_out_chars:,} characters of output are not shown")
        if event.output_file:
            call.notes.append(f"all of the output: {event.output_file}")
        call.end()
        self._drop_displays()
        return True

    def end_call(self, event: events.ToolOutput) -> bool:
        """Take in what the model reads of a call; a cell's output is shown already."""
        call = self.call(event.tool_call_id)
        call.name = call.name or event.tool_name
        cell_ran = call.code is not None and not call.running
        call.outcome = event.outcome
        was_asked = any(answer for asked, answer in call.questions.values() if not asked)
        if not cell_ran and not (event.outcome == "denied" and was_asked):  # else it stands there already
            call.result = bounded(event.content)
        call.end()
        return True

    def ask(self, event: events.ApprovalRequest) -> bool:
        """Take in a question that waits for an answer."""
        call = self.call(event.tool_call_id)
        call.questions[event.request_id] = ["" if call.is_asked_by(event.call) else event.call.summary, ""]
        self.open_questions.add(event.request_id)
        for answered in [key for key, (_, answer) in call.questions.items() if answer][:-QUESTIONS_PER_CALL]:
            del call.questions[answered]
        return True

    def answer(self, event: events.ApprovalAnswered) -> bool:
        """Take in the answer to a question."""
        self.open_questions.discard(event.request_id)
        for call in self._calls.values():
            if event.request_id in call.questions:
                reason = f": {event.reason}" if event.reason else ""
                call.questions[event.request_id][1] = f"{'approved' if event.allowed else 'denied'}{reason}"
        return True

    def count(self, event: events.UsageUpdated) -> bool:
        """Take in what was spent so far."""
        self.usage, self.tree_usage = event.usage, event.tree_usage
        return False

    def note(self, text: str) -> bool:
        """Add a remark."""
        self.steps.append(Note(text))
        return True

    def finish(self, event: events.AgentFinished) -> bool:
        """Take in the end of the run."""
        if self.streaming is not None:
            self.settle(self.streaming.kind, str(self.streaming))
        for call in self._calls.values():
            call.end()
        if event.error:
            self.steps.append(Note(event.error, kind="error"))
        if event.output and not any(isinstance(step, Text) and str(step) == event.output for step in self.steps):
            self.settle("answer", event.output)
        self.finished, self.status = event, event.status
        self.usage, self.tree_usage = event.usage, event.tree_usage
        self.open_questions.clear()
        return True

    def _add_call(self, tool_call_id: str | None, call: Call) -> None:
        self._calls[tool_call_id] = call
        self.steps.append(call)

    def _drop_steps(self) -> None:
        surplus = len(self.steps) - FIRST_STEPS - LAST_STEPS
        if surplus <= 0:
            return
        dropped = self.steps[FIRST_STEPS : FIRST_STEPS + surplus]
        del self.steps[FIRST_STEPS : FIRST_STEPS + surplus]
        self.left_out_steps += surplus
        self._calls = {key: call for key, call in self._calls.items() if not any(call is step for step in dropped)}

    def _drop_displays(self) -> None:
        room = DISPLAY_CHARS
        for call in reversed(self._calls.values()):
            for index in reversed(range(len(call.outputs))):
                output = call.outputs[index]
                if isinstance(output, DisplayData | ExecuteResult):
                    room -= sum(len(data) for data in output.data.values() if isinstance(data, str))
                    if room < 0:
                        call.outputs[index] = DisplayData(data={"text/plain": f"[left out: {', '.join(output.data)}]"})


def _thoughts(block: Block, content: str, *, whole: bool) -> bool:
    """Thoughts of a child are for readers of the stream; a notebook shows those of the root."""
    if block.depth > 0:
        return False
    return block.settle("thoughts", content) if whole else block.stream("thoughts", content)


ROWS: dict[type[events.Event], Callable[[Block, Any], bool]] = {
    events.AgentStarted: lambda _block, _event: False,  # the block is made from it
    events.AgentFinished: Block.finish,
    events.ThoughtsChunk: lambda block, event: _thoughts(block, event.content, whole=False),
    events.Thoughts: lambda block, event: _thoughts(block, event.content, whole=True),
    events.ResponseChunk: lambda block, event: block.stream("answer", event.content),
    events.Response: lambda block, event: block.settle("answer", event.content),
    events.ToolCallStarted: Block.add_call,
    events.ToolOutput: Block.end_call,
    events.CodeExecutionOutputChunk: Block.add_output,
    events.CodeExecutionOutput: Block.end_cell,
    events.ApprovalRequest: Block.ask,
    events.ApprovalAnswered: Block.answer,
    events.UsageUpdated: Block.count,
    events.ModelProgress: lambda _block, _event: False,
    events.KernelLost: lambda block, event: block.note(f"the kernel was lost: {event.reason}"),
    events.Notice: lambda block, event: block.note(event.content),
    events.AgentMessage: lambda block, event: block.note(
        f"{event.kind} to {event.recipient_id}: {event.content}".rstrip(": ")
    ),
    events.Cancelled: lambda block, _event: block.note("cancelled"),
}
"""What each type of event changes; the functions tell whether the body changes."""
