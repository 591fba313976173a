"""Translation of events into blocks, which happens nowhere else.

Front ends choose only colours, widths and markup. An event of a class that is not listed has its name and its text as words.

`UndrawnOutput` is the output of a running cell that is not drawn yet, for front ends that draw line below line. `MovedLines`
are lines of a cell that moves the cursor, as several progress bars do, with their colours.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from freeact_sub import events as ev
from freeact_sub.activity import LABEL_CHARS
from freeact_sub.calls import CodeAction, McpCall, ToolCall
from freeact_sub.cells import CellError, ClearOutput, DisplayData, ExecuteResult, StreamText, size_of, text_of
from freeact_sub.show import blocks as bl
from freeact_sub.show.heads import head_of_call
from freeact_sub.show.wording import (
    MESSAGES,
    asked_text,
    asked_title,
    call_progress_text,
    cell_notes,
    decided,
    display_text,
    ending_notes,
    error_text,
    folded,
    given_answer,
    picture_notes,
    plan_lines,
    plan_title,
    question_and_answer,
    tool_words,
)
from freeact_sub.text import CursorText, arguments_text, clean, colours_only, counted, label_of, one_line, visible

if TYPE_CHECKING:
    from freeact_sub.show.agent_story import AgentStory

Blocks: TypeAlias = Iterable[bl.StoryBlock]
HeldOutput: TypeAlias = StreamText | DisplayData | ExecuteResult
OPEN_LINES: Final = 50
"""Number of last lines that can still be changed."""
MAX_COLOUR_CHARS: Final = 100
"""Characters of the colours in force; colours that are never taken back are dropped."""
MOVES: Final = re.compile(r"\x08|\x1b\[(?:\d*[A-G]|\?25l)")
"""Sequences that move the cursor elsewhere than to the beginning of its line, or hide it before that."""
_UPWARDS: Final = re.compile(r"\x1b\[\d*[AF]")
_SHOWN, _HIDDEN = "\x1b[?25h", "\x1b[?25l"
_Row = list[tuple[str, str]]
"""Characters with the colours in which they were written."""

LINE_CHARS: Final = 8192
"""Characters of the pieces in which a line without an end is drawn, so that memory stays bounded."""

MAX_HELD: Final = 200
MAX_HELD_CHARS: Final = 200_000
"""Bounds on a cell's held-back output, in pieces and in characters; more is drawn although the cell may clear it."""
TAIL_CHARS: Final = 4000
"""Characters of held-back output that are drawn."""
MAX_COLOURS: Final = 16
"""Active colour sequences that continue in the next line; newer ones usually replace older ones."""

WIDGET: Final = "application/vnd.jupyter.widget-view+json"
_COLOUR: Final = re.compile(r"\x1b\[([0-9;]*)m")
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def blocks(view: "AgentStory", event: ev.AgentEvent) -> list[bl.StoryBlock]:
    """Return the blocks that an event adds. Args: view: its agent, which has observed the event."""
    made = _MADE.get(type(event)) or next(_MADE[kind] for kind in type(event).__mro__ if kind in _MADE)
    return [*made(view, event)]


def readable(view: "AgentStory", event: ev.AgentEvent) -> list[bl.StoryBlock]:
    """Return the blocks of an event that have words."""
    return [block for block in blocks(view, event) if block.title]


def call_part(call: Any) -> bl.Part:
    """Return a call in full, for a person's judgement."""
    match call:
        case CodeAction():
            return bl.Part(form="code", text=call.text)
        case McpCall() | ToolCall():
            return _arguments(call.args)
        case _:
            return bl.Part(text=call.text)


def _started(view: "AgentStory", event: ev.AgentStarted) -> Blocks:
    by = f"is started by {view.called(event.parent_id)}" if event.parent_id else "starts"
    wait = " and waits for a free place" if event.queued else ""
    yield bl.Prompt(of=event, title=f"{by}{wait}", parts=(bl.Part(text=visible(event.prompt), tone="prompt"),))


def _finished(view: "AgentStory", event: ev.AgentFinished) -> Blocks:
    yield from _rest_of_output(view)
    parts = []
    if event.output and event.output != view.answer:
        parts.append(bl.Part(form="markdown", text=clean(event.output), name="answer"))
    if event.error:
        parts.append(bl.Part(text=clean(event.error), tone="bad", name="error"))
    parts += [bl.Part(text=clean(doubt), tone="warning" if view.parent_id else "quiet") for doubt in event.doubts]
    parts += [bl.Part(text=clean(warning), tone="warning", name="warning") for warning in event.warnings]
    parts += [bl.Part(text=note, tone="quiet", brief=True) for note in ending_notes(event)]
    tone: bl.Tone = "success" if event.status == "completed" else "failure"
    yield bl.End(of=event, title=f"ended ({event.status.replace('_', ' ')})", parts=tuple(parts), tone=tone)


