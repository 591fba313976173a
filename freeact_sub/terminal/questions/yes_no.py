"""Asks a person a question with yes or no, before a conversation has begun."""

import sys
import termios
from contextlib import suppress
from typing import Final, TextIO

from freeact_sub.show.typed_decisions import says_yes
from freeact_sub.text import fitted

CHOICES: Final = "(y or n, then Enter)"


def forget_typed() -> None:
    """Drops what a person typed before a question was shown: it is no answer to it."""
    with suppress(termios.error):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def agrees(question: str, terminal: TextIO | None) -> bool:
    """Whether a person says yes; the answer is read from standard input."""
    forget_typed()
    print(fitted(f"{question} {CHOICES}", terminal), end=" ", file=terminal, flush=True)
    return says_yes(sys.stdin.readline())
