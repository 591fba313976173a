"""`fork_copy`: forks this process twice. The first fork becomes a process guard, the second one a kernel of its own.

The guard ends the copy, and all that the copy has started, when this process ends in whatever way, and when it gets SIGTERM.
The copy ends when its guard does. Neither goes back into the code below: the cell that runs continues here only.
"""

import contextlib
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import NoReturn

from freeact_sub.kernels.forkserver.brancher import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, live_and_exit, prctl, reap

REPORT_BYTES = 300
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
    me, report = os.getpid(), b""
    result, result_writer = os.pipe()
    # an interrupt, which goes to the whole group, is for this process only
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        between = fork_quietly()
        if between == 0:
            be_guard(life, guard, me, result_writer)
        os.close(result_writer)
        result_writer = -1
        report = os.read(result, REPORT_BYTES)
        if not report.isdigit():
            reap(between)
            raise OSError(report.decode(errors="replace") or "the process of its guard ended")
    finally:
        os.close(result)
        if result_writer >= 0:
            os.close(result_writer)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return between, int(report)


def be_guard(life: Callable[[], None], guard: Sequence[str], origin: int, result_writer: int) -> NoReturn:
    """Forks the copy, reports it, and becomes the program of the guard."""
    try:
        os.setsid()
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        if os.getppid() != origin:
            os._exit(1)
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
    except BaseException as error:  # noqa: BLE001  # border: the end of this process
        with contextlib.suppress(OSError):
            os.write(result_writer, str(error).encode()[:REPORT_BYTES])
    finally:
        os._exit(1)


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


def fork_quietly() -> int:
    """Forks without a warning about threads, which were checked before (`safety.py`)."""
    halves = sys.modules.get("freeact_guest.halves")  # there if the notebook's kernel is one of ours
    quiet = contextlib.nullcontext() if halves is None else halves.HALVES.forking_for_kernel()
    with warnings.catch_warnings(), quiet:
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()
