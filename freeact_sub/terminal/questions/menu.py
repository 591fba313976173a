"""Asks a person to choose one of several rows: by arrow keys or a number, before a conversation has begun.

A terminal that cannot move its cursor gets numbered lines and an input line.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.output.vt100 import Vt100_Output
from rich.cells import cell_len

from freeact_sub.terminal.questions.trust_question import forget_typed
from freeact_sub.text import visible

KEYS: Final = "↑ ↓ or a number chooses · Enter takes it · Esc: none"
ESCAPE_SECONDS: Final = 0.1
DIGITS: Final = "123456789"
MAX_ROWS: Final = 12
"""Rows that are on the screen at a time."""


@dataclass(frozen=True)
class MenuRow:
    """One of several things to choose."""

    text: str
    note: str = ""


def pick(head: str, rows: Sequence[MenuRow], terminal: TextIO, *, draws: bool) -> int | None:
    """The index of the row that a person chooses; None if none is wanted.

    Args:
        head: What is to be chosen, in one or more lines.
        rows: At least one.
        terminal: The stream for the question; the answer is read from standard input.
        draws: The terminal can move its cursor.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    forget_typed()
    print(head, file=terminal, flush=True)
    if not draws:
        return _pick_by_line(rows, terminal)
    output = Vt100_Output.from_pty(terminal, term=os.environ.get("TERM"))
    return _Menu(rows).application(output).run()


class _Menu:
    def __init__(self, rows: Sequence[MenuRow]) -> None:
        self._rows = rows
        self._at = 0
        self._width = max(cell_len(visible(row.text)) for row in rows)

    def application(self, output: Vt100_Output) -> "Application[int | None]":
        """What draws the rows and reads the keys, until one is chosen."""
        control = FormattedTextControl(
            self._shown, focusable=True, show_cursor=False, get_cursor_position=lambda: Point(0, self._at)
        )
        rows = Window(control, height=min(len(self._rows), MAX_ROWS), wrap_lines=False)
        hint = Window(FormattedTextControl([("fg:ansibrightblack", KEYS)]), height=1)
        application: Application[int | None] = Application(
            layout=Layout(HSplit([rows, hint])),
            key_bindings=self._keys(),
            input=create_input(sys.stdin),
            output=output,
            erase_when_done=True,
        )
        application.ttimeoutlen = ESCAPE_SECONDS
        return application

    def _shown(self) -> StyleAndTextTuples:
        shown: StyleAndTextTuples = []
        for index, row in enumerate(self._rows):
            text = visible(row.text)
            number = DIGITS[index] if index < len(DIGITS) else " "
            blanks = " " * (self._width - cell_len(text) + 2)
            shown.append(("bold" if index == self._at else "", f"{'>' if index == self._at else ' '} {number}  {text}"))
            shown.append(("fg:ansibrightblack", f"{blanks}{visible(row.note)}".rstrip() + "\n"))
        return shown

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        def move(event: KeyPressEvent, by: int) -> None:
            del event
            self._at = (self._at + by) % len(self._rows)

        for pressed, by in {"up": -1, "c-p": -1, "k": -1, "down": 1, "c-n": 1, "j": 1}.items():
            keys.add(pressed)(lambda event, by=by: move(event, by))
        for index, digit in enumerate(DIGITS[: len(self._rows)]):
            keys.add(digit)(lambda _, index=index: setattr(self, "_at", index))
        keys.add("enter")(lambda event: event.app.exit(result=self._at))
        for pressed in ("escape", "q", "c-d"):
            keys.add(pressed, eager=True)(lambda event: event.app.exit(result=None))
        keys.add("c-c")(lambda event: event.app.exit(exception=KeyboardInterrupt))
        return keys


def _pick_by_line(rows: Sequence[MenuRow], terminal: TextIO) -> int | None:
    for number, row in enumerate(rows, 1):
        note = f"  ({visible(row.note)})" if row.note else ""
        print(f"{number:>3}  {visible(row.text)}{note}", file=terminal)
    while True:
        print(f"number from 1 to {len(rows)}, or Enter for none: ", end="", file=terminal, flush=True)
        text = sys.stdin.readline().strip()
        if not text:
            return None
        if text.isdecimal() and 1 <= int(text) <= len(rows):
            return int(text) - 1
