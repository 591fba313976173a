"""`Filling`: what a person has given so far of a question's fields, where one field is asked after another.

Fields are asked one by one wherever people type lines: in both terminals, and in a notebook without buttons.
"""

from typing import Any

from freeact_sub.events import QuestionRequest
from freeact_sub.events.forms import QuestionField, typed_value
from freeact_sub.show.forms import numbered, shown_default, title
from freeact_sub.text import whole_line


class Filling:
    """The answer to one question, as far as it is typed."""

    def __init__(self, request: QuestionRequest) -> None:
        """Args: request: has fields."""
        self._request = request
        self._fields = request.fields
        self._at = 0
        self.values: dict[str, Any] = {}
        self.refused = ""
        """Why the last line was no answer; empty if it was one."""
        self.refusals = 0
        """How many lines were none."""
        self._highlighted: int | None = None
        self._begin()

    @property
    def field(self) -> QuestionField:
        """The field that is asked now."""
        return self._fields[min(self._at, len(self._fields) - 1)]

    @property
    def at(self) -> int:
        """How many fields are done."""
        return self._at

    @property
    def is_done(self) -> bool:
        """Whether all fields have a value, or are left out."""
        return self._at == len(self._fields)

    @property
    def title(self) -> str:
        """What the present field asks, and its place among several; empty where the question says it."""
        return title(self._request, min(self._at, len(self._fields) - 1))

    @property
    def rows(self) -> list[str]:
        """The choices of the present field, numbered."""
        return numbered(self.field)

    @property
    def highlighted(self) -> int | None:
        """The row that Enter takes at an empty line. None: none."""
        return self._highlighted

    def move(self, by: int) -> bool:
        """Highlights another row; returns False if there are none."""
        count = len(self.field.rows)
        if count:
            at = self._highlighted
            self._highlighted = (count - 1 if by < 0 else 0) if at is None else (at + by) % count
        return bool(count)

    def take(self, text: str, *, takes_highlighted: bool = False) -> bool:
        """Reads a typed line as the value of the present field; returns False if it is none, see `refused`.

        Args:
            text: The line.
            takes_highlighted: An empty line stands for the highlighted row.
        """
        if takes_highlighted and not text.strip() and self._highlighted is not None:
            text = str(self._highlighted + 1)
        try:
            value = typed_value(self.field, text)
        except ValueError as error:
            self._refuse(error)
            return False
        self.values.pop(self.field.name, None)
        if value is not None:
            self.values[self.field.name] = value
        self._at += 1
        self._begin()
        return True

    def back(self) -> bool:
        """Goes back to the field before; returns False if there is none."""
        if not self._at:
            return False
        self._at -= 1
        self._begin()
        return True

    def reopen(self, error: ValueError) -> None:
        """The whole was no answer: its last field is asked again."""
        self.back()
        self._refuse(error)

    def _refuse(self, error: ValueError) -> None:
        self.refused, self.refusals = whole_line(str(error)), self.refusals + 1

    @property
    def hint(self) -> str:
        """What may be typed, in a few words."""
        field = self.field
        match field.kind:
            case "choice" if field.other:
                words = "a number, or your own answer"
            case "choice" | "boolean":
                words = "a number or a word of the list"
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
        field, self._highlighted = self.field, None
        if not field.rows or field.kind == "choices":
            return
        if field.default is not None:
            values = [True, False] if field.kind == "boolean" else list(field.choices)
            self._highlighted = values.index(field.default) if field.default in values else None
        elif field.required and field.kind == "choice":
            self._highlighted = 0
