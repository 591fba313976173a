"""`ROWS`: the wording of each type of event for people. Front ends choose only colours, widths and markup.

A row is a title that follows the agent's name, and parts below it. All text in it is safe to show: escape sequences and
control characters are gone, except for the colours of a cell's output.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from freeact_sub import events as ev
from freeact_sub.activity import LABEL_CHARS
from freeact_sub.calls import CodeAction, McpCall, ToolCall
from freeact_sub.cells import CellError, StreamText
from freeact_sub.show.agent_story import AgentStory
from freeact_sub.show.steps import PLAN_TOOL
from freeact_sub.show.undrawn import HeldOutput, UndrawnOutput
from freeact_sub.show.wording import (
    MESSAGES,
    asked_text,
    asked_title,
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
    tool_words,
)
from freeact_sub.text import arguments_text, clean, one_line, visible

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


@dataclass(frozen=True, kw_only=True)
class Row:
    """The rows that people read for an event."""

    title: str
    """Follows the agent's name."""
    detail: str = ""
    """Follows the title."""
    parts: tuple[Part, ...] = ()
    tone: Tone = ""
    goes_on: bool = False
    """The title can be left out if the previous row had the same agent and title."""
    passing: bool = False
    """The row describes a momentary state; front ends that redraw take it from `Activity` and omit this row."""

    @property
    def text(self) -> str:
        """The whole row as text."""
        return ": ".join(filter(None, [self.title, self.detail, *(part.text for part in self.parts)]))


Rows: TypeAlias = Iterable[Row]


def rows(view: AgentStory, event: ev.AgentEvent) -> Rows:
    """The rows of an event. Args: view: its agent, which has observed the event."""
    row_of: Callable[[AgentStory, Any], Rows] = ROWS[type(event)]
    return row_of(view, event)


def words_of(event: ev.AgentEvent) -> str:
    """An event that needs no other in one sentence; empty if it has none."""
    view = AgentStory(agent_id=event.agent_id, parent_id=event.parent_id, depth=event.depth)
    return "; ".join(row.text for row in rows(view, event) if not row.passing)


def call_part(call: Any) -> Part:
    """A call as a person judges it, in full."""
    match call:
        case CodeAction():
            return Part(form="code", text=call.text)
        case McpCall() | ToolCall():
            return _arguments(call.args)
        case _:
            return Part(text=call.text)


def _started(view: AgentStory, event: ev.AgentStarted) -> Rows:
    by = f"is started by {view.called(event.parent_id)}" if event.parent_id else "starts"
    wait = " and waits for a free place" if event.queued else ""
    yield Row(title=f"{by}{wait}", parts=(Part(text=visible(event.prompt), tone="prompt"),))


def _finished(view: AgentStory, event: ev.AgentFinished) -> Rows:
    yield from _rest_of_output(view)
    parts = []
    if event.output and event.output != view.answer:
        parts.append(Part(form="markdown", text=clean(event.output), name="answer"))
    if event.error:
        parts.append(Part(text=clean(event.error), tone="bad", name="error"))
    parts += [Part(text=clean(doubt), tone="warning" if view.parent_id else "quiet") for doubt in event.doubts]
    parts += [Part(text=clean(warning), tone="warning", name="warning") for warning in event.warnings]
    parts += [Part(text=note, tone="quiet", brief=True) for note in ending_notes(event)]
    tone: Tone = "success" if event.status == "completed" else "failure"
    yield Row(title=f"ended ({event.status.replace('_', ' ')})", parts=tuple(parts), tone=tone)


def _thoughts(view: AgentStory, event: ev.Thoughts) -> Rows:
    """Thoughts of a child are for readers of the stream."""
    if view.parent_id is None and event.content.strip():
        yield Row(title="thinks", parts=(Part(text=clean(event.content).strip(), tone="thought"),), tone="quiet")


def _response(_view: AgentStory, event: ev.Response) -> Rows:
    if event.content.strip():
        yield Row(title="says", parts=(Part(form="markdown", text=clean(event.content).strip()),))


def _tool_call(_view: AgentStory, event: ev.ToolCallStarted) -> Rows:
    if event.tool_name == PLAN_TOOL:
        return  # its plan follows
    yield Row(title=called(event, does=True), parts=(_arguments(event.args),) if event.args else ())


def _tool_output(view: AgentStory, event: ev.ToolOutput) -> Rows:
    if view.has_shown_result(event):
        return
    done = event.outcome == "success"
    title = f"gets the result of {called(event)}{'' if done else f' ({event.outcome})'}"
    part = Part(text=folded(view.without_answer(event)), tone="quiet")
    yield Row(title=title, parts=(part,), tone="" if done else "bad")


def called(event: ev.ToolCallStarted | ev.ToolOutput, *, does: bool = False) -> str:
    """What is called, with its label. Args: does: in words that follow the agent's name."""
    words = tool_words(event.tool_name, does=does)
    return f"{words}: {one_line(event.label, LABEL_CHARS)}" if event.label else words


def _output(view: AgentStory, event: ev.CodeExecutionOutputChunk) -> Rows:
    undrawn, output = view.outputs[event.tool_call_id], event.output
    if isinstance(output, CellError):
        yield from _rest_of_cell(undrawn)
        yield Row(title="error in the cell", parts=(Part(form="output", text=error_text(output).strip("\n")),), tone="bad")
        return
    for settled in undrawn.settled(output):
        yield from _settled(undrawn, settled)


def _settled(undrawn: UndrawnOutput, output: HeldOutput) -> Rows:
    if isinstance(output, StreamText):
        yield from _lines(undrawn.lines.add(output.text))
        return
    yield from _lines(undrawn.lines.flush())
    part = Part(form="bundle", text=display_text(output.data).strip("\n"), data=output.data)
    yield Row(title="output", parts=(part,), goes_on=True)


