"""The fields of a question in words: what each asks, and its choices."""

from collections.abc import Sequence
from typing import Any, Final

from freeact_sub.events import QuestionRequest
from freeact_sub.events.forms import QuestionField
from freeact_sub.text import one_line, visible

ROW_CHARS: Final = 1_000
"""Of a choice, and of what a field asks."""
DEFAULT_CHARS: Final = 60


def heading(request: QuestionRequest, field: QuestionField) -> str:
    """What a field asks, in one line; empty if the question itself says it."""
    is_confirmation = field.kind == "boolean" and not field.prompt and len(request.fields) == 1
    words = field.prompt or ("" if is_confirmation or field.name == request.prompt else field.name)
    return one_line(visible(words), ROW_CHARS)


def numbered(field: QuestionField) -> list[str]:
    """The choices of a field, one a line, with their numbers."""
    return [f"{number}. {one_line(visible(row), ROW_CHARS)}" for number, row in enumerate(field.rows, start=1)]


def shown_default(field: QuestionField) -> str:
    """The default of a field, as people read it."""
    values: Sequence[Any] = field.default if isinstance(field.default, list) else [field.default]
    words = ["yes" if value is True else "no" if value is False else str(value) for value in values]
    labels = dict(zip(field.choices, field.labels, strict=False))
    return one_line(visible(", ".join(labels.get(word, word) for word in words)), DEFAULT_CHARS)


def own_prompt(request: QuestionRequest) -> str:
    """The question's own words, without those that its fields say."""
    said = len(request.fields) > 1 and request.prompt == "\n".join(field.name for field in request.fields)
    return "" if said else request.prompt


def form_lines(request: QuestionRequest) -> list[str]:
    """The whole of a question's fields, in lines."""
    lines = []
    for number, field in enumerate(request.fields, start=1):
        place = f"{number} of {len(request.fields)}: " if len(request.fields) > 1 else ""
        lines += [f"{place}{heading(request, field)}"] if place or heading(request, field) else []
        lines += [f"  {row}" for row in numbered(field)]
    return lines
