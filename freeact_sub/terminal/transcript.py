"""`Transcript`: a table from event type to what is drawn for it.

Pure: an event and what is known of its agent give a rich renderable, or None. It is drawn once and then belongs to the
terminal's scrollback. Each block stands behind a bar in its agent's colour, indented by the agent's depth; its first
line names the agent, and is left out only where the block goes on with what the one before it began.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.syntax import Syntax
from rich.text import Text

from freeact_sub.calls import Call, CodeAction, McpCall, ToolCall
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
from freeact_sub.terminal.drawing import Barred, Folded, colour
from freeact_sub.terminal.sanitize import coloured
from freeact_sub.terminal.texts import (
    MESSAGES,
    answer,
    call_text,
    cell_notes,
    display_text,
    error_text,
    first_lines,
    question,
    written,
)
from freeact_sub.terminal.views import AgentView, Views
from freeact_sub.text import clean, files_text, one_line, visible

CODE_THEME: Final = "ansi_dark"  # the terminal's own colours


@dataclass(frozen=True, kw_only=True)
class Block:
    """What is drawn for one event."""

    title: str
    """Follows the agent's name on the first line."""
    body: RenderableType | None = None
    style: str = ""
    """Of the title."""
    goes_on: bool = False
    """True where the first line is left out if the block before it had the same agent and title."""


class Transcript:
    """Draws the events of a run, one after the other."""

    def __init__(self, views: Views) -> None:
        """Args: views: observes each event before it is drawn here."""
        self._views = views
        self._begun = False
        self._last_title: tuple[str, str] | None = None
        self._last_call: tuple[str, str | None] | None = None
        self._last_requests: set[str] = set()

    def draw(self, event: Event) -> RenderableType | None:
        """What the event looks like; None for one that is not shown."""
        view = self._views.of(event)
        drawn = [self._render(view, block) for block in ROWS[type(event)](self._views, view, event)]
        if drawn:
            self._last_call, self._last_requests = None, set()
        match event:
            case AgentStarted(parent_id=None):
                drawn[:0] = [Text()] if self._begun else []  # one prompt stands apart from the next
                self._begun = True
            case ToolCallStarted():
                self._last_call = (view.agent_id, event.tool_call_id)
            case ApprovalRequest() if drawn or self._last_call == (view.agent_id, event.tool_call_id):
                self._last_requests.add(event.request_id)
        return Group(*drawn) if drawn else None

    def is_last(self, request: ApprovalRequest) -> bool:
        """Whether the last thing that was drawn is the call that this request asks for."""
        return request.request_id in self._last_requests

    def forget_last(self) -> None:
        """Something was drawn that is no event."""
        self._last_title = self._last_call = None
        self._last_requests.clear()

    def _render(self, view: AgentView, block: Block) -> RenderableType:
        title = (view.agent_id, block.title)
        parts: list[RenderableType] = []
        if not (block.goes_on and title == self._last_title):
            parts.append(Text.assemble((view.name, f"bold {colour(view)}"), " ", (block.title, block.style or "default")))
        if block.body is not None:
            parts.append(block.body)
        self._last_title = title
        return Barred(body=Group(*parts), view=view)


def draw_call(call: Call) -> RenderableType:
    """A call in full, with nothing hidden."""
    match call:
        case CodeAction():
            return _code(call.code)
        case ToolCall() | McpCall():
            return _arguments(call.args)
        case _:
            return _text(call_text(call))


def _started(views: Views, view: AgentView, event: AgentStarted) -> Iterable[Block]:
    if view.parent_id is None:
        yield Block(title="starts", body=_text(visible(event.prompt), "bold"))
        return
    parent = views.by_id.get(view.parent_id)
    wait = " and waits for a free place" if event.queued else ""
    yield Block(title=f"is started by {parent.agent_id if parent else one_line(view.parent_id)}{wait}")


def _finished(_views: Views, view: AgentView, event: AgentFinished) -> Iterable[Block]:
    parts: list[RenderableType] = []
    if event.output and event.output != view.answer:
        parts.append(Markdown(clean(event.output), code_theme=CODE_THEME, hyperlinks=False))
    if event.error:
        parts.append(_text(clean(event.error), "red"))
    parts.append(Text(f"{event.usage}, {event.seconds:.1f} s", "dim"))
    if event.tree_usage != event.usage:
        parts.append(Text(f"with its children: {event.tree_usage}", "dim"))
    if event.files_written:
        parts.append(Text(files_text(event.files_written), "dim"))
    style = "bold green" if event.status == "completed" else "bold red"
    yield from _rest_of_output(view)
    yield Block(title=f"ended ({event.status.replace('_', ' ')})", body=Group(*parts), style=style)


