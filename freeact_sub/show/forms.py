"""The fields of a question: words, choices, and `Filling`: a person's values so far.

Fields are asked one by one wherever people type lines: in both terminals, and in a notebook without buttons.
"""

from dataclasses import replace
from typing import Any, Final

from freeact_sub.events import QuestionRequest
from freeact_sub.events.forms import QuestionField, read_value, text_of_value, typed_value
from freeact_sub.text import one_line, visible, whole_line

ROW_CHARS: Final = 1_000
"""Characters of a choice, and of a field's words."""
DEFAULT_CHARS: Final = 60
LAST_LOOK: Final = QuestionField(name="Send these answers?", kind="boolean", default=True)
"""A field behind the others of a question: a yes sends their values, a no asks them again."""


def heading(request: QuestionRequest, field: QuestionField) -> str:
    """Return a field's words, in one line; empty if the question itself says them."""
    is_confirmation = field.kind == "boolean" and not field.prompt and len(request.fields) == 1
    words = field.prompt or ("" if is_confirmation or field.name == request.prompt else field.name)
    return one_line(visible(words), ROW_CHARS)


def title(request: QuestionRequest, at: int) -> str:
    """Return a field's words and its place among several; empty if the question says them. Args: at: counted from 0."""
    place = f"{at + 1} of {len(request.fields)}: " if len(request.fields) > 1 else ""
    return f"{place}{heading(request, request.fields[at])}"


def numbered(field: QuestionField) -> list[str]:
    """Return the choices of a field, one a line, with their numbers."""
    return [f"{number}. {one_line(visible(row), ROW_CHARS)}" for number, row in enumerate(field.rows, start=1)]


def shown_default(field: QuestionField) -> str:
    """Return the default of a field, for people."""
    return one_line(visible(text_of_value(field, field.default)), DEFAULT_CHARS)


def own_prompt(request: QuestionRequest) -> str:
    """Return the question's words, without those of its fields."""
    said = len(request.fields) > 1 and request.prompt == "\n".join(field.name for field in request.fields)
    return "" if said else request.prompt


def form_lines(request: QuestionRequest) -> list[str]:
    """Return all fields of a question, in lines."""
    lines = list[str]()
    for at, field in enumerate(request.fields):
        lines += filter(None, [title(request, at)])
        lines += [f"  {row}" for row in numbered(field)]
    return lines


class Filling:
    """The answer to one question, as typed so far."""

    def __init__(self, request: QuestionRequest, *, by_keys: bool = False) -> None:
        """Args: request: has fields. by_keys: see `Questions.by_keys`."""
        self._request, self._by_keys = request, by_keys
        looks_again = by_keys and (len(request.fields) > 1 or request.fields[0].kind == "choices")
        self._fields = (*request.fields, LAST_LOOK) if looks_again else request.fields
        self._at = 0
        self.values: dict[str, Any] = {}
        self.refused = ""
        """The reason why the last line was no answer; empty if it was one."""
        self.refusals = 0
        """Number of lines that were no answer."""
        self._highlighted: int | None = None
        self._marked: set[int] = set()
        self._begin()

    @property
    def field(self) -> QuestionField:
        """The present field. An earlier value is its default."""
        field = self._fields[min(self._at, len(self._fields) - 1)]
        return replace(field, default=self.values[field.name]) if field.name in self.values else field

    @property
    def at(self) -> int:
        """Number of finished fields."""
        return self._at

    @property
    def is_done(self) -> bool:
        """Whether all fields have a value, or are left out."""
        return self._at == len(self._fields)

    @property
    def title(self) -> str:
        """The present field's words and its place among several; empty if the question says them."""
        return LAST_LOOK.name if self.is_last_look else title(self._request, min(self._at, len(self._fields) - 1))

    @property
    def is_last_look(self) -> bool:
        """Whether the present field asks if the answers are to be sent."""
        return self._at == len(self._request.fields) and not self.is_done

    @property
    def given(self) -> str:
        """All values so far, a line each."""
        lines = []
        for field in self._request.fields:
            value = text_of_value(field, self.values[field.name]) if field.name in self.values else "left out"
            lines.append(one_line(visible(f"{heading(self._request, field) or field.name}: {value}"), ROW_CHARS))
        return "\n".join(lines)

    @property
    def rows(self) -> list[str]:
        """The choices of the present field, numbered."""
        return numbered(self.field)

    @property
    def highlighted(self) -> int | None:
        """The row that Enter takes at an empty line, or that Space marks."""
        return self._highlighted

    @property
    def marked(self) -> frozenset[int] | None:
        """The rows that a person has marked. None: one row is the answer."""
        return frozenset(self._marked) if self._by_keys and self.field.kind == "choices" else None

    def mark(self) -> bool:
        """Mark the highlighted row, or take the mark away; return False if one row is the answer."""
        if self.marked is None or self._highlighted is None:
            return False
        self._marked ^= {self._highlighted}
        return True

    def move(self, by: int) -> bool:
        """Highlight another row; return False if there are none."""
        count = len(self.field.rows)
        if count:
            at = self._highlighted
            self._highlighted = (count - 1 if by < 0 else 0) if at is None else (at + by) % count
        return bool(count)

    def take(self, text: str) -> bool:
        """Read a typed line as the value of the present field; return False if it is none, see `refused`.

        By keys, an empty line stands for the marked rows, or for the highlighted one.
        """
        field = self.field
        try:
            if self.marked is not None and not text.strip():
                chosen = [field.choices[row] for row in sorted(self._marked)]
                value = read_value(field, chosen or ([] if field.default else None))
            else:
                if self._by_keys and not text.strip() and self._highlighted is not None:
                    text = str(self._highlighted + 1)
                value = typed_value(field, text)
        except ValueError as error:
            self._refuse(error)
            return False
        if self.is_last_look:
            self._at = len(self._fields) if value else 0
        else:
            self.values.pop(field.name, None)
            if value is not None:
                self.values[field.name] = value
            self._at += 1
        self._begin()
        return True

    def back(self) -> bool:
        """Go back to the field before; return False if there is none."""
        if not self._at:
            return False
        self._at -= 1
        self._begin()
        return True

    def reopen(self, error: ValueError) -> None:
        """Ask the last field again: the whole was no answer."""
        self._at = len(self._request.fields) - 1
        self._begin()
        self._refuse(error)

    def _refuse(self, error: ValueError) -> None:
        self.refused, self.refusals = whole_line(str(error)), self.refusals + 1

    @property
    def hint(self) -> str:
        """Possible input, in a few words."""
        field = self.field
        match field.kind:
            case "choice" if field.other:
                words = "a number, or your own answer"
            case "boolean":
                words = "y or n"
            case "choice":
                words = "a number or how a choice begins"
            case "choices":
                words = "numbers with commas between them"
            case "integer" | "number":
                words = "a number"
            case _:
                words = "the answer"
        if field.default is not None:
            return f"{words}; nothing means {shown_default(field)}"
        return words if field.required else f"{words}; nothing leaves it out"

    def _begin(self) -> None:
        self.refused = ""
        field, self._highlighted, self._marked = self.field, None, set()
        if field.kind == "choices":
            self._marked = {field.choices.index(value) for value in field.default or ()}
            self._highlighted = min(self._marked, default=0) if self._by_keys else None
        elif field.rows and field.default is not None:
            values = [True, False] if field.kind == "boolean" else list(field.choices)
            self._highlighted = values.index(field.default) if field.default in values else None
        elif field.required and field.kind == "choice":
            self._highlighted = 0
