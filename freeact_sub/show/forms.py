"""The fields of a question in words: what each asks, and its choices."""

from typing import Final

from freeact_sub.events import QuestionRequest
from freeact_sub.events.forms import QuestionField, text_of_value
from freeact_sub.text import one_line, visible

ROW_CHARS: Final = 1_000
"""Of a choice, and of what a field asks."""
DEFAULT_CHARS: Final = 60


def heading(request: QuestionRequest, field: QuestionField) -> str:
    """What a field asks, in one line; empty if the question itself says it."""
    is_confirmation = field.kind == "boolean" and not field.prompt and len(request.fields) == 1
    words = field.prompt or ("" if is_confirmation or field.name == request.prompt else field.name)
    return one_line(visible(words), ROW_CHARS)


def title(request: QuestionRequest, at: int) -> str:
    """What a field asks, and its place among several; empty if the question itself says it. Args: at: counted from 0."""
    place = f"{at + 1} of {len(request.fields)}: " if len(request.fields) > 1 else ""
    return f"{place}{heading(request, request.fields[at])}"


def numbered(field: QuestionField) -> list[str]:
    """The choices of a field, one a line, with their numbers."""
    return [f"{number}. {one_line(visible(row), ROW_CHARS)}" for number, row in enumerate(field.rows, start=1)]


def shown_default(field: QuestionField) -> str:
    """The default of a field, as people read it."""
    return one_line(visible(text_of_value(field, field.default)), DEFAULT_CHARS)


def own_prompt(request: QuestionRequest) -> str:
    """The question's own words, without those that its fields say."""
    said = len(request.fields) > 1 and request.prompt == "\n".join(field.name for field in request.fields)
    return "" if said else request.prompt


def form_lines(request: QuestionRequest) -> list[str]:
    """The whole of a question's fields, in lines."""
    lines = list[str]()
    for at, field in enumerate(request.fields):
        lines += filter(None, [title(request, at)])
        lines += [f"  {row}" for row in numbered(field)]
    return lines
