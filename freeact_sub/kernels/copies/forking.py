"""`fork_copy`: forks this process twice. The first fork becomes a process guard, the second one a kernel of its own.

The guard ends the copy, and all that the copy has started, when this process ends in whatever way, and when it gets SIGTERM.
The copy ends when its guard does. Neither goes back into the code below: the cell that runs continues here only.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from freeact_sub.kernels.forkserver.brancher import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    fork_quietly,
    fork_reporting,
    live_and_exit,
    prctl,
)

MAX_DESCRIPTORS = 1 << 20


def fork_copy(life: Callable[[], None], guard: Sequence[str]) -> tuple[int, int]:
    """Forks a copy. Call it in the main thread.

    Args:
        life: What the copy does, from its first moment to its end.
        guard: The command of its guard, to which `--child` and the copy's process id are added.

    Returns:
        The process ids of the guard, which is a child of this process, and of the copy.

    Raises:
        OSError: The system has no room for two more processes.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    me = os.getpid()
    return fork_reporting(lambda result_writer: be_guard(life, guard, me, result_writer))


def be_guard(life: Callable[[], None], guard: Sequence[str], origin: int, result_writer: int) -> None:
    """Forks the copy, reports it, and becomes the program of the guard."""
    os.setsid()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != origin:
        return
    me = os.getpid()
    copy = fork_quietly()
    if copy == 0:
        be_copy(life, me, result_writer)
    os.write(result_writer, b"%d" % copy)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    os.closerange(3, MAX_DESCRIPTORS)
    os.execv(guard[0], [*guard, "--child", str(copy)])  # noqa: S606  # our own program


def be_copy(life: Callable[[], None], guard: int, result_writer: int) -> NoReturn:
    """Lives the life of a copy."""

    def begin() -> None:
        os.close(result_writer)
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            raise SystemExit(1)
        life()

    live_and_exit(begin)
