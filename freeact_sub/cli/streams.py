"""Standard input and output: what they can do, the prompt that is read, and lines for a person."""

import os
import sys
from pathlib import Path
from typing import TextIO

from freeact_sub.errors import ConfigError
from freeact_sub.text import visible

DUMB_TERMINALS = ("", "dumb", "unknown")


def is_terminal(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal. Args: stream: None: the process was started without it."""
    return stream is not None and not stream.closed and stream.isatty()


def can_draw(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal that can move its cursor."""
    return is_terminal(stream) and os.environ.get("TERM", "") not in DUMB_TERMINALS


def is_interactive() -> bool:
    """Whether a conversation is possible."""
    return is_terminal(sys.stdin) and can_draw(sys.stdout)


def asking_terminal() -> TextIO | None:
    """The terminal that can ask a person; None if nobody can be asked."""
    if not is_terminal(sys.stdin):
        return None
    return next((stream for stream in (sys.stderr, sys.stdout) if is_terminal(stream)), None)


def read_prompt(argument: str | None, path: Path | None) -> str:
    """The prompt.

    Args:
        argument: Itself; `-` for standard input; None: there is none, so a pipe is read.
        path: A file with it.

    Raises:
        ConfigError: There is none, or there are two, or it cannot be read.
    """
    if argument is not None and path is not None:
        raise ConfigError("give the prompt either as an argument, or with --file PATH, not both")
    try:
        if path is not None:
            prompt = path.read_text(encoding="utf-8")
        else:
            prompt = standard_input() if argument in (None, "-") else argument or ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the prompt from {path}: {error}") from error
    if not prompt.strip():
        raise ConfigError("the prompt is empty: give it as an argument, as - for standard input, or with --file PATH")
    return prompt


def standard_input() -> str:
    """The text of standard input; empty if it is closed.

    Raises:
        ConfigError: It cannot be read.
    """
    if sys.stdin is None or sys.stdin.closed:
        return ""
    try:
        return sys.stdin.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the prompt from standard input: {error}") from error


def tell(text: str) -> None:
    """Writes one line to standard error."""
    print(f"freeact-sub: {' '.join(text.split())}", file=sys.stderr)  # noqa: T201  (the user interface)


def write_out(text: str) -> None:
    """Writes a text as it is; characters that cannot be encoded are written as escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, errors="backslashreplace").decode(encoding))


def print_line(text: str) -> None:
    """Writes one or more lines, in which nothing is hidden."""
    write_out(f"{visible(text)}\n")
