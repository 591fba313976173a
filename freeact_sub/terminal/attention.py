"""`Attention`: calls a person by a bell or a notification, and shows the state in the window's title."""

import os
from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

from freeact_sub.text import one_line

Notify: TypeAlias = Literal["auto", "bell", "osc9", "off"]
KEEP_TITLE: Final = "\x1b[22;2t"
GIVE_BACK_TITLE: Final = "\x1b[23;2t"
LONG_SECONDS: Final = 20.0
"""A run that takes more seconds calls the person when it ends."""
TITLE_CHARS: Final = 60
KNOW_OSC9: Final = ("iTerm.app", "WezTerm", "ghostty")
"""Values of `TERM_PROGRAM` for terminals that show OSC 9 as a notification; others would print it, or ring."""


class Attention:
    """Writes a control sequence, which the terminal obeys and does not draw."""

    def __init__(self, write: Callable[[str], None], notify: Notify, environment: Mapping[str, str] = os.environ) -> None:
        """Args: write: writes to the terminal. notify: how a person is called."""
        self._write = write
        self._how = "osc9" if notify == "auto" and knows_osc9(environment) else "bell" if notify == "auto" else notify
        self._title = ""
        self._begun = False

    def begin(self) -> None:
        """Takes over the terminal's title."""
        self._begun = True
        self._write(KEEP_TITLE + self._title_text())

    def end(self) -> None:
        """Restores the terminal's title; further calls do nothing."""
        if ending := self.ending():
            self._write(ending)

    def ending(self) -> str:
        """The sequence that restores the title, for a caller that writes it at once; empty if the title is restored."""
        begun, self._begun = self._begun, False
        return GIVE_BACK_TITLE if begun else ""

    def call(self, text: str) -> None:
        """Calls the person."""
        if self._begun and self._how != "off":
            self._write("\x07" if self._how == "bell" else f"\x1b]9;{one_line(text)}\x07")

    def title(self, text: str) -> None:
        """Sets the window's title."""
        if text != self._title:
            self._title = text
            if self._begun:
                self._write(self._title_text())

    def _title_text(self) -> str:
        return f"\x1b]2;{one_line(self._title, TITLE_CHARS)}\x07" if self._title else ""


def knows_osc9(environment: Mapping[str, str]) -> bool:
    """Whether the terminal shows OSC 9 as a notification. tmux swallows it."""
    known = environment.get("TERM_PROGRAM") in KNOW_OSC9 or environment.get("TERM") in ("xterm-kitty", "xterm-ghostty")
    return known and "TMUX" not in environment
