"""`MovedLines`: lines of a cell that moves the cursor, as several progress bars do, with their colours."""

import re
from collections.abc import Iterator
from typing import Final

from freeact_sub.text import colours_only

OPEN_LINES: Final = 50
"""Lines at the end that can still be changed."""
LINE_CHARS: Final = 8192
"""A longer line is cut in pieces of this size."""
MAX_ESCAPE_CHARS: Final = 64
MAX_COLOUR_CHARS: Final = 100
"""Of the colours in force; colours that are never taken back are dropped."""

MOVES: Final = re.compile(r"\x08|\x1b\[(?:\d*[A-G]|\?25l)")
"""What moves the cursor elsewhere than to the beginning of its line, and the hiding of the cursor before that."""
_TOKENS: Final = re.compile(r"(\n|\r|\x08|\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\^_=>])")
_UNFINISHED: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*|\][^\x07\x1b]*)?\Z")
_CURSOR: Final = re.compile(r"\x1b\[(\d*)([A-GJK])")
_COLOUR: Final = re.compile(r"\x1b\[([0-9;]*)m")
_SHOWN, _HIDDEN = "\x1b[?25h", "\x1b[?25l"

_Row = list[tuple[str, str]]
"""Characters with the colours in which they were written."""


class MovedLines:
    """The last lines of a screen without an edge at its right.

    A cell that has moved the cursor into a line above is likely to do so again: its lines are given away when there are more
    than `OPEN_LINES`, or when it shows the cursor that it has hidden.
    """

    def __init__(self, colours: str) -> None:
        """Args: colours: those in force at the beginning."""
        self.colours = colours
        self.is_open = True
        """False: the cursor is at the beginning of an empty line, and nothing tells that it will be moved."""
        self._rows: list[_Row] = [[]]
        self._row = self._column = 0
        self._unfinished = ""
        self._goes_up = False

    @property
    def lines(self) -> list[str]:
        """Those that can still change, but for an empty last one."""
        rows = self._rows if self._rows[-1] else self._rows[:-1]
        return [_drawn(row) for row in rows]

    def write(self, text: str) -> Iterator[str]:
        """Writes as a program does, at the cursor. Yields the lines that do not change any more."""
        text, self._unfinished = self._unfinished + text, ""
        unfinished = _UNFINISHED.search(text)
        if unfinished is not None and len(unfinished[0]) <= MAX_ESCAPE_CHARS:
            text, self._unfinished = text[: unfinished.start()], unfinished[0]
        for index, token in enumerate(_TOKENS.split(text)):
            if index % 2:
                self._obey(token)
            else:
                self._put(token)
        yield from self._settled()  # not before: the end of the text may tell that its lines will be changed
        self.is_open = self._goes_up or bool(self._rows[-1] or self._unfinished)

    def _settled(self) -> Iterator[str]:
        count = len(self._rows) - (OPEN_LINES if self._goes_up else 1)
        if count > 0:
            yield from map(_drawn, self._rows[:count])
            del self._rows[:count]
            self._row = max(0, self._row - count)

    def _put(self, text: str) -> None:
        while text:
            room = LINE_CHARS - self._column
            if room <= 0:
                self._next_row()
                continue
            part, text = text[:room], text[room:]
            row = self._rows[self._row]
            row.extend([("", " ")] * (self._column - len(row)))
            row[self._column : self._column + len(part)] = [(self.colours, char) for char in part]
            self._column += len(part)

    def _next_row(self) -> None:
        self._row, self._column = self._row + 1, 0
        if self._row == len(self._rows):
            self._rows.append([])

    def _obey(self, key: str) -> None:
        if key == "\n":
            self._next_row()
        elif key == "\r":
            self._column = 0
        elif key == "\b":
            self._column = max(0, self._column - 1)
        elif key in (_HIDDEN, _SHOWN):
            self._goes_up = key == _HIDDEN
        elif (colour := _COLOUR.fullmatch(key)) is not None:
            ends = colour[1].partition(";")[0] in ("", "0")
            added = "" if colour[1] in ("", "0") else key
            self.colours = added if ends or len(self.colours) > MAX_COLOUR_CHARS else self.colours + added
        elif (move := _CURSOR.fullmatch(key)) is not None:
            self._move(move[2], move[1])

    def _move(self, command: str, number: str) -> None:
        count = max(1, int(number[:4] or 1))
        if command in "ABEF":
            self._goes_up = self._goes_up or command in "AF"
            self._row = max(0, min(len(self._rows) - 1, self._row + (-count if command in "AF" else count)))
            self._column = 0 if command in "EF" else self._column
        elif command in "CDG":
            column = count - 1 if command == "G" else self._column + (count if command == "C" else -count)
            self._column = max(0, min(column, LINE_CHARS - 1))
        elif command == "K":
            row = self._rows[self._row]
            if number in ("", "0"):
                del row[self._column :]
            elif number == "1":
                row[: self._column + 1] = [("", " ")] * min(len(row), self._column + 1)
            elif number == "2":
                row.clear()
        elif number in ("", "0"):
            del self._rows[self._row][self._column :]
            del self._rows[self._row + 1 :]


def _drawn(row: _Row) -> str:
    """A line that sets its own colours, and takes them back at its end."""
    parts, last = [], ""
    for colours, char in row:
        if colours != last:
            parts.append(f"\x1b[0m{colours}" if last else colours)
            last = colours
        parts.append(char)
    return colours_only("".join(parts) + ("\x1b[0m" if last else "")).rstrip()
