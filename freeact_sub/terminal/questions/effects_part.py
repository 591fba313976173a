"""The effects of a cell on the card of its question."""

from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from freeact_sub.events import Effects
from freeact_sub.show.effect_lines import EffectLine, LineKind, change_lines, effect_line, effect_lines

STYLES: Final[dict[LineKind, str]] = {
    "head": "dim",
    "warning": "yellow",
    "output": "",
    "variable": "cyan",
    "file": "bold",
    "added": "green",
    "removed": "red",
    "context": "dim",
}
INDENTED: Final = ("output", "variable", "added", "removed", "context")


def effects_part(effects: Effects | None, most: int | None = None) -> tuple[RenderableType, int]:
    """Draws them, and counts the lines that are left out: a cell may write more text than can be drawn in time.

    Args:
        effects: None: the trial has not ended yet.
        most: So many lines are drawn. None: all.
    """
    lines = [*effect_lines(effects)]
    drawn = lines[:most]
    return Group(*map(_drawn, drawn)), len(lines) - len(drawn)


def effects_line(effects: Effects | None) -> Text:
    """The one row that a small card has for them."""
    drawn = _drawn(effect_line(effects))
    drawn.no_wrap, drawn.overflow = True, "ellipsis"
    return drawn


def drawn_changes(effects: Effects) -> list[Text]:
    """Draws what has changed, a line each; empty if nothing has."""
    return [_drawn(line) for line in change_lines(effects)]


def _drawn(line: EffectLine) -> Text:
    text = f"  {line.text}" if line.kind in INDENTED else line.text
    if line.kind in ("head", "warning"):
        return Text(text, STYLES[line.kind], overflow="fold")
    return Text(text, STYLES[line.kind], no_wrap=True, overflow="ellipsis")
