"""A process that starts one program and leaves nothing of it behind. Run as a script, with the standard library only.

    python -I -S guard.py HOST_PID [--remove FOLDER] [--bound LINE_BYTES LOG_BYTES] PROGRAM [ARGUMENT ...]
    python -I -S guard.py HOST_PID [--remove FOLDER] --child PID

Local kernels and stdio MCP servers are started through it. It hands its standard streams to the program, ends with the
program's exit code (or by its signal), and kills the program, and everything that the program has started, when

- the program ends,
- it gets SIGTERM itself,
- the process HOST_PID, its parent, ends in whatever way (a pidfd tells; a parent-death signal would follow the parent's
  *thread*).

Processes that left the program's group or session (`setsid`, daemons) are found all the same: the guard is a child
subreaper, so every orphan below it becomes its own child. Where the system lists no processes (macOS) it polls for its
parent, interrupts the program and then kills it, and sends SIGTERM to the rest of its process group.

FOLDER is the program's own (sockets, a log); the guard removes it if the host has ended, or has left `ending` in it.

With `--bound` the program's output goes through the guard: a line on standard output has at most LINE_BYTES, and the
file of standard error at most LOG_BYTES (`bounded_pipes.py`).

With `--child` it guards a child that this process had before it became a guard (a copy of a kernel, `kernels/copies/`).

A program that cannot be started gives exit code 127 (not found) or 126, as in a shell, and a line on standard error.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time

TYPE_CHECKING = False  # the module `typing` would take longer to import than all others
if TYPE_CHECKING:
    from typing import Any

GUARD_COMMAND = (sys.executable, "-I", "-S", __file__)
"""The start of the guard's command line, up to HOST_PID."""

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PF_EXITING = 0x4
"""A flag of a process in Linux (`include/linux/sched.h`, and proc(5))."""
POLL_SECONDS = 0.5
ENDING = "ending"
"""The file by which the host leaves the folder to the guard."""
KILL_ROUNDS = 200
WATCHED_SIGNALS = {signal.SIGCHLD, signal.SIGTERM}
"""Signals handled from the first moment on: one during the start must not be lost."""
FATAL_SIGNALS = {signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
"""Signals that cannot be ignored, or that end a process even if ignored."""


def main(host_pid: int, command: list[str] | int, folder: str | None = None, bounds: tuple[int, int] | None = None) -> int:
    """Runs the command, or guards the child that is there; returns its exit code, negative for a signal."""
    pipes = None if bounds is None else beside("bounded_pipes.py")["Pipes"](*bounds)
    wakeup, wakeup_writer = os.pipe()
    os.set_blocking(wakeup_writer, False)
    signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
    terminated: list[bool] = []
    # a signal to the whole group, such as an interrupt, is for the program
    set_signals(signal.valid_signals() - FATAL_SIGNALS - WATCHED_SIGNALS, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: terminated.append(True))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    host = open_pidfd(host_pid)
    if os.getppid() != host_pid and not isinstance(command, int):
        return 1  # the host ended before we could watch it; a child that is there already is ended below
    child = command if isinstance(command, int) else start(command, pipes)
    release_standard_streams()
    descriptors = [wakeup] if host is None else [wakeup, host]
    ready: list[int] = []
    writable: list[int] = []
    while True:
        code = reap(child)
        if code is not None or terminated or host in ready or os.getppid() != host_pid:
            break
        readers, writers = ([], []) if pipes is None else pipes.waits_for()
        timeout = POLL_SECONDS if host is None else None
        ready, writable, _ = select.select([*descriptors, *readers], writers, [], timeout)
        if wakeup in ready:
            os.read(wakeup, 4096)
        if pipes is not None:
            pipes.go_on(ready, writable)
    if code is None:  # else its number may belong to another process by now
        if children() is None:  # then only the program itself can end those that have left its group
            os.kill(child, signal.SIGINT)
            time.sleep(POLL_SECONDS)
        kill(child)
    end_all()
    if pipes is not None:
        pipes.finish()
    if folder is not None and (os.path.lexists(f"{folder}/{ENDING}") or os.getppid() != host_pid or is_ending(host_pid)):
        beside("removal.py")["remove"](folder)
    return -signal.SIGTERM if code is None else code


def beside(name: str) -> dict[str, Any]:
    """Returns the names that a neighbouring file defines. The file is executed, not imported: there is no package here."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)  # noqa: PTH100, PTH118, PTH120  # pathlib would double the start-up time
    with open(path, "rb") as file:  # noqa: PTH123
        names: dict[str, Any] = {"__name__": name}
        exec(compile(file.read(), path, "exec"), names)  # noqa: S102  # our own
    return names


def start(command: list[str], pipes: Any = None) -> int:
    """Starts the program with default signals; it gets a SIGKILL when this process ends."""
    me = os.getpid()
    child = os.fork()
    if child:
        return child
    code = 126
    try:
        if pipes is not None:
            pipes.become_streams()
        signal.set_wakeup_fd(-1)
        set_signals(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}, signal.SIG_DFL)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.environ.pop("JPY_PARENT_PID", None)  # a kernel would end because its parent, we, is not the host
        if os.getppid() == me:
            os.execvp(command[0], command)  # noqa: S606  # no shell is wanted
    except (OSError, ValueError) as error:
        code = 127 if isinstance(error, FileNotFoundError) else 126
        os.write(2, f"cannot start {command[0]}: {getattr(error, 'strerror', None) or error}\n".encode())
    finally:
        os._exit(code)  # never back into the code of the parent


def set_signals(numbers: set[signal.Signals], action: signal.Handlers) -> None:
    """Ignores these signals, or restores their default."""
    for number in numbers:
        with contextlib.suppress(OSError, ValueError):  # two of them belong to the C library
            signal.signal(number, action)


def release_standard_streams() -> None:
    """Closes our copies of the program's streams: the host must see when the program closes its own."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os.close(null)


def reap(child: int) -> int | None:
    """Reaps every ended process below us; returns the program's exit code if it is among them."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
    return code


def end_all() -> None:
    """Kills every process below us, until none is left."""
    if children() is None and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGTERM)  # we take note of it and stay
    for attempt in range(KILL_ROUNDS):
        for pid in children() or ():
            kill(pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return  # no child is left
        time.sleep(0.001 if attempt < 20 else 0.02)


def is_ending(pid: int) -> bool:
    """Returns whether a live process is about to end: a dying process loses its files before its children.

    The guarded program sees its input closed and ends, and so do we, while our parent is still there.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  # pathlib would double the start-up time
            # the name, in parentheses, may hold anything; the flags are the seventh field after it
            return bool(int(file.read().rpartition(b")")[2].split()[6]) & PF_EXITING)
    except (OSError, ValueError, IndexError):
        return False


def kill(pid: int) -> None:
    """Kills a process that may have ended or changed its user."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def children() -> list[int] | None:
    """Returns our child processes, including adopted orphans. None: the system does not list processes."""
    me, found = os.getpid(), []
    try:
        with os.scandir("/proc") as entries:
            pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    except OSError:
        return None
    if me not in pids:
        return None
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  # pathlib would double the start-up time
                # the name, in parentheses, may hold anything; the parent is the second field after it
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == me:
            found.append(pid)
    return found


def prctl(option: int, value: int) -> None:
    """Calls `prctl`. Linux only; elsewhere the caller's other means have to do."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def open_pidfd(pid: int) -> int | None:
    """Returns a descriptor that becomes readable when the process ends. None: the system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def end_like(code: int) -> None:
    """Ends this process like the program: with its exit code, or by its signal."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has written its core file
        with contextlib.suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


def options(arguments: list[str]) -> tuple[list[str] | int, str | None, tuple[int, int] | None]:
    """Returns the command or the child, the folder to remove, and the bounds on the program's output."""
    folder = bounds = None
    while arguments[0].startswith("--"):
        if arguments[0] == "--child":
            return int(arguments[1]), folder, bounds
        if arguments[0] == "--remove":
            folder, arguments = arguments[1], arguments[2:]
        else:
            bounds, arguments = (int(arguments[1]), int(arguments[2])), arguments[3:]
    return arguments, folder, bounds


if __name__ == "__main__":
    end_like(main(int(sys.argv[1]), *options(sys.argv[2:])))
