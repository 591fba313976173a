"""What stands above the input line for as long as it changes: the open question, and the ends of texts being written."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from freeact_sub.answers import HINT, always_means
from freeact_sub.events import ApprovalRequest
from freeact_sub.terminal.approvals import Questions
from freeact_sub.terminal.drawing import Barred, Cut, colour
from freeact_sub.terminal.texts import question
from freeact_sub.terminal.transcript import Transcript, draw_call
from freeact_sub.terminal.views import AgentView, Views
from freeact_sub.text import clean, one_line

TAIL_ROWS = 8
"""Of one agent's unfinished text."""


def live_area(views: Views, questions: Questions, transcript: Transcript, rows: int) -> RenderableType | None:
    """All that changes, in at most so many rows; None if there is nothing."""
    parts: list[RenderableType] = []
    tails = [(view, text) for view in views.by_id.values() if (text := _unfinished(view)) is not None]
    request = questions.current
    if request is not None:
        rows = rows * 2 // 3 if tails else rows
        parts.append(
            _question(
                views,
                questions,
                request,
                None if transcript.is_last(request) else max(rows - 4 - len(questions.others()), 2),
            )
        )
        rows //= 2
    each = min(TAIL_ROWS, rows // len(tails) - 1) if tails else 0
    if each > 0:
        parts[:0] = [_tail(view, text, each) for view, text in tails]
    return Group(*parts) if parts else None


def _question(views: Views, questions: Questions, request: ApprovalRequest, rows: int | None) -> RenderableType:
    """A question; `rows` bounds its call, None leaves the call out because it stands right above."""
    view = views.of(request)
    number = Text(f" Approval 1 of {len(questions.waiting)} ", "bold reverse yellow")
    path = " → ".join(one_line(name, 60) for name in request.path) or view.name
    call = [] if rows is None else [Cut(body=draw_call(request.call), rows=rows)]
    always = [Text(means, "dim")] if (means := always_means(request)) else []
    asks = Text.assemble((path, f"bold {colour(view)}"), " ", (question(request.call), "bold yellow"))
    others = [Text(line, "dim", no_wrap=True, overflow="ellipsis") for line in questions.others()]
    return Barred(body=Group(number, asks, *call, *always, Text(HINT, "yellow"), *others), view=view)


def _tail(view: AgentView, text: Text, rows: int) -> RenderableType:
    return Barred(body=Group(Text(f"{view.name} …", colour(view)), Cut(body=text, rows=rows, tail=True)), view=view)


def _unfinished(view: AgentView) -> Text | None:
    """The end of what an agent writes, thinks (the root only) or prints right now."""
    thoughts = view.thinking if view.parent_id is None else ""
    choices: Iterable[tuple[str, str]] = ((view.writing, ""), (thoughts, "dim italic"), (view.output.rest(), "dim"))
    for text, style in choices:
        if shown := clean(text).strip("\n"):
            return Text(shown, style, overflow="fold")
    if view.waits is None:
        return None
    rate = view.waits.tokens_per_second
    speed = f", {rate:.1f} tokens/s" if rate is not None else "" if view.waits.tokens else ", no token yet"
    return Text(f"waiting for the model: {view.waits.seconds:.0f} s{speed}", "dim italic")
