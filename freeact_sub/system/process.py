"""The current process and its neighbours: their state in Linux's `/proc`, and values that a process has once.

Signals that it has inherited from its starter, ignored or blocked, outlast the start of a program. Window managers,
supervisors and shells leave them so, mostly by mistake. With SIGCHLD ignored, nobody learns how a process has ended: no
hook, no command, no test of the machine's wall. Some are meant, and are kept: SIGHUP (`nohup`), SIGINT and SIGQUIT (a job in
the background), and the signals of job control. Priority, limits and the mask of file modes are its own to decide.
"""

import ctypes
import functools
import os
import random
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

from freeact_sub.system.guard import open_pidfd

PR_GET_CHILD_SUBREAPER: Final = 37


def stat_fields(process: int | Literal["self"]) -> list[str]:
    """Return the fields of `/proc/PID/stat` after the name, which may hold anything: first the state, then the parent.

    Raises:
        OSError: The process has ended, or this is not Linux.
    """
    return Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def ancestors(process: int) -> Iterator[int]:
    """Yield the process ids of a process's parent, grandparent and so on, as far as they can be read."""
    while process > 0:
        try:
            process = int(stat_fields(process)[1])
        except OSError:
            return
        if process:
            yield process


@functools.cache
def missing_for_forks(*, pidfds: bool = False) -> str:
    """Return the means that copies of live processes need and this system lacks, in words. Empty: it has them.

    Without them nobody knows all threads of a process, or the processes that an ended one has left.

    Args:
        pidfds: Whether descriptors of processes are needed too.
    """
    lacks = [] if Path(f"/proc/self/task/{os.getpid()}/children").exists() else ["`/proc` that lists threads and children"]
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None or prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(ctypes.c_int()), 0, 0, 0):
        lacks.append("child subreapers (`prctl`)")
    if pidfds and (descriptor := open_pidfd(os.getpid())) is not None:
        os.close(descriptor)
    elif pidfds:
        lacks.append("pidfds")
    return ", no ".join(lacks)


MEANT: Final = frozenset(
    ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGPIPE", "SIGXFSZ", "SIGKILL", "SIGSTOP")
)
"""Signals that stay ignored; Python itself ignores SIGPIPE and SIGXFSZ."""


def renew_signals() -> None:
    """Unblock all signals, and ignore none that the starter cannot mean. For our own programs, at their start."""
    if sys.platform == "win32":
        return
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals():
        if getattr(number, "name", "") not in MEANT and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def hear_of_children() -> None:
    """Make the system report the ends of processes, if it does not. For the program of a user of the library."""
    is_main = threading.current_thread() is threading.main_thread()
    if sys.platform != "win32" and is_main and signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


PIPE_CLOSED: Final = 141
"""The exit status of a command whose output nobody reads any more, as a shell reports it for other programs."""


def output_is_left() -> bool:
    """Return whether nobody reads standard output any more; unwritten output is dropped then."""
    try:
        stdout = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # there is none, it is closed, or it is no file
        return False
    poll = select.poll()
    poll.register(stdout, 0)
    if not any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
        return False
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stdout)  # else Python complains when it writes the rest at its end
    os.close(null)
    return True


chance: Final = random.Random()  # noqa: S311  # not a secret
"""Random numbers for samples and pauses, apart from the `random` that a user's program may have seeded."""


def state_folder() -> Path:
    """Return the folder of all sessions: `freeact` in `$XDG_STATE_HOME` or `~/.local/state`."""
    folder = os.environ.get("XDG_STATE_HOME", "")
    return (Path(folder) if folder.startswith("/") else Path.home().absolute() / ".local" / "state") / "freeact"


class Window:
    """The window of a terminal; a program without one leaves it as it is."""

    def __init__(self) -> None:
        self.columns: Callable[[], int] = lambda: 0
        """The number of columns of a line of output; 0: unknown."""


WINDOW = Window()
"""The terminal of this process in which a person reads the output of cells. Kernels hear its width."""

_found: set[str] = set()
"""Secrets that this process learns while it runs: refreshed tokens. They are never written into a session."""


def add_late_secret(secret: str) -> None:
    """Note a secret; an empty one is ignored."""
    if secret:
        _found.add(secret)


def late_secrets() -> tuple[str, ...]:
    """Return all late secrets, the longest first, since one may be part of another. Any thread may call it."""
    return tuple(sorted(_found.copy(), key=len, reverse=True))
