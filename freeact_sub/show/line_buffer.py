"""`LineBuffer`: turns the pieces that a cell prints into whole lines, which may set colours but nothing else."""

import re
from collections.abc import Iterator
from typing import Final

from freeact_sub.text import clean, colours_only

LINE_CHARS: Final = 8192
"""A line that does not end is drawn in pieces of this size, so that memory stays bounded."""

MAX_COLOURS: Final = 16
"""Active colour sequences that continue in the next line; newer ones usually replace older ones."""

_COLOUR: Final = re.compile(r"\x1b\[([0-9;]*)m")


class LineBuffer:
    """Cuts a stream of pieces into whole lines; each sets the colours that continue from the one before it."""

    def __init__(self) -> None:
        self._rest = ""
        self._colours = ""

    def add(self, piece: str) -> Iterator[str]:
        """Accept a piece, and yield the lines that it ends."""
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
        """The unfinished line, such as a progress bar that is still moving."""
        return clean(self._rest)

    def flush(self) -> Iterator[str]:
        """Yields the unfinished line, if there is one; what comes next starts without colour."""
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
