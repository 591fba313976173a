"""Folding: of long code the first lines are shown, of long output the first and the last ones, where a log's news is."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from rich.text import Text

from freeact_sub.text import counted

FOLD_ROWS: Final = 12
"""Lines of code, or of output, that one action shows."""
LAST_ROWS: Final = 5
"""Lines of them that are the last ones, of output."""

Line = TypeVar("Line")


def left_out(count: int, where: str | Text) -> Text:
    """The line that stands for lines that are folded. Args: where: how they are shown."""
    return Text.assemble((f"… {counted(count, 'more line')} (", "dim"), where, (")", "dim"), style="dim", overflow="fold")


def parts_of(lines: Sequence[Line], last: int) -> tuple[Sequence[Line], int, Sequence[Line]]:
    """The first lines, the number of those that are folded, and the last lines. Args: last: the number of these."""
    more = len(lines) - FOLD_ROWS
    if more <= 0:
        return lines, 0, ()
    return lines[: FOLD_ROWS - last], more, lines[len(lines) - last :]


class CellOutput:
    """The output of one cell, folded: its first lines are drawn at once, its last ones when it has ended."""

    def __init__(self) -> None:
        self.left_out = 0
        """Lines between the first ones and those that are held."""
        self.held: deque[Text] = deque()
        """The last lines so far, which are not drawn yet."""
        self._drawn = 0

    def add(self, lines: Iterable[Text]) -> list[Text]:
        """Takes in lines. Returns: those of them to draw at once."""
        first = []
        for line in lines:
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
        """The lines to draw before something else is: those that are held, unless lines before them are folded."""
        if self.left_out:
            return []
        lines = [*self.held]
        self.held.clear()
        self._drawn += len(lines)
        return lines

    def shown(self, where: str) -> list[Text]:
        """The lines that are not drawn yet, while it grows. Args: see `left_out`."""
        return [*([left_out(self.left_out, where)] if self.left_out else []), *self.held]
