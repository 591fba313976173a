"""`WipingOutput`: a terminal output that erases rows completely, also after the window became narrower.

Most terminals then fold the rows on the screen, so that the picture takes more rows than prompt_toolkit
knows, and its upper ones would stay behind, doubled. Terminals that cut rows instead are known by their variables.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

from prompt_toolkit.data_structures import Point
from prompt_toolkit.layout.screen import Char, Screen
from prompt_toolkit.output.vt100 import Vt100_Output


class WipingOutput(Vt100_Output):
    """An output that erases the whole drawing, and writes nothing while another program has the terminal."""

    drawn: Callable[[], Screen | None] = staticmethod(lambda: None)
    """Returns what was drawn last."""
    _widths: Sequence[int] = ()
    """The width at which the terminal folds each row of the drawing."""
    is_away = False
    """Whether another program has the terminal."""

    def write_raw(self, data: str) -> None:
        """See prompt_toolkit."""
        if not self.is_away:
            super().write_raw(data)

    def write(self, data: str) -> None:
        """See prompt_toolkit."""
        if not self.is_away:
            super().write(data)

    def note_widths(self) -> None:
        """Notes how wide the rows are, after each drawing.

        tmux folds a row at the greatest width that it has had since all of it was erased, even if its end was erased later.
        """
        drawn = self.drawn()
        if drawn is not None:
            widths = (_width(drawn.data_buffer[row]) for row in range(drawn.height))
            before = self._widths if in_tmux(os.environ) else ()
            self._widths = [max(pair) for pair in zip_longest(widths, before, fillvalue=0)]

    def erase_down(self) -> None:
        """Erases the rest of this row, and then the rows below it, from where folding has moved the first row.

        tmux takes an erasure from the top left corner downwards for a cleared screen, and moves the whole screen into its
        history: the input line, or a question, would stand there once more, each time that it is drawn from the first row.
        """
        drawn = self.drawn()
        cursor = next(iter(drawn.cursor_positions.values()), None) if drawn is not None else None
        if cursor is not None and folds_rows(os.environ):
            self.cursor_up(folded_above(self._widths, cursor, self.get_size().columns))
        self.write_raw("\x1b[K\x1b7\x1b[B\x1b[J\x1b8")
        self._widths = ()


def folds_rows(environment: Mapping[str, str]) -> bool:
    """Whether the terminal folds rows that no longer fit. xterm, GNU screen and Linux's console cut them."""
    cuts = "XTERM_VERSION" in environment or environment.get("TERM", "").startswith(("linux", "screen", "vt"))
    return in_tmux(environment) or not cuts


def folded_above(widths: Sequence[int], cursor: Point, columns: int) -> int:
    """The number of rows that folding rows of these widths at so many columns adds above the cursor."""
    if columns < 1:
        return 0
    return sum(max(0, width - 1) // columns for width in widths[: cursor.y]) + cursor.x // columns


def in_tmux(environment: Mapping[str, str]) -> bool:
    """Whether the terminal is a pane of tmux."""
    return "TMUX" in environment


def _width(row: Mapping[int, Char]) -> int:
    return max((column + char.width for column, char in row.items() if not char.char.isspace()), default=0)
