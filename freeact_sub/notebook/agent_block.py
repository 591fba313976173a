"""`AgentBlock`: the state that a notebook shows for one agent, made from its events; `render.py` draws it.

`show/` says what an agent does now and what people read of an event. A block groups the events of one call into a step and
turns every other row into a note. Everything in it is bounded: an agent may run for hours, and each step redraws its block.
"""

from dataclasses import dataclass, field
from typing import Any

from freeact_sub import events
from freeact_sub.cells import CellError, ClearOutput, DisplayData, ExecuteResult, StreamText
from freeact_sub.show.agent_story import AgentStory
from freeact_sub.show.rows import rows
from freeact_sub.show.safe_html import TEXT_CHARS, bounded
from freeact_sub.show.steps import shows
from freeact_sub.show.wording import cell_notes

WAITING = "waiting for your answer"
INTERRUPTED = "interrupted"
CODE_TOOL, SPAWN_TOOL = "execute_ipython_cell", "task"

FIRST_STEPS, LAST_STEPS = 10, 60
"""An agent with more steps shows the first and the last ones, and counts those between."""

ANSWER_CHARS = 60_000
"""A longer answer shows its head and its tail."""

OUTPUTS_PER_CALL = 40
"""A call with more outputs (texts, pictures, tables) shows the last ones."""

QUESTIONS_PER_CALL = 30
"""A cell with more questions shows the last ones."""

DISPLAY_CHARS = 6_000_000
"""A block whose pictures and tables exceed this sum leaves out the oldest."""


@dataclass
class GrowingText:
    """A text that grows; a long one keeps its head and its tail."""

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
        if len(self.tail) > 2 * half:  # cutting seldom makes many small pieces cheap
            self.left_out += len(self.tail) - half
            self.tail = self.tail[-half:]

    def __str__(self) -> str:
        between = f"\n… {self.left_out:,} characters left out …\n" if self.left_out else ""
        return f"{self.head}{between}{self.tail}"


@dataclass
class CallStep:
    """A tool call: its arguments, outputs and outcome."""

    name: str
    args: dict[str, Any]
    label: str = ""
    """Its name for people."""
    outputs: list[GrowingText | DisplayData | ExecuteResult | CellError] = field(default_factory=list)
    settled: int = 0
    """Number of outputs in the body; text after them may still grow, in the foot."""
    left_out: int = 0
    questions: "dict[str, CallQuestion]" = field(default_factory=dict)
    """The approval requests of this call, by id."""
    notes: list[str] = field(default_factory=list)
    result: str = ""
    outcome: str = ""
    """That of `ToolOutput`; empty while the call runs."""
    running: bool = True

    @property
    def code(self) -> str | None:
        """The cell's code; None for other tools."""
        code = self.args.get("code") if self.name == CODE_TOOL else None
        return code if isinstance(code, str) else None

    def add(self, output: StreamText | DisplayData | ExecuteResult | CellError) -> bool:
        """Adds output of the running cell. Returns True if the body changes."""
        if isinstance(output, StreamText):
            kind = "stderr" if output.name == "stderr" else "text"
            last = self.outputs[-1] if len(self.outputs) > self.settled else None
            if not isinstance(last, GrowingText) or last.kind != kind:
                self.outputs.append(last := GrowingText(kind))
            last.add(output.text)
            if len(self.outputs) <= OUTPUTS_PER_CALL:
                return False
        else:
            self.outputs.append(output)
        self._settle()
        return True

    def clear(self) -> bool:
        """Takes back all output. Returns True, because the body changes."""
        self.outputs.clear()
        self.settled = self.left_out = 0
        return True

    def update(self, newer: DisplayData) -> bool:
        """Replaces the display of the same id. Returns False if there is none."""
        for index, shown in enumerate(self.outputs):
            if isinstance(shown, DisplayData) and shown.display_id == newer.display_id:
                self.outputs[index] = newer
                return True
        return False

    def end(self) -> None:
        """Ends the call: no more output will come."""
        self.running = False
        self._settle()

    def _settle(self) -> None:
        surplus = len(self.outputs) - OUTPUTS_PER_CALL
        if surplus > 0:
            self.left_out += surplus
            del self.outputs[:surplus]
        self.settled = len(self.outputs)


@dataclass
class CallQuestion:
    """An approval request that a call has made."""

    asked: str
    """The inner action that needs approval. Empty: the call itself does."""
    answer: events.ApprovalAnswered | None = None

    @property
    def status(self) -> str:
        """The answer in words; `WAITING` while there is none."""
        if self.answer is None:
            return WAITING
        reason = f": {self.answer.reason}" if self.answer.reason else ""
        return f"{'approved' if self.answer.allowed else 'denied'}{reason}"


@dataclass
class Note:
    """A remark on the run: a lost kernel, a cancel, an error."""

    text: str
    kind: str = "warning"


Step = GrowingText | CallStep | Note


