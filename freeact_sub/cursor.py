"""`CursorText`: lines as a terminal shows them, written by a program that moves the cursor, as progress bars do."""

import re
from abc import ABC, abstractmethod
from typing import Final, Generic, TypeVar

MAX_ESCAPE_CHARS: Final = 64
"""A longer escape sequence is taken for text."""

_TOKENS: Final = re.compile(r"(\n|\r|\x08|\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\^_=>])")
_UNFINISHED: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*|\][^\x07\x1b]*)?\Z")
_CURSOR: Final = re.compile(r"\x1b\[(\d*)([A-GJK])")

Line = TypeVar("Line", str, list[tuple[str, str]])


class CursorText(ABC, Generic[Line]):
    """Lines without an edge at the right, and the cursor at which a program writes.

    A line is a text, or a list of characters with their colours.
    """

    def __init__(self, blank: Line, columns: int) -> None:
        """Makes one empty line.

        Args:
            blank: A line of one blank.
            columns: The last column to which the cursor can be moved; text may go on behind it.
        """
        self._blank: Line = blank
        self._columns = columns
        self._restart()

    def _restart(self) -> None:
        """One empty line, with the cursor at its beginning."""
        self._lines: list[Line] = [self._blank * 0]
        self._row = self._column = 0
        self._unfinished = ""
        """The beginning of an escape sequence."""

    @abstractmethod
    def _line(self, text: str) -> Line:
        """Text without line breaks as a line."""

    def _write(self, text: str) -> None:
        """Writes as a program does, at the cursor."""
        text, self._unfinished = self._unfinished + text, ""
        unfinished = _UNFINISHED.search(text)
        if unfinished is not None and len(unfinished[0]) <= MAX_ESCAPE_CHARS:
            text, self._unfinished = text[: unfinished.start()], unfinished[0]
        for index, token in enumerate(_TOKENS.split(text)):
            if index % 2:
                self._obey(token)
            elif token:
                self._put(token)

    def _put(self, text: str) -> None:
        """Writes over the text at the cursor. Args: text: without line breaks."""
        line = self._lines[self._row]
        before = line[: self._column] + self._blank * (self._column - len(line))
        self._lines[self._row] = before + self._line(text) + line[self._column + len(text) :]
        self._column += len(text)

    def _next_row(self) -> None:
        self._row, self._column = self._row + 1, 0
        if self._row == len(self._lines):
            self._lines.append(self._blank * 0)

    def _obey(self, key: str) -> None:
        """Moves the cursor or erases, as terminals do. Args: key: a control character or an escape sequence."""
        if key == "\n":
            self._next_row()
        elif key == "\r":
            self._column = 0
        elif key == "\b":
            self._column = max(0, self._column - 1)
        elif (move := _CURSOR.fullmatch(key)) is not None:
            self._move(move[2], move[1])

    def _move(self, command: str, number: str) -> None:
        count = max(1, int(number[:4] or 1))
        if command in "ABEF":
            self._row = max(0, min(len(self._lines) - 1, self._row + (-count if command in "AF" else count)))
            self._column = 0 if command in "EF" else self._column
        elif command in "CDG":
            column = count - 1 if command == "G" else self._column + (count if command == "C" else -count)
            self._column = max(0, min(column, self._columns))
        elif command == "K":
            self._erase_in_line(number)
        elif number in ("", "0"):
            self._erase_in_line(number)
            del self._lines[self._row + 1 :]

    def _erase_in_line(self, number: str) -> None:
        line = self._lines[self._row]
        if number in ("", "0"):
            line = line[: self._column]
        elif number == "1":
            line = self._blank * min(len(line), self._column + 1) + line[self._column + 1 :]
        elif number == "2":
            line = self._blank * 0
        self._lines[self._row] = line
