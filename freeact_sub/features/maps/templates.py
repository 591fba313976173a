"""`Template`: a text with the names of columns in braces, as `"Classify {text}"`, which makes a prompt of a row.

What stands in braces is a column's whole name: it names no attribute or item of a value. Values are never templates.
"""

import difflib
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from string import Formatter
from typing import Any, Final

from freeact_sub.errors import InvalidRequestError

_BRACES: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
"""What stands in braces; a column of exactly this name counts, also with a colon or a mark in it."""
CONVERSIONS: Final[Mapping[str, Callable[[Any], str]]] = {"r": repr, "s": str, "a": ascii}


class Template:
    """See above."""

    def __init__(self, text: str, columns: Sequence[Hashable]) -> None:
        """Read a template.

        Args:
            text: The template.
            columns: The names of the frame's columns.

        Raises:
            InvalidRequestError: It cannot be read, names no column, or one that the frame does not have once.
        """
        names: dict[str, str] = {str(column): f"\0{number}" for number, column in enumerate(columns)}
        whole = {mark: name for name, mark in names.items()}
        try:
            marked = _BRACES.sub(lambda found: f"{{{names[found[1]]}}}" if found[1] in names else found[0], text)
            parts = [*Formatter().parse(marked)]
            self._parts = [(before, name and whole.get(name, name), form, how) for before, name, form, how in parts]
        except ValueError as error:
            raise InvalidRequestError(
                f"agent.map: the template {text!r}: {error}; a brace itself is written twice"
            ) from error
        known: dict[str, Hashable] = {}
        for column in columns:
            known[str(column)] = _TWICE if str(column) in known else column
        self.columns: dict[str, Hashable] = {}
        """The columns in it, by their name in the template."""
        for _, name, _, _ in self._parts:
            if name is not None:
                self.columns[name] = _column(name, known)
        if not self.columns:
            raise InvalidRequestError(
                "agent.map: the template names no column in braces, so all rows would be asked the same"
            )

    def prompt(self, row: Mapping[Hashable, Any]) -> str:
        """Return the prompt of a row, by column; a missing value is an empty text.

        Raises:
            InvalidRequestError: A value cannot be written as the template asks.
        """
        text = []
        for before, name, form, conversion in self._parts:
            text.append(before)
            if name is None:
                continue
            value = row.get(self.columns[name])
            if _is_missing(value):
                continue
            try:
                text.append(format(CONVERSIONS[conversion](value) if conversion else value, form or ""))
            except (ValueError, TypeError, KeyError) as error:
                raise InvalidRequestError(f"the column {name!r} holds {value!r:.80}: {error}") from error
        return "".join(text)


class _Twice:
    pass


_TWICE: Final = _Twice()


def _column(name: str, known: Mapping[str, Hashable]) -> Hashable:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        meant = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(repr, [*known][:20])) or 'none'}"
        raise InvalidRequestError(f"agent.map: the frame has no column {name!r}: {meant}")
    if known[name] is _TWICE:
        raise InvalidRequestError(f"agent.map: the frame has the column {name!r} more than once: rename one of them")
    return known[name]


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    try:
        return bool(value != value)  # noqa: PLR0124  # NaN and NaT are not equal to themselves
    except (TypeError, ValueError):  # pandas' NA says neither; an array says both
        return type(value).__name__ == "NAType"
