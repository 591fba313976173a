"""The changing rows above the input line if everything is printed: the open question, and the ends of growing texts."""

from collections.abc import Callable, Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.terminal.drawing.children import strategy_lines
from freeact_sub.terminal.drawing.parts import Barred, Cut, colour
from freeact_sub.text import busy, clean

TAIL_ROWS = 8
"""Rows of one agent's unfinished text."""


def live_area(views: Stories, card: Callable[[int], RenderableType] | None, rows: int) -> RenderableType | None:
    """The changing rows, at most so many; None if there are none.

    Args:
        views: All agents.
        card: Draws the open question, in at most so many rows. None: there is none.
        rows: The bound on rows.
    """
    parts: list[RenderableType] = [*strategy_lines(views)[: rows // 3]]
    rows -= len(parts)
    tails = [(view, text) for view in views.by_id.values() if (text := _unfinished(view)) is not None]
    if card is not None:
        parts.append(card(rows * 2 // 3 if tails else rows))
        rows //= 3
    each = min(TAIL_ROWS, rows // len(tails) - 1) if tails else 0
    if each > 0:
        parts[:0] = [_tail(view, text, each) for view, text in tails]
    return Group(*parts) if parts else None


def _tail(view: AgentStory, text: Text, rows: int) -> RenderableType:
    return Barred(body=Group(Text(f"{view.name} …", colour(view)), Cut(body=text, rows=rows, tail=True)), view=view)


def _unfinished(view: AgentStory) -> Text | None:
    """The end of an agent's text, thoughts (the root's only) or output."""
    thoughts = view.thinking if view.parent_id is None else ""
    choices: Iterable[tuple[str, str]] = ((view.writing, ""), (thoughts, "dim italic"), (view.output_text, "dim"))
    for text, style in choices:
        if shown := clean(text).strip("\n"):
            return Text(shown, style, overflow="fold")
    return silence(view)


def silence(view: AgentStory) -> Text | None:
    """A line about the seconds for which the model of an agent has been silent; None if it is not."""
    progress = view.progress
    if progress is None:
        return None
    if progress.paused_seconds is not None:
        return Text(busy(progress.paused_seconds), "dim italic")
    rate = progress.tokens_per_second
    speed = f", {rate:.1f} tokens/s" if rate is not None else "" if progress.tokens else ", no token yet"
    return Text(f"waiting for the model: {progress.seconds:.0f} s{speed}", "dim italic")
