"""The field of a question that is asked now, as the card shows it: what it asks, its choices, and what may be typed."""

from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from freeact_sub.events import QuestionRequest
from freeact_sub.show.forms import Filling, numbered
from freeact_sub.show.wording import own_words
from freeact_sub.terminal.drawing.parts import Cut

MARGIN: Final = 10
"""Columns beside a choice."""
ALL_ROWS: Final = 10_000
"""More than a question has."""


def form_part(request: QuestionRequest, filling: Filling, rows: int = ALL_ROWS) -> RenderableType:
    """The question and its present field, in at most so many rows: the choices come first, the words are cut."""
    title = [Text(filling.title, "bold", no_wrap=True, overflow="ellipsis")] if filling.title else []
    refused = [Text(filling.refused, "red", no_wrap=True, overflow="ellipsis")] if filling.refused else []
    choices = _seen(filling, max(rows - len(title) - len(refused) - 1, 1))
    left = max(rows - len(title) - len(refused) - len(choices), 1)
    words = own_words(request)
    said = [Cut(body=Text(words, overflow="fold"), rows=left)] if words else []
    return Group(*said, *title, *choices, *refused)


def is_cut(request: QuestionRequest, columns: int) -> bool:
    """Whether a choice is longer than its row."""
    return any(len(row) > columns - MARGIN for field in request.fields for row in numbered(field))


def form_keys(filling: Filling) -> str:
    """What may be typed and pressed."""
    parts = [f"{filling.hint}, then Enter", "↑ ↓ choose" if filling.rows else "", "← back" if filling.at else ""]
    return " · ".join(part for part in parts if part)


def _seen(filling: Filling, room: int) -> list[Text]:
    """The choices around the highlighted one, as many as there is room for."""
    at = filling.highlighted
    first = min(max((at or 0) - room // 2, 0), max(len(filling.rows) - room, 0))
    shown = filling.rows[first : first + room]
    return [
        Text(f"{'>' if number == at else ' '} {row}", "bold cyan" if number == at else "", no_wrap=True, overflow="ellipsis")
        for number, row in enumerate(shown, start=first)
    ]
