"""Folding: long code shows its first lines; long output its first and last lines, because a log's news is at its end."""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, TypeVar

from rich.cells import chop_cells
from rich.text import Text

from freeact_sub.text import counted

FOLD_ROWS: Final = 12
"""The lines of code or output that one action shows."""
TAB_COLUMNS: Final = 8
LAST_ROWS: Final = 5
"""How many of them are the output's last lines."""

Line = TypeVar("Line")


def left_out(count: int, where: str | Text, *, of_rows: bool = False) -> Text:
    """Return the line that replaces folded lines. Args: where: the way to show them. of_rows: long lines count by rows."""
    what = counted(count, "more row" if of_rows else "more line")
    return Text.assemble((f"… {what} (", "dim"), where, (")", "dim"), style="dim", overflow="fold")


def in_rows(lines: Iterable[Text], columns: int) -> list[Text]:
    """The lines, of which long ones are cut into rows, as a terminal does. Args: columns: of a row; 0: nothing is cut."""
    found = []
    for line in lines:
        line.expand_tabs(TAB_COLUMNS)
        if not columns or line.cell_len <= columns:
            found.append(line)
        else:
            ends = accumulate(map(len, chop_cells(line.plain, columns)))
            found += line.divide([*ends][:-1])
    return found


def parts_of(lines: Sequence[Line], last: int) -> tuple[Sequence[Line], int, Sequence[Line]]:
    """Return the first lines, the number of folded lines, and the last lines. Args: last: the number of last lines."""
    more = len(lines) - FOLD_ROWS
    if more <= 0:
        return lines, 0, ()
    return lines[: FOLD_ROWS - last], more, lines[len(lines) - last :]


class CellOutput:
    """The folded output of one cell: its first lines are drawn at once, its last ones at its end."""

    def __init__(self) -> None:
        self.left_out = 0
        """The number of lines between the first and the held ones."""
        self.held: deque[Text] = deque()
        """The present last lines, which are not drawn yet."""
        self.of_rows = False
        """A line was so long that its rows are counted."""
        self._drawn = 0

    def add(self, lines: Sequence[Text], columns: int = 0) -> list[Text]:
        """Adds lines. Returns the ones to draw at once. Args: columns: see `in_rows`."""
        first, rows = [], in_rows(lines, columns)
        self.of_rows |= len(rows) > len(lines)
        for line in rows:
            if self._drawn < FOLD_ROWS - LAST_ROWS:
                self._drawn += 1
                first.append(line)
            else:
                self.held.append(line)
                if len(self.held) > LAST_ROWS:
                    self.held.popleft()
                    self.left_out += 1
        return first

    def settled(self) -> list[Text]:
        """Return the held lines if none before them are folded; they are drawn before the next block."""
        if self.left_out:
            return []
        lines = [*self.held]
        self.held.clear()
        self._drawn += len(lines)
        return lines

    def shown(self, where: str) -> list[Text]:
        """The lines that are not drawn yet, while it grows. Args: see `left_out`."""
        return [*([left_out(self.left_out, where, of_rows=self.of_rows)] if self.left_out else []), *self.held]
