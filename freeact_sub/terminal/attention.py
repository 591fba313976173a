"""`Attention`: calls a person who looks elsewhere, by a bell or a notification, and tells the window's title what goes on.

A terminal that reports its focus (mode 1004) says whether somebody looks at it. Others say nothing, so a person who
has pressed a key a moment ago counts as looking.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys

from freeact_sub.text import one_line

Notify: TypeAlias = Literal["auto", "bell", "osc9", "off"]
REPORT: Final = "\x1b[?1004h"
QUIET: Final = "\x1b[?1004l"
"""Sequences that make the terminal report its focus, or stop that."""
KEEP_TITLE: Final = "\x1b[22;2t"
GIVE_BACK_TITLE: Final = "\x1b[23;2t"
LOOKING_SECONDS: Final = 10.0
LONG_SECONDS: Final = 20.0
"""Seconds of a run after which its end calls the person."""
TITLE_CHARS: Final = 60
FOCUS: Final = {"\x1b[I": Keys.ControlF23, "\x1b[O": Keys.ControlF24}
"""The terminal's reports that its window has gained or lost the focus; as keys that no keyboard has."""
KNOW_OSC9: Final = ("iTerm.app", "WezTerm", "ghostty")
"""Values of `TERM_PROGRAM`: terminals that make a notification of OSC 9; others would print it, or ring."""


class Attention:
    """Writes a sequence that a terminal obeys and does not draw."""

    def __init__(
        self,
        write: Callable[[str], None],
        notify: Notify,
        environment: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args: write: writes to the terminal. notify: how a person is called."""
        self._write = write
        self._how = "osc9" if notify == "auto" and knows_osc9(environment) else "bell" if notify == "auto" else notify
        self._clock = clock
        self._is_focused: bool | None = None
        """None: the terminal has not reported it."""
        self._pressed: float | None = None
        self._title = ""
        self._begun = False

    def begin(self) -> None:
        """Begins: the terminal is ours."""
        self._begun = True
        self._write(KEEP_TITLE + REPORT + self._title_text())

    def pause(self) -> None:
        """Pauses while another program has the terminal: it would take a report of the focus for keys."""
        if self._begun:
            self._write(QUIET)

    def resume(self) -> None:
        """Resumes after a pause, unless the terminal was given back meanwhile."""
        self._is_focused = None
        if self._begun:
            self._write(REPORT + self._title_text())

    def end(self) -> None:
        """Gives the terminal back, with its title; called again, it does nothing."""
        if ending := self.ending():
            self._write(ending)

    def ending(self) -> str:
        """The sequences that give the terminal back, for a caller that writes them at once; empty if it has it."""
        begun, self._begun = self._begun, False
        return QUIET + GIVE_BACK_TITLE if begun else ""

    def focus(self, has_focus: bool) -> None:
        """Takes in a report of the terminal: whether its window has the focus."""
        self._is_focused = has_focus

    def key(self) -> None:
        """Takes in that a key was pressed."""
        self._pressed = self._clock()

    @property
    def looks(self) -> bool:
        """Whether somebody seems to look at the window."""
        if self._is_focused is not None:
            return self._is_focused
        return self._pressed is not None and self._clock() - self._pressed < LOOKING_SECONDS

    def call(self, text: str) -> None:
        """Calls the person, unless they look."""
        if self._begun and self._how != "off" and not self.looks:
            self._write("\x07" if self._how == "bell" else f"\x1b]9;{one_line(text)}\x07")

    def title(self, text: str) -> None:
        """Sets the window's title."""
        if text != self._title:
            self._title = text
            if self._begun:
                self._write(self._title_text())

    def _title_text(self) -> str:
        return f"\x1b]2;{one_line(self._title, TITLE_CHARS)}\x07" if self._title else ""


def focus_keys(attention: Attention) -> KeyBindings:
    """The bindings for the terminal's reports of its focus."""
    ANSI_SEQUENCES.update(FOCUS)
    keys = KeyBindings()
    keys.add(FOCUS["\x1b[I"])(lambda _: attention.focus(True))
    keys.add(FOCUS["\x1b[O"])(lambda _: attention.focus(False))
    return keys


def knows_osc9(environment: Mapping[str, str]) -> bool:
    """Whether the terminal makes a notification of OSC 9. tmux keeps it for itself."""
    known = environment.get("TERM_PROGRAM") in KNOW_OSC9 or environment.get("TERM") in ("xterm-kitty", "xterm-ghostty")
    return known and "TMUX" not in environment
