"""`LineBuffer`: what a cell prints, piece by piece, as whole lines. They may set colours, and nothing else."""

import re
from collections.abc import Iterator
from typing import Final

from freeact_sub.text import clean, colours_only

LINE_CHARS: Final = 8192
"""A line that does not end is drawn in pieces of this size, so that memory stays bounded."""

MAX_COLOURS: Final = 16
"""So many of the sequences that are in force continue in the next line; a newer one mostly replaces an older."""

_COLOUR: Final = re.compile(r"\x1b\[([0-9;]*)m")


class LineBuffer:
    """Cuts a stream of pieces into whole lines; each sets the colours that continue from the one before it."""

    def __init__(self) -> None:
        self._rest = ""
        self._colours = ""

    def add(self, piece: str) -> Iterator[str]:
        """Take a piece in; yields the lines that it ends."""
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
        """What was accepted after the last whole line, such as a progress bar that still moves."""
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