def _chunk(_view: "AgentStory", event: ev.ResponseChunk | ev.ThoughtsChunk) -> Blocks:
    yield bl.Growth(piece=event.content, kind="answer" if isinstance(event, ev.ResponseChunk) else "thoughts")


def _said(view: "AgentStory", event: ev.Response | ev.Thoughts) -> Blocks:
    content, is_thought = clean(event.content).strip(), isinstance(event, ev.Thoughts)
    if event.content.strip() and not is_thought:
        yield bl.Said(content=event.content, title="says", parts=(bl.Part(form="markdown", text=content),))
    elif event.content.strip():
        title = "thinks" if view.parent_id is None else ""
        parts = (bl.Part(text=content, tone="thought"),)
        yield bl.Said(content=event.content, is_thought=True, title=title, parts=parts, tone="quiet")


def _tool_call(_view: "AgentStory", event: ev.ToolCallStarted) -> Blocks:
    title = "" if event.tool_name == bl.PLAN_TOOL else called(event, does=True)  # the plan says it
    yield bl.CallStep(
        title=title,
        parts=(_arguments(event.args),) if event.args and title else (),
        tool_name=event.tool_name,
        args=event.args,
        label=event.label,
        tool_call_id=event.tool_call_id,
        call_id=event.call_id,
    )


def _tool_output(view: "AgentStory", event: ev.ToolOutput) -> Blocks:
    if view.has_shown_result(event):
        yield bl.CallEnd(of=event)
        return
    done = event.outcome == "success"
    content = view.without_answer(event)
    yield bl.CallEnd(
        of=event,
        content=content,
        title=f"gets the result of {called(event)}{'' if done else f' ({event.outcome})'}",
        parts=(bl.Part(text=folded(content), tone="quiet"),),
        tone="" if done else "bad",
    )


def called(event: ev.ToolCallStarted | ev.ToolOutput, *, does: bool = False) -> str:
    """Return the name of the called tool, with its label. Args: does: in words that follow the agent's name."""
    words = tool_words(event.tool_name, does=does)
    return f"{words}: {label_of(event.label, LABEL_CHARS)}" if event.label else words


def _output(view: "AgentStory", event: ev.CodeExecutionOutputChunk) -> Blocks:
    output = event.output
    if view.kept.keeps:  # it draws the state of its outputs
        return [bl.Output(output=output, tool_call_id=event.tool_call_id)]
    undrawn = view.outputs[event.tool_call_id]
    if isinstance(output, CellError):
        found = [*_rest_of_cell(undrawn), _lines([error_text(output).strip("\n")], title="error in the cell", tone="bad")]
    else:
        found = [block for settled in undrawn.settled(output) for block in _settled(undrawn, settled)]
    for block in (found := found or [bl.Output()]):
        block.tool_call_id = event.tool_call_id
    found[0].output = output
    return found


def _settled(undrawn: "UndrawnOutput", output: HeldOutput) -> Iterator[bl.Output]:
    if isinstance(output, StreamText):
        yield from _as_output(undrawn.lines.add(output.text))
        return
    yield from _as_output(undrawn.lines.flush())
    part = bl.Part(form="bundle", text=display_text(output.data).strip("\n"), data=output.data)
    yield bl.Output(title="output", parts=(part,), goes_on=True)


def _cell_end(view: "AgentStory", event: ev.CodeExecutionOutput) -> Blocks:
    yield from _rest_of_cell(view.outputs.pop(event.tool_call_id, UndrawnOutput()), event.tool_call_id)
    notes = (bl.Part(text=note, tone="warning", brief=True) for note in [*picture_notes(event), *cell_notes(event)])
    yield bl.CellEnd(
        of=event,
        title=f"cell {event.status.replace('_', ' ')}",
        detail=f"{event.seconds:.1f} s",
        parts=tuple(notes),
        tone="quiet" if event.status == "ok" else "bad",
    )


