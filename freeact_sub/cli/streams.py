"""The standard streams: their abilities, lines for a person, and the prompt or the data that come on standard input.

A pipe that the program has inherited (from ssh, cron, CI, another program) may stay open for ever though nobody writes into
it, and a command in front of `|` may take minutes before its first line. So the program waits a moment for data, and longer
only where another command of the pipeline can still write. It waits longer for a prompt. Each wait has a bound.
"""

import errno
import os
import select
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from freeact_sub.errors import ConfigError
from freeact_sub.text import fitted, visible

if TYPE_CHECKING:
    from freeact_sub.terminal.attachments import Piped

DUMB_TERMINALS = ("", "dumb", "unknown")
MOMENT_SECONDS: Final = 3.0
IDLE_SECONDS: Final = 600.0
MAX_BYTES: Final = 50 * 2**20
PIECE_BYTES: Final = 2**16


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether the stream is a terminal. Args: stream: None: the process was started without it."""
    return stream is not None and not stream.closed and stream.isatty()


def can_draw(stream: TextIO | None) -> bool:
    """Return whether the stream is a terminal that can move its cursor."""
    return is_terminal(stream) and os.environ.get("TERM", "") not in DUMB_TERMINALS


def is_interactive() -> bool:
    """Return whether a conversation is possible."""
    return is_terminal(sys.stdin) and is_terminal(sys.stdout)


def asking_terminal() -> TextIO | None:
    """Return the terminal that can ask a person; None if nobody can be asked."""
    if not is_terminal(sys.stdin):
        return None
    return next((stream for stream in (sys.stderr, sys.stdout) if is_terminal(stream)), None)


def tell(text: str) -> None:
    """Write one sentence to standard error: one line, which a terminal shows in as many as it needs."""
    print(fitted(f"freeact-sub: {' '.join(text.split())}", sys.stderr), file=sys.stderr)  # noqa: T201  (the user interface)


def write_out(text: str) -> None:
    """Write a text as it is; characters that cannot be encoded are written as escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, errors="backslashreplace").decode(encoding))


def print_line(text: str) -> None:
    """Write lines in which control characters are visible."""
    write_out(f"{visible(text)}\n")


def read_prompt(argument: str | None, path: Path | None) -> "tuple[str, Piped]":
    """Return the prompt and the data on standard input.

    Args:
        argument: The prompt itself. `-`, or None without a path: standard input is the prompt.
        path: A file with the prompt.

    Raises:
        ConfigError: There is no prompt, or there are two, or it cannot be read.
    """
    from freeact_sub.terminal.attachments import Piped  # noqa: PLC0415  # `--help` needs none of it

    if argument is not None and path is not None:
        raise ConfigError("give the prompt either as an argument, or with --file PATH, not both")
    prompt = argument or ""
    is_piped = path is None and argument in (None, "-")
    if is_piped:
        prompt = piped_prompt()
    elif path is not None:
        try:
            prompt = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the prompt from {path}: {error}") from error
    if not prompt.strip():
        raise ConfigError("the prompt is empty: give it as an argument, as - for standard input, or with --file PATH")
    return prompt, Piped() if is_piped else piped_data()


def piped_data() -> "Piped":
    """Return the data piped into the program besides a prompt; nothing if standard input is a terminal, closed, or silent.

    Raises:
        ConfigError: The data is neither text nor a picture, is too large, does not end, or cannot be read.
    """
    from freeact_sub.terminal.attachments import Piped  # noqa: PLC0415

    return Piped() if is_terminal(sys.stdin) else Piped.of(_content(is_prompt=False))


def piped_prompt() -> str:
    """Return the prompt on standard input; empty if that is closed or ends at once.

    Raises:
        ConfigError: The prompt is not text, is too large, does not end, or cannot be read.
    """
    from freeact_sub.terminal.attachments import Piped  # noqa: PLC0415

    piped = Piped.of(_content(is_prompt=True))
    if piped.picture is not None:
        raise ConfigError("standard input is a picture: give the prompt as an argument, and the picture goes along")
    return piped.text


def _content(*, is_prompt: bool) -> bytes:
    if sys.stdin is None or sys.stdin.closed:
        return b""
    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError, AttributeError):  # a program has put another stream in its place
        return sys.stdin.read().encode(errors="replace")
    try:
        return b"".join(_pieces(descriptor, is_prompt=is_prompt))
    except OSError as error:
        if error.errno == errno.EBADF and not is_prompt:  # `nohup` makes it so
            return b""
        raise ConfigError(f"cannot read standard input: {error.strerror}") from error


def _pieces(descriptor: int, *, is_prompt: bool) -> Iterator[bytes]:
    is_first, told, total = True, is_terminal(sys.stdin), 0
    while True:
        if not told and not _is_ready(descriptor, MOMENT_SECONDS):
            if is_first and not is_prompt and not _is_written_by_neighbour(descriptor):
                tell(f"note: nothing came on standard input in {MOMENT_SECONDS:g} s: the prompt goes without it")
                return
            tell("waiting for the end of standard input (Ctrl-C stops; with </dev/null nothing is read)")
            told = True
        if not is_terminal(sys.stdin) and not _is_ready(descriptor, IDLE_SECONDS):
            raise ConfigError(
                f"standard input has sent nothing for {IDLE_SECONDS:g} s and has not ended: close it, or add </dev/null"
            )
        piece = os.read(descriptor, PIECE_BYTES)
        if not piece:
            return
        is_first, total = False, total + len(piece)
        if total > MAX_BYTES:
            limit = f"{MAX_BYTES / 2**20:g} MiB"
            raise ConfigError(f"standard input has more than {limit}: write it to a file and name the file in the prompt")
        yield piece


def _is_ready(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def _is_written_by_neighbour(descriptor: int) -> bool:
    """Return whether another command of the pipeline can still write into the pipe.

    A shell closes its own end, so only the command has it. A program that made a pipe and forgot it is an ancestor.
    """
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return False
    try:
        pipe = Path(f"/proc/self/fd/{descriptor}").readlink()
        writers = {process for process in Path("/proc").iterdir() if process.name.isdigit() and _writes(process, pipe)}
    except OSError:
        return False
    return bool(writers) and not writers & set(_self_and_ancestors())


def _writes(process: Path, pipe: Path) -> bool:
    try:
        for file in (process / "fd").iterdir():
            if file.readlink() == pipe:
                flags = (process / "fdinfo" / file.name).read_text(encoding="ascii").split("flags:")[1].split()[0]
                if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
                    return True
    except (OSError, IndexError, ValueError):  # it has ended, or is another user's
        pass
    return False


def _self_and_ancestors() -> Iterator[Path]:
    from freeact_sub.system.process import ancestors  # noqa: PLC0415

    for process in (os.getpid(), *ancestors(os.getpid())):
        yield Path("/proc") / str(process)