class AgentBlock:
    """The steps, status and answer of one agent."""

    def __init__(self, started: events.AgentStarted) -> None:
        self.view = AgentStory.of(started)
        self.view.observe(started)
        self.depth = started.depth
        self.label = started.description or started.prompt
        self.prompt = started.prompt
        self.finished: events.AgentFinished | None = None
        self.steps: list[Step] = []
        self.left_out_steps = 0
        self.streaming: GrowingText | None = None
        """The model's text while it streams."""
        self._calls: dict[tuple[str | None, str], CallStep] = {}
        """By `tool_call_id` and `call_id`."""

    @property
    def running_calls(self) -> list[CallStep]:
        """The calls that have not ended."""
        return [call for call in self._calls.values() if call.running]

    @property
    def shown_status(self) -> str:
        """The status in a person's words."""
        return WAITING if self.view.questions else self.view.status.replace("_", " ")

    def apply(self, event: events.Event) -> bool:
        """Applies an event of this agent. Returns True if the body changes, False if only the foot does."""
        self.view.observe(event)
        if isinstance(event, events.ThoughtsChunk | events.Thoughts | events.ResponseChunk | events.Response):
            changed = self._add_text(event)
        else:
            changed = self._add_step(event)
        self._drop_steps()
        return changed

    def _add_text(self, event: events.ThoughtsChunk | events.Thoughts | events.ResponseChunk | events.Response) -> bool:
        answers = isinstance(event, events.ResponseChunk | events.Response)
        if self.depth > 0 and not answers:
            return False  # thoughts of a child are for readers of the stream
        kind = "answer" if answers else "thoughts"
        if isinstance(event, events.Thoughts | events.Response):
            self._settle(kind, event.content)
            return True
        if self.streaming is None or self.streaming.kind != kind:
            self.streaming = GrowingText(kind, limit=ANSWER_CHARS)
        self.streaming.add(event.content)
        return False

    def _add_step(self, event: events.Event) -> bool:
        match event:
            case events.AgentStarted():
                return self._go_on(event)
            case events.ToolCallStarted():
                self.streaming = None
                call = CallStep(name=event.tool_name, args=event.args, label=event.label)
                self._add_call((event.tool_call_id, event.call_id), call)
            case events.CodeExecutionOutputChunk():
                return self._add_output(event)
            case events.CodeExecutionOutput():
                self._end_cell(event)
            case events.ToolOutput():
                self._end_call(event)
            case events.ApprovalRequest():
                self._ask(event)
            case events.ApprovalAnswered():
                self._answer(event)
            case events.AgentFinished():
                self._finish(event)
            case _:
                notes = [Note(row.text) for row in rows(self.view, event) if not row.passing]
                self.steps += notes
                return bool(notes)
        return True

    def _go_on(self, event: events.AgentStarted) -> bool:
        """The block is made from the first of them; another one comes where the agent is asked on."""
        if self.finished is None:
            return False
        self.finished = None
        self.steps.append(Note(f"asked on: {event.prompt}"))
        return True

    def cut_off(self) -> None:
        """Its run will never end: the program was ended before it."""
        if self.finished is None:
            self.view.status = INTERRUPTED
            for call in self._calls.values():
                call.end()

    def _call(self, tool_call_id: str | None, call_id: str = "") -> CallStep:
        """The tool call that an event belongs to."""
        key = tool_call_id, call_id
        if key not in self._calls:
            self._add_call(key, CallStep(name="", args={}))
        return self._calls[key]

    def _settle(self, kind: str, content: str) -> None:
        """Replaces the pieces of a text by the whole text."""
        self.streaming = None
        if content.strip():
            text = GrowingText(kind, limit=ANSWER_CHARS)
            text.add(content)
            self.steps.append(text)

    def _add_output(self, event: events.CodeExecutionOutputChunk) -> bool:
        """Adds output of a running cell, or replaces what an earlier cell displayed."""
        output = event.output
        if isinstance(output, DisplayData) and output.update:
            changed = any(call.update(output) for call in self._calls.values())
        else:
            call = self._call(event.tool_call_id)
            changed = call.clear() if isinstance(output, ClearOutput) else call.add(output)
        if not isinstance(output, StreamText):
            self._drop_displays()
        return changed

    def _end_cell(self, event: events.CodeExecutionOutput) -> None:
        """Ends a cell; adds output that came without a chunk."""
        call = self._call(event.tool_call_id)
        shown = [output.data for output in call.outputs if isinstance(output, DisplayData | ExecuteResult)]
        if not call.outputs and not event.displays and event.text:
            call.add(StreamText(name="stdout", text=event.text))
        for data in event.displays:
            if data not in shown:
                call.add(DisplayData(data=data))
        if event.status not in ("ok", "error"):
            call.notes.append(f"the cell ended: {event.status.replace('_', ' ')}")
        call.notes += cell_notes(event)
        call.end()
        self._drop_displays()

    def _end_call(self, event: events.ToolOutput) -> None:
        """Ends a call; adds its result unless the output of its cell shows it already."""
        call = self._call(event.tool_call_id, event.call_id)
        call.name = call.name or event.tool_name
        cell_ran = call.code is not None and not call.running
        call.outcome = event.outcome
        was_asked = any(question.answer for question in call.questions.values() if not question.asked)
        if not cell_ran and not (event.outcome == "denied" and was_asked):  # else it stands there already
            call.result = bounded(event.content)
        call.end()

    def _ask(self, event: events.ApprovalRequest) -> None:
        call = self._call(event.tool_call_id)
        asked = "" if shows(call.name, call.args, event.call) else event.call.summary
        call.questions[event.request_id] = CallQuestion(asked)
        for answered in [key for key, question in call.questions.items() if question.answer][:-QUESTIONS_PER_CALL]:
            del call.questions[answered]

    def _answer(self, event: events.ApprovalAnswered) -> None:
        for call in self._calls.values():
            if event.request_id in call.questions:
                call.questions[event.request_id].answer = event

    def _finish(self, event: events.AgentFinished) -> None:
        if self.streaming is not None:
            self._settle(self.streaming.kind, str(self.streaming))
        for call in self._calls.values():
            call.end()
        if event.error:
            self.steps.append(Note(event.error, kind="error"))
        self.steps += [Note(warning) for warning in event.warnings]
        if event.output and not any(isinstance(step, GrowingText) and str(step) == event.output for step in self.steps):
            self._settle("answer", event.output)
        self.finished = event

    def _add_call(self, key: tuple[str | None, str], call: CallStep) -> None:
        self._calls[key] = call
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