def _request(view: "AgentStory", event: ev.ApprovalRequest) -> Blocks:
    """Make the block of a request; none for a call that is shown in full already."""
    approval = view.approvals.get(event.request_id) or bl.Approval(request=event)
    approval.title, approval.tone = event.call.question, "question"
    approval.parts = () if view.has_shown(event) else (call_part(event.call),)
    yield approval


def _decided(view: "AgentStory", event: ev.ApprovalDecided) -> Blocks:
    request = view.asked(event.request_id)
    reason = f": {one_line(event.reason, 200)}" if event.reason else ""
    yield bl.Decided(
        of=event,
        request=request,
        is_shown=request is not None and view.has_shown(request),
        title=decided(event, request),
        parts=() if event.code is None else (bl.Part(form="code", text=visible(event.code)),),
        tone="good" if event.allowed else "bad",
        line="" if event.allowed or request is None else f"was denied {head_of_call(request.call).text}{reason}",
    )


def _question_answered(_view: "AgentStory", event: ev.QuestionAnswered) -> Blocks:
    line = question_and_answer(event)
    tone: bl.Tone = "quiet" if event.answered else "bad"
    yield bl.Answered(of=event, title=given_answer(event), tone=tone, line=line, sentence=f"The agent asked: {line}")


def _progress(view: "AgentStory", event: ev.ModelProgress) -> Blocks:
    if view.pause_begins and event.pause:
        yield bl.StoryBlock(title=event.pause, passing=True)


def _compacted(_view: "AgentStory", event: ev.Compacted) -> Blocks:
    went = [f"{counted(event.prompts, 'prompt')} and {counted(event.turns, 'turn')}, now a summary"] if event.summary else []
    went += [f"{counted(event.outputs, 'old output')}, now in files"] if event.outputs else []
    newest = "the last turn" if event.kept_turns == 1 else f"the last {counted(event.kept_turns, 'turn')}"
    kept = f"the first prompt, {newest}, " if event.summary else ""
    parts = [
        bl.Part(text=f"left out: {'; '.join(went)}", tone="quiet"),
        bl.Part(text=f"stays: {kept}all variables", tone="quiet"),
    ]
    if event.summary:
        summary = clean(event.summary)
        parts.append(bl.Part(form="markdown", text=summary, tone="quiet", name="summary", folds=True))
    yield bl.StoryBlock(
        title="makes room in its conversation",
        detail=f"{event.tokens_before:,} → {event.tokens_after:,} tokens",
        parts=tuple(parts),
        tone="quiet",
        sentence=f"The conversation was shortened, from {event.tokens_before:,} to {event.tokens_after:,} tokens.",
    )


def _kernel_lost(view: "AgentStory", event: ev.KernelLost) -> Blocks:
    yield from _rest_of_output(view)
    yield bl.StoryBlock(
        title="lost its kernel and all variables",
        parts=(bl.Part(text=clean(event.reason), tone="bad"),),
        tone="failure",
        line=f"the kernel was lost, with all its variables: {clean(event.reason)}",
        sentence=f"The kernel was lost: {visible(event.reason)}",
    )


def _cancelled(view: "AgentStory", _event: ev.Cancelled) -> Blocks:
    yield from _rest_of_output(view)
    yield bl.StoryBlock(title="is cancelled", tone="warning", is_repeated=True)


def _notice(_view: "AgentStory", event: ev.Notice) -> Blocks:
    said = clean(event.content)
    sentence = f"Notice: {visible(event.content)}"
    parts = (bl.Part(text=said, tone="warning"),)
    yield bl.StoryBlock(title="notice", parts=parts, tone="warning", line=said, sentence=sentence)


def _message(view: "AgentStory", event: ev.AgentMessage) -> Blocks:
    title, said = f"{MESSAGES[event.kind]} {view.called(event.recipient_id)}", clean(event.content)
    line = f"{MESSAGES[event.kind]} {view.named(event.recipient_id)}: {said}"
    is_told = event.kind == "status" and event.success is not None  # the end of its agent, which is told by itself
    yield bl.StoryBlock(
        title=title,
        parts=(bl.Part(text=said),),
        tone="warning",
        line="" if is_told else line,
        short="" if is_told else one_line(line, 300),
        sentence=f"{title}: {visible(event.content)}",
        is_repeated=is_told,
    )


def _plan(_view: "AgentStory", event: ev.PlanUpdated) -> Blocks:
    yield bl.Plan(plan=event, title="plan", detail=plan_title(event), parts=(bl.Part(text="\n".join(plan_lines(event))),))