def _cell_end(view: AgentStory, event: ev.CodeExecutionOutput) -> Rows:
    yield from _rest_of_cell(view.outputs.pop(event.tool_call_id, UndrawnOutput()))
    notes = (Part(text=note, tone="warning", brief=True) for note in [*picture_notes(event), *cell_notes(event)])
    yield Row(
        title=f"cell {event.status.replace('_', ' ')}",
        detail=f"{event.seconds:.1f} s",
        parts=tuple(notes),
        tone="quiet" if event.status == "ok" else "bad",
    )


def _request(view: AgentStory, event: ev.ApprovalRequest) -> Rows:
    """Omits a call that its tool call has shown already."""
    parts = () if view.has_shown(event) else (call_part(event.call),)
    yield Row(title=event.call.question, parts=parts, tone="question", passing=not parts)


def _decided(view: AgentStory, event: ev.ApprovalDecided) -> Rows:
    parts = () if event.code is None else (Part(form="code", text=visible(event.code)),)
    title = decided(event, view.asked(event.request_id))
    yield Row(title=title, parts=parts, tone="good" if event.allowed else "bad")


def _question(_view: AgentStory, event: ev.QuestionRequest) -> Rows:
    yield Row(title=asked_title(event), parts=(Part(text=asked_text(event)),), tone="question")


def _question_answered(_view: AgentStory, event: ev.QuestionAnswered) -> Rows:
    yield Row(title=given_answer(event), tone="good" if event.answered else "bad")


def _progress(view: AgentStory, event: ev.ModelProgress) -> Rows:
    if view.pause_begins and event.pause:
        yield Row(title=event.pause, passing=True)


def _skill(_view: AgentStory, event: ev.SkillLoaded) -> Rows:
    yield Row(title="loads the skill", detail=one_line(event.name), tone="quiet")


def _compacted(_view: AgentStory, event: ev.Compacted) -> Rows:
    notes = [f"old outputs that became notes: {event.outputs:,}"] if event.outputs else []
    parts = [Part(text=note, tone="quiet", brief=True) for note in notes]
    if event.summary:
        parts.append(Part(form="markdown", text=clean(event.summary), tone="quiet", name="summary"))
    tokens = f"{event.tokens_before:,} → {event.tokens_after:,} tokens"
    yield Row(title="makes room in its conversation", detail=tokens, parts=tuple(parts), tone="quiet")


def _kernel_lost(view: AgentStory, event: ev.KernelLost) -> Rows:
    yield from _rest_of_output(view)
    part = Part(text=clean(event.reason), tone="bad")
    yield Row(title="lost its kernel and all variables", parts=(part,), tone="failure")


def _cancelled(view: AgentStory, _event: ev.Cancelled) -> Rows:
    yield from _rest_of_output(view)
    yield Row(title="is cancelled", tone="warning")


def _notice(_view: AgentStory, event: ev.Notice) -> Rows:
    yield Row(title="notice", parts=(Part(text=clean(event.content), tone="warning"),), tone="warning")


def _message(view: AgentStory, event: ev.AgentMessage) -> Rows:
    title = f"{MESSAGES[event.kind]} {view.called(event.recipient_id)}"
    yield Row(title=title, parts=(Part(text=clean(event.content)),), tone="warning")


def _plan(_view: AgentStory, event: ev.PlanUpdated) -> Rows:
    yield Row(title="plan", detail=plan_title(event), parts=(Part(text="\n".join(plan_lines(event))),))


def _nothing(_view: AgentStory, _event: ev.Event) -> Rows:
    return ()


ROWS: Final[dict[type, Callable[[AgentStory, Any], Rows]]] = {
    ev.AgentStarted: _started,
    ev.AgentFinished: _finished,
    ev.ThoughtsChunk: _nothing,
    ev.Thoughts: _thoughts,
    ev.ResponseChunk: _nothing,
    ev.Response: _response,
    ev.ToolCallStarted: _tool_call,
    ev.ToolOutput: _tool_output,
    ev.ToolProgress: _nothing,
    ev.CodeExecutionOutputChunk: _output,
    ev.CodeExecutionOutput: _cell_end,
    ev.ApprovalRequest: _request,
    ev.ApprovalDecided: _decided,
    ev.QuestionRequest: _question,
    ev.QuestionAnswered: _question_answered,
    ev.UsageUpdated: _nothing,
    ev.ModelProgress: _progress,
    ev.Compacted: _compacted,
    ev.KernelLost: _kernel_lost,
    ev.Notice: _notice,
    ev.AgentMessage: _message,
    ev.PlanUpdated: _plan,
    ev.StrategyProgress: _nothing,
    ev.SkillLoaded: _skill,
    ev.Cancelled: _cancelled,
}
"""One row for each type of event."""


def _arguments(args: dict[str, Any]) -> Part:
    code = list(args) == ["code"] and isinstance(args["code"], str)
    return Part(form="code" if code else "arguments", text=arguments_text(args), data=args)


def _rest_of_output(view: AgentStory) -> Rows:
    while view.outputs:
        yield from _rest_of_cell(view.outputs.popitem()[1])


def _rest_of_cell(undrawn: UndrawnOutput) -> Rows:
    for output in undrawn.rest():
        yield from _settled(undrawn, output)
    yield from _lines(undrawn.lines.flush())


def _lines(lines: Iterable[str]) -> Rows:
    if whole := list(lines):
        yield Row(title="output", parts=(Part(form="output", text="\n".join(whole)),), goes_on=True)