def _thoughts(_views: Views, view: AgentView, event: Thoughts) -> Iterable[Block]:
    if view.parent_id is None and event.content.strip():
        yield Block(title="thinks", body=_text(clean(event.content).strip(), "dim italic"), style="dim")


def _response(_views: Views, _view: AgentView, event: Response) -> Iterable[Block]:
    if event.content.strip():
        yield Block(title="says", body=Markdown(clean(event.content), code_theme=CODE_THEME, hyperlinks=False))


def _tool_call(_views: Views, _view: AgentView, event: ToolCallStarted) -> Iterable[Block]:
    yield Block(title=f"calls {one_line(event.tool_name)}", body=_arguments(event.args) if event.args else None)


def _tool_output(views: Views, view: AgentView, event: ToolOutput) -> Iterable[Block]:
    if view.has_shown_result(event):
        return
    outcome = "" if event.outcome == "success" else f" {event.outcome}"
    yield Block(
        title=f"gets the result of {one_line(event.tool_name)}{':' if outcome else ''}{outcome}",
        body=_text(first_lines(views.without_answer(event)), "dim"),
        style="red" if outcome else "",
    )


def _output(_views: Views, view: AgentView, event: CodeExecutionOutputChunk) -> Iterable[Block]:
    output = event.output
    if isinstance(output, StreamText):
        lines = list(view.output.add(output.text))
        if lines:
            yield Block(title="output", body=Folded(lines=lines), goes_on=True)
        return
    yield from _rest_of_output(view)
    if isinstance(output, CellError):
        yield Block(title="error in the cell", body=_coloured(error_text(output)), style="red")
    else:
        yield Block(title="output", body=_coloured(display_text(output.data)), goes_on=True)


def _cell_end(_views: Views, view: AgentView, event: CodeExecutionOutput) -> Iterable[Block]:
    yield from _rest_of_output(view)
    notes = cell_notes(event)
    yield Block(
        title=f"cell {event.status.replace('_', ' ')}, {event.seconds:.1f} s",
        body=_text("\n".join(notes), "yellow") if notes else None,
        style="dim" if event.status == "ok" else "red",
    )


def _request(_views: Views, view: AgentView, event: ApprovalRequest) -> Iterable[Block]:
    if not view.has_shown(event):
        yield Block(title=question(event.call), body=draw_call(event.call), style="bold yellow")


def _answered(views: Views, _view: AgentView, event: ApprovalAnswered) -> Iterable[Block]:
    yield Block(title=answer(event, views.requests.get(event.request_id)), style="green" if event.allowed else "red")


def _kernel_lost(_views: Views, view: AgentView, event: KernelLost) -> Iterable[Block]:
    yield from _rest_of_output(view)
    yield Block(title="lost its kernel and all variables", body=_text(clean(event.reason), "red"), style="bold red")


def _cancelled(_views: Views, view: AgentView, _event: Cancelled) -> Iterable[Block]:
    yield from _rest_of_output(view)
    yield Block(title="is cancelled", style="yellow")


def _notice(_views: Views, _view: AgentView, event: Notice) -> Iterable[Block]:
    yield Block(title="notice", body=_text(clean(event.content), "yellow"), style="yellow")


def _message(_views: Views, _view: AgentView, event: AgentMessage) -> Iterable[Block]:
    yield Block(title=f"{MESSAGES[event.kind]} {event.recipient_id}", body=_text(clean(event.content)), style="yellow")


def _nothing(_views: Views, _view: AgentView, _event: Event) -> Iterable[Block]:
    return ()


ROWS: Final[dict[type, Callable[[Views, AgentView, Any], Iterable[Block]]]] = {
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


def _rest_of_output(view: AgentView) -> Iterable[Block]:
    if lines := list(view.output.flush()):
        yield Block(title="output", body=Folded(lines=lines), goes_on=True)


def _code(code: str) -> Syntax:
    return Syntax(visible(code), "python", theme=CODE_THEME, background_color="default", word_wrap=True)


def _arguments(args: dict[str, Any]) -> RenderableType:
    if list(args) == ["code"] and isinstance(args["code"], str):
        return _code(args["code"])
    lines = [Text.assemble((f"{visible(name)} = ", "bold"), visible(written(value))) for name, value in args.items()]
    return Text("\n", overflow="fold").join(lines) if lines else Text("(no arguments)", "dim")


def _coloured(text: str) -> Folded:
    return Folded(lines=coloured(text.strip("\n")))


def _text(text: str, style: str = "") -> Text:
    return Text(text, style, overflow="fold")
