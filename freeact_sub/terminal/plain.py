"""`PlainLines`: events as lines of plain text, for pipes, logs and CI.

A second table from event type to text. No colours and no widths: each line begins with the agent's id, so the lines of
agents that work at the same time can be told apart by `grep`. An event's first line says what it is; if its text has
more lines, those follow with a bar.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from freeact_sub.cells import CellError, StreamText
from freeact_sub.events import (
    AgentFinished,
    AgentMessage,
    AgentStarted,
    ApprovalAnswered,
    ApprovalRequest,
    Cancelled,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    Event,
    KernelLost,
    ModelProgress,
    Notice,
    Response,
    ResponseChunk,
    Thoughts,
    ThoughtsChunk,
    ToolCallStarted,
    ToolOutput,
    UsageUpdated,
)
from freeact_sub.terminal.texts import (
    MESSAGES,
    answer,
    arguments_text,
    call_text,
    cell_notes,
    display_text,
    error_text,
    first_lines,
    question,
)
from freeact_sub.terminal.views import AgentView, Views
from freeact_sub.text import clean, files_text, one_line, visible


class PlainLines:
    """Writes the events of a run as lines, one after the other."""

    def __init__(self, views: Views) -> None:
        """Args: views: observes each event before it is written here."""
        self._views = views

    def write(self, event: Event) -> str:
        """The event's lines, each with its end; empty for one that is not shown."""
        view = self._views.of(event)
        lines = (line for title, text in ROWS[type(event)](self._views, view, event) for line in _lines(title, text))
        return "".join(f"{view.agent_id} {line}".rstrip() + "\n" for line in lines)


def _lines(title: str, text: str) -> Iterable[str]:
    first, *more = text.strip("\n").split("\n")
    yield f"{title}: {first}" if first else title
    for line in more:
        yield f"| {line}"


Texts = Iterable[tuple[str, str]]
"""Titles, and the text that belongs to each."""


def _started(_views: Views, view: AgentView, event: AgentStarted) -> Texts:
    label = f" ({view.label})" if view.label else ""
    parent = f" by {one_line(view.parent_id)}" if view.parent_id else ""
    queued = ", waits for a free place" if event.queued else ""
    yield f"started{parent}{label}{queued}", visible(event.prompt)


def _finished(_views: Views, view: AgentView, event: AgentFinished) -> Texts:
    yield from _rest_of_output(view)
    if event.output and event.output != view.answer:
        yield "answer", clean(event.output)
    if event.error:
        yield "error", clean(event.error)
    total = f" (with its children: {event.tree_usage})" if event.tree_usage != event.usage else ""
    files = f"; {written}" if (written := files_text(event.files_written)) else ""
    yield f"ended ({event.status.replace('_', ' ')})", f"{event.usage}, {event.seconds:.1f} s{total}{files}"


def _thoughts(_views: Views, view: AgentView, event: Thoughts) -> Texts:
    if view.parent_id is None and event.content.strip():
        yield "thinks", clean(event.content).strip()


def _response(_views: Views, _view: AgentView, event: Response) -> Texts:
    if event.content.strip():
        yield "says", clean(event.content).strip()


def _tool_call(_views: Views, _view: AgentView, event: ToolCallStarted) -> Texts:
    yield f"calls {one_line(event.tool_name)}", arguments_text(event.args)


def _tool_output(views: Views, view: AgentView, event: ToolOutput) -> Texts:
    if view.has_shown_result(event):
        return
    outcome = "" if event.outcome == "success" else f" ({event.outcome})"
    yield f"result of {one_line(event.tool_name)}{outcome}", first_lines(views.without_answer(event))


def _output(_views: Views, view: AgentView, event: CodeExecutionOutputChunk) -> Texts:
    output = event.output
    if isinstance(output, StreamText):
        for line in view.output.add(output.text):
            yield "output", line.plain
        return
    yield from _rest_of_output(view)
    if isinstance(output, CellError):
        yield "error in the cell", clean(error_text(output))
    else:
        yield "output", clean(display_text(output.data))


def _cell_end(_views: Views, view: AgentView, event: CodeExecutionOutput) -> Texts:
    yield from _rest_of_output(view)
    yield f"cell {event.status.replace('_', ' ')}", ", ".join([f"{event.seconds:.1f} s", *cell_notes(event)])


def _request(_views: Views, view: AgentView, event: ApprovalRequest) -> Texts:
    yield question(event.call), "" if view.has_shown(event) else call_text(event.call)


def _answered(views: Views, _view: AgentView, event: ApprovalAnswered) -> Texts:
    yield answer(event, views.requests.get(event.request_id)), ""


def _kernel_lost(_views: Views, view: AgentView, event: KernelLost) -> Texts:
    yield from _rest_of_output(view)
    yield "lost its kernel and all variables", clean(event.reason)


def _cancelled(_views: Views, view: AgentView, _event: Cancelled) -> Texts:
    yield from _rest_of_output(view)
    yield "is cancelled", ""


def _notice(_views: Views, _view: AgentView, event: Notice) -> Texts:
    yield "notice", clean(event.content)


def _message(_views: Views, _view: AgentView, event: AgentMessage) -> Texts:
    yield f"{MESSAGES[event.kind]} {event.recipient_id}", clean(event.content)


def _nothing(_views: Views, _view: AgentView, _event: Event) -> Texts:
    return ()


ROWS: Final[dict[type, Callable[[Views, AgentView, Any], Texts]]] = {
    AgentStarted: _started,
    AgentFinished: _finished,
    ThoughtsChunk: _nothing,
    Thoughts: _thoughts,
    ResponseChunk: _nothing,
    Response: _response,
    ToolCallStarted: _tool_call,
    ToolOutput: _tool_output,
    CodeExecutionOutputChunk: _output,
    CodeExecutionOutput: _cell_end,
    ApprovalRequest: _request,
    ApprovalAnswered: _answered,
    UsageUpdated: _nothing,
    ModelProgress: _nothing,
    KernelLost: _kernel_lost,
    Notice: _notice,
    AgentMessage: _message,
    Cancelled: _cancelled,
}
"""One row for each type of event."""


def _rest_of_output(view: AgentView) -> Texts:
    for line in view.output.flush():
        yield "output", line.plain
