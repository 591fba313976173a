"""What stands above the input line for as long as it changes: the open question, and the ends of texts being written."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from freeact_sub.events import ApprovalRequest
from freeact_sub.show.agent_view import AgentView, Views
from freeact_sub.show.questions import Questions
from freeact_sub.show.rows import call_part
from freeact_sub.show.typed_answers import HINT, always_means
from freeact_sub.show.wording import who_asks
from freeact_sub.terminal.drawing import Barred, Cut, colour
from freeact_sub.terminal.transcript import Transcript, draw_part
from freeact_sub.text import busy, clean

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
    call = [] if rows is None else [Cut(body=draw_part(call_part(request.call)), rows=rows)]
    always = [Text(means, "dim")] if (means := always_means(request)) else []
    asks = Text.assemble((who_asks(request), f"bold {colour(view)}"), " ", (request.call.question, "bold yellow"))
    others = [Text(line, "dim", no_wrap=True, overflow="ellipsis") for line in questions.others()]
    hint = Text(questions.asks_back, "bold yellow") if questions.asks_back else Text(HINT, "yellow")
    return Barred(body=Group(number, asks, *call, *always, hint, *others), view=view)


def _tail(view: AgentView, text: Text, rows: int) -> RenderableType:
    return Barred(body=Group(Text(f"{view.name} …", colour(view)), Cut(body=text, rows=rows, tail=True)), view=view)


def _unfinished(view: AgentView) -> Text | None:
    """The end of what an agent writes, thinks (the root only) or prints right now."""
    thoughts = view.thinking if view.parent_id is None else ""
    choices: Iterable[tuple[str, str]] = ((view.writing, ""), (thoughts, "dim italic"), (view.output.rest(), "dim"))
    for text, style in choices:
        if shown := clean(text).strip("\n"):
            return Text(shown, style, overflow="fold")
    progress = view.progress
    if progress is None:
        return None
    if progress.paused_seconds is not None:
        return Text(busy(progress.paused_seconds), "dim italic")
    rate = progress.tokens_per_second
    speed = f", {rate:.1f} tokens/s" if rate is not None else "" if progress.tokens else ", no token yet"
    return Text(f"waiting for the model: {progress.seconds:.0f} s{speed}", "dim italic")
