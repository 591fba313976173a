"""The output of running cells that a front end has not drawn yet, for those that draw line below line.

`MovedLines` are lines of a cell that moves the cursor, as several progress bars do, with their colours.
"""

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

from freeact_sub.cells import ClearOutput, DisplayData, ExecuteResult, StreamText, size_of, text_of
from freeact_sub.text import CursorText, clean, colours_only

OPEN_LINES: Final = 50
"""Lines at the end that can still be changed."""
MAX_COLOUR_CHARS: Final = 100
"""Of the colours in force; colours that are never taken back are dropped."""
MOVES: Final = re.compile(r"\x08|\x1b\[(?:\d*[A-G]|\?25l)")
"""What moves the cursor elsewhere than to the beginning of its line, and the hiding of the cursor before that."""
_UPWARDS: Final = re.compile(r"\x1b\[\d*[AF]")
_SHOWN, _HIDDEN = "\x1b[?25h", "\x1b[?25l"
_Row = list[tuple[str, str]]
"""Characters with the colours in which they were written."""

LINE_CHARS: Final = 8192
"""A line that does not end is drawn in pieces of this size, so that memory stays bounded."""

MAX_HELD: Final = 200
MAX_HELD_CHARS: Final = 200_000
"""Output of a cell that is held back, in pieces and in characters; more is drawn although the cell may clear it."""
TAIL_CHARS: Final = 4000
"""Characters of it that are drawn."""
MAX_COLOURS: Final = 16
"""Active colour sequences that continue in the next line; newer ones usually replace older ones."""

WIDGET: Final = "application/vnd.jupyter.widget-view+json"
_COLOUR: Final = re.compile(r"\x1b\[([0-9;]*)m")


HeldOutput: TypeAlias = StreamText | DisplayData | ExecuteResult


class LineBuffer:
    """Cuts a stream of pieces into whole lines; each sets the colours that continue from the one before it."""

    def __init__(self) -> None:
        self._rest = ""
        self._colours = ""
        self._moved: MovedLines | None = None
        """Lines in which the cell has moved the cursor, such as several progress bars; `_rest` is what follows them."""

    def add(self, piece: str) -> Iterator[str]:
        """Accept a piece, and yield the lines that it ends."""
        if self._moved is None and MOVES.search(self._rest + piece):
            self._moved = MovedLines(self._colours)
        if self._moved is not None:
            text, self._rest = self._rest + piece, ""
            yield from self._moved.write(text)
            if not self._moved.is_open:
                self._colours, self._moved = self._moved.colours, None
            return
        *lines, self._rest = (self._rest + piece).split("\n")
        if "\r" in self._rest:  # drop what is overwritten; a return at the end may yet become the end of a line
            shown = self._rest.rstrip("\r")
            self._rest = shown.rpartition("\r")[2] + ("\r" if shown != self._rest else "")
        while len(self._rest) > LINE_CHARS:
            lines.append(self._rest[:LINE_CHARS])
            self._rest = self._rest[LINE_CHARS:]
        for line in lines:
            yield self._coloured(line)

    def rest(self) -> str:
        """The lines that may still change, such as a progress bar that is moving."""
        return clean(self._rest) if self._moved is None else clean("\n".join(self._moved.lines))

    def flush(self) -> Iterator[str]:
        """Yields the unfinished lines, if there are any; what comes next starts without colour."""
        if self._moved is not None:
            yield from self._moved.lines
            self._moved = None
        rest, self._rest = self._rest, ""
        if rest:
            yield self._coloured(rest)
        self._colours = ""

    def _coloured(self, line: str) -> str:
        line = self._colours + colours_only(line)
        in_force: list[str] = []
        for match in _COLOUR.finditer(line):
            if match[1].partition(";")[0] in ("", "0"):
                in_force.clear()
            if match[1] not in ("", "0"):
                in_force.append(match[0])
        self._colours = "".join(in_force[-MAX_COLOURS:])
        return line


def is_empty_widget(output: DisplayData) -> bool:
    """Whether it is a place for the output of a bar of `rich`: what is shown there comes as outputs of the cell."""
    return WIDGET in output.data and output.data.get("text/plain") == "Output()"


class UndrawnOutput:
    """The output of a running cell that is not drawn yet: an unfinished line, and what the cell may clear or replace.

    A cell that has cleared its output, or has replaced a display, is likely to do so again. Where nothing that is drawn can
    be taken back, only its last state is drawn, when the cell ends.
    """

    def __init__(self) -> None:
        self.lines = LineBuffer()
        self._held: list[HeldOutput] = []
        self._held_chars = 0
        self._clears = False

    def settled(self, output: HeldOutput | ClearOutput) -> list[HeldOutput]:
        """Takes an output of the cell, and returns those that can be drawn."""
        if isinstance(output, ClearOutput):
            self.lines, self._clears = LineBuffer(), True
            self.rest()
            return []
        if isinstance(output, DisplayData) and is_empty_widget(output):
            return []
        replaced = output.display_id if isinstance(output, DisplayData) and output.update else None
        if not self._clears and replaced is None:
            return [output]
        for index, held in enumerate(self._held):
            if isinstance(held, DisplayData) and replaced is not None and held.display_id == replaced:
                self._held[index] = output
                return []
        self._held.append(output)
        self._held_chars += size_of(output)
        return self.rest() if len(self._held) > MAX_HELD or self._held_chars > MAX_HELD_CHARS else []

    def rest(self) -> list[HeldOutput]:
        """What was held back; it is not held any more."""
        held, self._held, self._held_chars = self._held, [], 0
        return held

    @property
    def text(self) -> str:
        """The end of all this as text, for a place that is drawn again and again."""
        texts = [text_of(output) for output in self._held]
        return clean("".join(texts)[-TAIL_CHARS:]) + self.lines.rest()


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
