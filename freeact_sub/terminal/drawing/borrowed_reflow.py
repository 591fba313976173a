"""`ReflowingApplication`: an application whose rows are wiped whole when the terminal becomes narrower.

Most terminals then fold the rows on the screen, so that the picture takes more rows than prompt_toolkit
knows, and its upper ones would stay behind, doubled. Terminals that cut rows instead are known by their variables.

prompt_toolkit has no public method that is called when the terminal has another size, and none that tells whether another
program has it: two private names stand here. If they had others, rows would be doubled again, and nothing worse.
"""

import os
from collections.abc import Mapping

from prompt_toolkit.application import Application
from prompt_toolkit.layout.screen import Char
from prompt_toolkit.layout.screen import Screen as Drawn
from prompt_toolkit.output.vt100 import Vt100_Output


class WipingOutput(Vt100_Output):
    """Never erases from the top left corner downwards.

    tmux takes that for a cleared screen and moves the whole screen into its history: the input line, or a question,
    would stand there once more, each time that it is drawn anew from the first row.
    """

    def erase_down(self) -> None:
        """Erases the rest of this row, and then the rows below it."""
        self.write_raw("\x1b[K\x1b7\x1b[B\x1b[J\x1b8")


class ReflowingApplication(Application[None]):
    """Erases as described above."""

    def _on_resize(self) -> None:
        """Erases from the new place of the first row; a pager or an editor that has the terminal keeps what it has drawn."""
        if getattr(self, "_running_in_terminal", False):
            return
        drawn = self.renderer.last_rendered_screen
        if drawn is not None and folds_rows(os.environ):
            self.output.cursor_up(folded_above(drawn, self.output.get_size().columns))
        super()._on_resize()


def folds_rows(environment: Mapping[str, str]) -> bool:
    """Whether the terminal folds rows that no longer fit. xterm, GNU screen and Linux's console cut them."""
    cuts = "XTERM_VERSION" in environment or environment.get("TERM", "").startswith(("linux", "screen", "vt"))
    return "TMUX" in environment or not cuts


def folded_above(drawn: Drawn, columns: int) -> int:
    """The number of rows that folding at so many columns adds above the cursor."""
    cursor = next(iter(drawn.cursor_positions.values()), None)
    if cursor is None or columns < 1:
        return 0
    above = sum(max(0, _width(drawn.data_buffer[row]) - 1) // columns for row in range(cursor.y))
    return above + cursor.x // columns


def _width(row: Mapping[int, Char]) -> int:
    return max((column + char.width for column, char in row.items() if not char.char.isspace()), default=0)
