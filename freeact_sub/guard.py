"""A process that starts one program and leaves nothing of it behind. Run as a script, with the standard library only.

    python -I -S guard.py HOST_PID PROGRAM [ARGUMENT ...]

Local kernels and stdio MCP servers are started through it. It passes its standard streams on untouched, ends with the
program's exit code (or by its signal), and ends the program, and everything that the program has started, when

- the program ends,
- it gets SIGTERM itself,
- the process HOST_PID ends, in whatever way (a pidfd tells; a parent-death signal would follow the parent's *thread*).

Processes that left the program's group or session (`setsid`, daemons) are found all the same: the guard is a child
subreaper, so every orphan below it becomes its own child. On systems without these calls (macOS) it looks after the
process group and polls for its parent.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_SECONDS = 0.5
KILL_ROUNDS = 200


def main(host_pid: int, command: list[str]) -> int:
    """Run the command; returns the exit code to end with, negative for a signal."""
    wakeup, wakeup_writer = os.pipe()
    os.set_blocking(wakeup_writer, False)
    signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
    terminated = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: terminated.append(True))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the program
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    host = open_pidfd(host_pid)
    if os.getppid() != host_pid:
        return 1  # the host ended before we could watch it
    child = start(command)
    descriptors = [wakeup] if host is None else [wakeup, host]
    while True:
        code = reap(child)
        if code is not None or terminated or os.getppid() != host_pid:
            break
        ready, _, _ = select.select(descriptors, [], [], POLL_SECONDS if host is None else None)
        if wakeup in ready:
            os.read(wakeup, 4096)
    end_all(child)
    return -signal.SIGTERM if code is None else code


def start(command: list[str]) -> int:
    """Start the program with default signals; it gets a SIGKILL when this process ends."""
    me = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == me:
            os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def reap(child: int) -> int | None:
    """Collect every ended process below us; the program's exit code if it is among them."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
    return code


def end_all(child: int) -> None:
    """Kill everything below us, until nothing is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(child, signal.SIGKILL)
    for attempt in range(KILL_ROUNDS):
        for pid in children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return  # no child is left
        time.sleep(0.001 if attempt < 20 else 0.02)


def children() -> list[int]:
    """The processes whose parent we are, orphans that we took in included."""
    me, found = os.getpid(), []
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                # the name, in parentheses, may hold anything; the parent is the second field after it
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == me:
            found.append(pid)
    return found


def prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the caller's other means have to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def open_pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends, or None where there is no such thing."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


if __name__ == "__main__":
    result = main(int(sys.argv[1]), sys.argv[2:])
    if result < 0:
        signal.signal(-result, signal.SIG_DFL) if result != -signal.SIGKILL else None
        os.kill(os.getpid(), -result)
    os._exit(result & 0xFF)
