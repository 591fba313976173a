"""Runs `!cmd` and `pty.spawn`. Sent into every kernel as source: standard library and IPython only.

Like IPython's own, it shows the output of the command as it comes, in a terminal. But nobody types into that terminal: the
input of the command is at its end, and it has no terminal to ask on (`/dev/tty`), like any other program of a kernel. A
program that takes over the terminal to read keys, such as a pager or an editor, would wait for ever: it is ended.
"""

import codecs
import contextlib
import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

SIZE = struct.pack("HHHH", 24, 80, 0, 0)
"""Rows and columns, as pexpect's terminals have them."""
LOOK_SECONDS = 0.05
"""Seconds between looks at whether the command has ended: programs in the background may keep its terminal open."""
DRAIN_SECONDS = 1.0
"""Seconds of output from programs in the background after the command."""
INTERRUPT_SECONDS = 0.2
"""Seconds that an interrupted command has before it is killed."""
FOREVER = float("inf")
READ_BYTES = 65536
SIGNALS = range(1, 65)
EXITED_BY_SIGNAL = 128
"""Exit codes above this are a signal's number plus this: a shell reports so the signal that has ended its command."""


ENDS_OF_INPUT = b"\x04" * 64
"""Ends of input for a program that reads lines from the terminal to which it writes; each read takes one."""
NOBODY_TYPES = "\r\n[ended: the command waits for keys, and nobody can type them]\r\n"
ENVIRONMENT = {"EDITOR": "false", "VISUAL": "false", "GIT_TERMINAL_PROMPT": "0"}
"""Variables with which programs that would start an editor, or ask, fail and advise. ipykernel sets those for pagers."""


Read: TypeAlias = Callable[[int], bytes]
ORIGINAL_SPAWN: Callable[..., int] = pty.spawn


class WaitsForKeysError(Exception):
    """A command that reads keys, which nobody can type."""


def install(module: Any) -> None:
    """Run the commands of a shell from now on. Args: module: the module of its class, which calls its global `system`."""
    if hasattr(module, "system"):
        module.system = system
    pty.spawn = spawn
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def system(command: str) -> int:
    """Run a command, print its output, and return its exit code, or the negative number of the signal that ended it.

    A failure is printed: the code that runs a command with `!` rarely looks at the exit code.
    """
    name = os.environ.get("SHELL", "sh")
    shell = shutil.which(name)
    if shell is None:
        raise OSError(f'"{name}" shell not found')
    code = _run([shell, "-c", command])
    code = EXITED_BY_SIGNAL - code if code - EXITED_BY_SIGNAL in SIGNALS else code
    if code:
        print(f"[exit code {code}]" if code > 0 else f"[ended by signal {-code}]")  # noqa: T201  # as in `_show`
    return code


def spawn(argv: Any, master_read: Read | None = None, stdin_read: Read | None = None) -> int:
    """Run a program, in place of `pty.spawn`, which waits for a keyboard. Code that types (`stdin_read`) gets the original.

    `subprocess` announces the program to the audit hook.
    """
    if stdin_read is not None:
        return ORIGINAL_SPAWN(argv, master_read or read, stdin_read)
    code = _run([argv] if isinstance(argv, str) else [*argv], master_read or read)
    return code << 8 if code >= 0 else -code


def read(terminal: int) -> bytes:
    """Read the output of a program."""
    return os.read(terminal, READ_BYTES)


def _run(argv: list[str], read: Read = read) -> int:
    """Run a program in a terminal, and print its output. Return its exit code, or the negative number of a signal."""
    with _terminal() as (ours, theirs):
        try:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, start_new_session=True)
        finally:
            os.close(theirs)
        try:
            _show(ours, process, read)
            process.wait()  # it may have closed its output before
        except (KeyboardInterrupt, WaitsForKeysError) as cause:
            _signal(process, signal.SIGINT if isinstance(cause, KeyboardInterrupt) else signal.SIGHUP)
            with contextlib.suppress(KeyboardInterrupt, WaitsForKeysError):  # impatient people type it twice
                _show(ours, process, read, time.monotonic() + INTERRUPT_SECONDS)
        finally:
            if process.poll() is None:
                _signal(process, signal.SIGKILL)
            _signal(process, signal.SIGHUP)  # whatever it has left has lost its terminal
            code = process.wait()
    return code


@contextlib.contextmanager
def _terminal() -> Iterator[tuple[int, int]]:
    """Yield two ends of a terminal: one to read, and one for a program, which the caller closes."""
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, SIZE)
        os.write(ours, ENDS_OF_INPUT)
        # Linux passes them on a little later: a program that empties its input and then reads a key must not get one
        select.select([theirs], [], [], DRAIN_SECONDS)
        yield ours, theirs
    finally:
        os.close(ours)


def _show(terminal: int, process: "subprocess.Popen[bytes]", read: Read, until: float = FOREVER) -> None:
    """Print output until no program can write any more, or the process has ended and all its output is read."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while (now := time.monotonic()) < until:
        if process.poll() is not None:
            until = min(until, now + DRAIN_SECONDS)
        ready, _, _ = select.select([terminal], [], [], LOOK_SECONDS)
        try:
            data = read(terminal) if ready else b""
        except OSError:  # the last one has closed its end
            return
        print(decoder.decode(data), end="")  # noqa: T201  # it belongs to the output of the cell
        sys.stdout.flush()
        if not ready and process.returncode is not None:
            return
        if process.returncode is None and until == FOREVER and _passes_keys(terminal):
            print(NOBODY_TYPES, end="", flush=True)  # noqa: T201  # as above
            raise WaitsForKeysError


def _passes_keys(terminal: int) -> bool:
    """Whether a program has switched the terminal to passing on single keys instead of lines."""
    try:
        return not termios.tcgetattr(terminal)[3] & termios.ICANON
    except termios.error:  # not every system tells it at this end
        return False


def _signal(process: "subprocess.Popen[bytes]", number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
