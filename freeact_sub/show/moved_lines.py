"""`MovedLines`: lines of a cell that moves the cursor, as several progress bars do, with their colours."""

import re
from collections.abc import Iterator
from typing import Final

from freeact_sub.cursor import CursorText
from freeact_sub.text import colours_only

OPEN_LINES: Final = 50
"""Lines at the end that can still be changed."""
LINE_CHARS: Final = 8192
"""A longer line is cut in pieces of this size."""
MAX_COLOUR_CHARS: Final = 100
"""Of the colours in force; colours that are never taken back are dropped."""

MOVES: Final = re.compile(r"\x08|\x1b\[(?:\d*[A-G]|\?25l)")
"""What moves the cursor elsewhere than to the beginning of its line, and the hiding of the cursor before that."""
_UPWARDS: Final = re.compile(r"\x1b\[\d*[AF]")
_COLOUR: Final = re.compile(r"\x1b\[([0-9;]*)m")
_SHOWN, _HIDDEN = "\x1b[?25h", "\x1b[?25l"

_Row = list[tuple[str, str]]
"""Characters with the colours in which they were written."""


class MovedLines(CursorText[_Row]):
    """The last lines of a screen without an edge at its right.

    A cell that has moved the cursor into a line above is likely to do so again: its lines are given away when there are more
    than `OPEN_LINES`, or when it shows the cursor that it has hidden.
    """

    def __init__(self, colours: str) -> None:
        """Args: colours: those in force at the beginning."""
        super().__init__([("", " ")], LINE_CHARS - 1)
        self.colours = colours
        self.is_open = True
        """False: the cursor is at the beginning of an empty line, and nothing tells that it will be moved."""
        self._goes_up = False

    @property
    def lines(self) -> list[str]:
        """Those that can still change, but for an empty last one."""
        rows = self._lines if self._lines[-1] else self._lines[:-1]
        return [_drawn(row) for row in rows]

    def write(self, text: str) -> Iterator[str]:
        """Writes as a program does, at the cursor. Yields the lines that do not change any more."""
        self._write(text)
        yield from self._settled()  # not before: the end of the text may tell that its lines will be changed
        self.is_open = self._goes_up or bool(self._lines[-1] or self._unfinished)

    def _settled(self) -> Iterator[str]:
        count = len(self._lines) - (OPEN_LINES if self._goes_up else 1)
        if count > 0:
            yield from map(_drawn, self._lines[:count])
            del self._lines[:count]
            self._row = max(0, self._row - count)

    def _line(self, text: str) -> _Row:
        return [(self.colours, char) for char in text]

    def _put(self, text: str) -> None:
        while text:
            room = LINE_CHARS - self._column
            if room <= 0:
                self._next_row()
                continue
            super()._put(text[:room])
            text = text[room:]

    def _obey(self, key: str) -> None:
        if key in (_HIDDEN, _SHOWN):
            self._goes_up = key == _HIDDEN
        elif (colour := _COLOUR.fullmatch(key)) is not None:
            ends = colour[1].partition(";")[0] in ("", "0")
            added = "" if colour[1] in ("", "0") else key
            self.colours = added if ends or len(self.colours) > MAX_COLOUR_CHARS else self.colours + added
        else:
            self._goes_up = self._goes_up or _UPWARDS.fullmatch(key) is not None
            super()._obey(key)


def _drawn(row: _Row) -> str:
    """A line that sets its own colours, and takes them back at its end."""
    parts, last = [], ""
    for colours, char in row:
        if colours != last:
            parts.append(f"\x1b[0m{colours}" if last else colours)
            last = colours
        parts.append(char)
    return colours_only("".join(parts) + ("\x1b[0m" if last else "")).rstrip()
