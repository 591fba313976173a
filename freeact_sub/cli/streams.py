"""The standard streams: their abilities, and lines for a person."""

import os
import sys
from typing import TextIO

from freeact_sub.text import fitted, visible

DUMB_TERMINALS = ("", "dumb", "unknown")


def is_terminal(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal. Args: stream: None: the process was started without it."""
    return stream is not None and not stream.closed and stream.isatty()


def can_draw(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal that can move its cursor."""
    return is_terminal(stream) and os.environ.get("TERM", "") not in DUMB_TERMINALS


def is_interactive() -> bool:
    """Whether a conversation is possible."""
    return is_terminal(sys.stdin) and is_terminal(sys.stdout)


def asking_terminal() -> TextIO | None:
    """The terminal that can ask a person; None if nobody can be asked."""
    if not is_terminal(sys.stdin):
        return None
    return next((stream for stream in (sys.stderr, sys.stdout) if is_terminal(stream)), None)


def tell(text: str) -> None:
    """Writes one sentence to standard error: one line, which a terminal shows in as many as it needs."""
    print(fitted(f"freeact-sub: {' '.join(text.split())}", sys.stderr), file=sys.stderr)  # noqa: T201  (the user interface)


def write_out(text: str) -> None:
    """Writes a text as it is; characters that cannot be encoded are written as escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, errors="backslashreplace").decode(encoding))


def print_line(text: str) -> None:
    """Writes lines in which control characters are visible."""
    write_out(f"{visible(text)}\n")