def _strategy(_view: "AgentStory", event: ev.StrategyProgress) -> Blocks:
    nodes = {} if event.node is None else {event.node.node_id: event.node}
    yield bl.StrategySteps(
        strategy_id=event.strategy_id, name=event.strategy, steps=event.step, done=event.done, nodes=nodes, best=event.best
    )


def _unlisted(_view: "AgentStory", event: ev.AgentEvent) -> Blocks:
    own = {field.name: getattr(event, field.name) for field in fields(event) if field.name not in _HEADER}
    said = clean(str(getattr(event, "text", "") or arguments_text(own)))
    parts, title = (bl.Part(text=said),) if said else (), _WORD.sub(" ", type(event).__name__).lower()
    line = "" if event.momentary else ": ".join(filter(None, [title, said]))
    yield bl.StoryBlock(title=title, parts=parts, tone="warning", line=line, sentence=line, passing=event.momentary)


def _arguments(args: dict[str, Any]) -> bl.Part:
    code = list(args) == ["code"] and isinstance(args["code"], str)
    return bl.Part(form="code" if code else "arguments", text=arguments_text(args), data=args)


def _rest_of_output(view: "AgentStory") -> Blocks:
    while view.outputs:
        call_id, undrawn = view.outputs.popitem()
        yield from _rest_of_cell(undrawn, call_id)


def _rest_of_cell(undrawn: "UndrawnOutput", call_id: str | None = None) -> Iterator[bl.Output]:
    rest = [block for output in undrawn.rest() for block in _settled(undrawn, output)]
    for block in [*rest, *_as_output(undrawn.lines.flush())]:
        block.tool_call_id = call_id
        yield block


def _as_output(lines: Iterable[str]) -> Iterator[bl.Output]:
    if whole := list(lines):
        yield _lines(whole, title="output", goes_on=True)


def _lines(lines: list[str], **words: Any) -> bl.Output:
    return bl.Output(parts=(bl.Part(form="output", text="\n".join(lines)),), **words)


_HEADER: Final = {field.name for field in fields(ev.AgentEvent)} | {"type"}
_MADE: Final[dict[type, Callable[["AgentStory", Any], Blocks]]] = {
    ev.AgentEvent: _unlisted,
    ev.AgentStarted: _started,
    ev.AgentFinished: _finished,
    ev.ThoughtsChunk: _chunk,
    ev.Thoughts: _said,
    ev.ResponseChunk: _chunk,
    ev.Response: _said,
    ev.ToolCallStarted: _tool_call,
    ev.ToolOutput: _tool_output,
    ev.ToolProgress: lambda _, event: [bl.Growth(piece=call_progress_text(event), kind="call", call_id=event.call_id)],
    ev.CodeExecutionOutputChunk: _output,
    ev.CodeExecutionOutput: _cell_end,
    ev.ApprovalRequest: _request,
    ev.ApprovalDecided: _decided,
    ev.QuestionRequest: lambda _, event: [
        bl.QuestionAsked(of=event, title=asked_title(event), parts=(bl.Part(text=asked_text(event)),), tone="question")
    ],
    ev.QuestionAnswered: _question_answered,
    ev.UsageUpdated: lambda _, event: [bl.Spent(of=event)],
    ev.ModelProgress: _progress,
    ev.Compacted: _compacted,
    ev.KernelLost: _kernel_lost,
    ev.Notice: _notice,
    ev.AgentMessage: _message,
    ev.PlanUpdated: _plan,
    ev.StrategyProgress: _strategy,
    ev.SkillLoaded: lambda _, event: [bl.StoryBlock(title="loads the skill", detail=one_line(event.name), tone="quiet")],
    ev.Cancelled: _cancelled,
}
"""Makers of blocks by class of event or nearest ancestor. Each gets the event's agent, which has observed it."""


class LineBuffer:
    """Cutter of a stream of pieces into whole lines; each sets the colours that continue from the one before it."""

    def __init__(self) -> None:
        self._rest = ""
        self._colours = ""
        self._moved: MovedLines | None = None
        """Lines in which the cell has moved the cursor, such as several progress bars; `_rest` is what follows them."""

    def add(self, piece: str) -> Iterator[str]:
        """Accept a piece, and yield the lines that it ends."""
        if self._moved is None and MOVES.search(self._rest + piece):
            self._moved = MovedLines(self._colours)
        if self._moved is not None:
            text, self._rest = self._rest + piece, ""
            yield from self._moved.write(text)
            if not self._moved.is_open:
                self._colours, self._moved = self._moved.colours, None
            return
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
        """Return the lines that may still change, such as a progress bar that is moving."""
        return clean(self._rest) if self._moved is None else clean("\n".join(self._moved.lines))

    def flush(self) -> Iterator[str]:
        """Yield the unfinished lines, if there are any; later text starts without colour."""
        if self._moved is not None:
            yield from self._moved.lines
            self._moved = None
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


def is_empty_widget(output: DisplayData) -> bool:
    """Return whether an output is a widget for a bar of `rich`, whose text comes as outputs."""
    return WIDGET in output.data and output.data.get("text/plain") == "Output()"


class UndrawnOutput:
    """The undrawn output of a running cell: an unfinished line, and parts that the cell may clear or replace.

    A cell that has cleared its output, or has replaced a display, is likely to do so again. Where nothing that is drawn can
    be taken back, only its last state is drawn, when the cell ends.
    """

    def __init__(self) -> None:
        self.lines = LineBuffer()
        self._held: list[HeldOutput] = []
        self._held_chars = 0
        self._clears = False

    def settled(self, output: HeldOutput | ClearOutput) -> list[HeldOutput]:
        """Take an output of the cell, and return the outputs that can be drawn."""
        if isinstance(output, ClearOutput):
            self.lines, self._clears = LineBuffer(), True
            self.rest()
            return []
        if isinstance(output, DisplayData) and is_empty_widget(output):
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
        """Release and return the held-back output."""
        held, self._held, self._held_chars = self._held, [], 0
        return held

    @property
    def text(self) -> str:
        """The end of the output, for a place that is drawn again and again."""
        texts = [text_of(output) for output in self._held]
        return clean("".join(texts)[-TAIL_CHARS:]) + self.lines.rest()


class MovedLines(CursorText[_Row]):
    """The last lines of a screen without an edge at its right.

    A cell that has moved the cursor into a line above is likely to do so again: its lines are given away when there are more
    than `OPEN_LINES`, or when it shows the cursor that it has hidden.
    """

    def __init__(self, colours: str) -> None:
        """Args: colours: in force at the beginning."""
        super().__init__([("", " ")], LINE_CHARS - 1)
        self.colours = colours
        self.is_open = True
        """Whether the cursor may move; False: it begins an empty line, and nothing tells that it will."""
        self._goes_up = False

    @property
    def lines(self) -> list[str]:
        """The lines that can still change, but for an empty last one."""
        rows = self._lines if self._lines[-1] else self._lines[:-1]
        return [_drawn(row) for row in rows]

    def write(self, text: str) -> Iterator[str]:
        """Write as a program does, at the cursor. Yield the settled lines."""
        self._write(text)
        yield from self._settled()  # not before: the end of the text may tell that its lines will be changed
        self.is_open = self._goes_up or bool(self._lines[-1] or self._unfinished)

    def _settled(self) -> Iterator[str]:
        count = len(self._lines) - (OPEN_LINES if self._goes_up else 1)
        if count > 0:
            yield from map(_drawn, self._lines[:count])
            del self._lines[:count]
            self._row = max(0, self._row - count)

    def _line(self, text: str) -> _Row:
        return [(self.colours, char) for char in text]

    def _put(self, text: str) -> None:
        while text:
            room = LINE_CHARS - self._column
            if room <= 0:
                self._next_row()
                continue
            super()._put(text[:room])
            text = text[room:]

    def _obey(self, key: str) -> None:
        if key in (_HIDDEN, _SHOWN):
            self._goes_up = key == _HIDDEN
        elif (colour := _COLOUR.fullmatch(key)) is not None:
            ends = colour[1].partition(";")[0] in ("", "0")
            added = "" if colour[1] in ("", "0") else key
            self.colours = added if ends or len(self.colours) > MAX_COLOUR_CHARS else self.colours + added
        else:
            self._goes_up = self._goes_up or _UPWARDS.fullmatch(key) is not None
            super()._obey(key)


def _drawn(row: _Row) -> str:
    """Return a line that sets its own colours, and takes them back at its end."""
    parts, last = [], ""
    for colours, char in row:
        if colours != last:
            parts.append(f"\x1b[0m{colours}" if last else colours)
            last = colours
        parts.append(char)
    return colours_only("".join(parts) + ("\x1b[0m" if last else "")).rstrip()
