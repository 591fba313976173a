"""The trial of a cell that nobody has approved yet: the further needs of its branch.

Runs in kernels, Linux only: standard library only. `reason_against` is asked in the kernel that is to be copied; all else
runs in the copy, whose mounts the host has sealed (`kernels/files/layer.py`) and whose Landlock domain is entered.
"""

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import functools
import json
import mmap
import os
import random
import resource
import shutil
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

from . import differences, hook, state, taken, used, values
from .halves import HALVES
from .line import OWN_CHILDREN, OWN_ENDS, received

HARMLESS_DEVICES = {f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx")}
SEMAPHORES = "/dev/shm/sem."  # noqa: S108  # names in a list, not files
"""Shared mappings of which a trial gets its own (`own_semaphores`). Libraries such as `tqdm` make some."""
PROTECTION, OWN_MAPPING = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | 0x10
"""Arguments for `mmap`; `MAP_FIXED` replaces the old mapping."""
PR_SET_PDEATHSIG = 1
LIBRARIES_OF_KERNELS = {"ipykernel", "IPython", "tornado"}
"""Libraries whose tasks are the kernel's own."""
DIGEST_SECONDS = 0.2
"""Time limit for the variables before the cell, and again after it; later ones are compared by identity."""
KEEPER_SECONDS = 2.0
"""Time limit for an answer of the process that keeps the variables."""
TRACKER = b"from multiprocessing.resource_tracker import main"
"""Code of the process that removes what `multiprocessing` leaves behind. Since Python 3.14 each lock starts it."""
tracker_pipes: list[int] = []
"""The kernel's end of the pipe to the tracker."""
random_states: list[Any] = []
"""The state of `random` before the fork, which seeds it anew."""
keeper: list[socket.socket] = []
"""The connection to the process that keeps the variables from before the cell."""
origins: list[int] = []
"""The process that was copied."""
left_threads: list[str] = []
"""Names of the kernel's threads that only waited at the fork: the trial does not have them."""
found: dict[str, Any] = {}
"""Reports on the variables: `before`, `after`."""


confined: list[bool] = []
"""Marks that `confine` has been called, if not empty."""


# --- in the kernel that would be copied


def note_own_ends() -> None:
    """Note the kernel's own pipes and connections. Called before its first cell."""
    OWN_ENDS.clear()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own is closed by now
            OWN_ENDS.add(os.fstat(int(name)).st_ino)


def reason_against(workspace: str) -> str:
    """Return why this kernel cannot be tried now: it has something that a copy would share, or not have. Empty: it can."""
    random_states[:], origins[:] = [random.getstate()], [os.getpid()]
    own, ends = {*OWN_CHILDREN}, {*OWN_ENDS}  # before those that have ended since are forgotten
    processes = [child for child in children() if int(child) not in own]
    tracker = tracker_among(processes)
    tracker_pipes[:] = [] if tracker is None else [sys.modules["multiprocessing.resource_tracker"].getfd()]
    if shared := shared_memory():
        return f"it shares memory, which a copy would change as well: {shared}"
    if any(child != tracker for child in processes):
        return "programs that it has started are still running, or nobody has waited for their end"
    if task := pending_task():
        return f"a task of its event loop has not ended, and a copy would not have it: {task}"
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own is closed by now
            if int(name) not in tracker_pipes and (reason := open_file_against(int(name), workspace, ends)):
                return reason
    return ""


def tracker_among(processes: list[str]) -> str | None:
    """Return the process of the `TRACKER`, if it is among them."""
    for child in processes if "multiprocessing.resource_tracker" in sys.modules else ():
        with contextlib.suppress(OSError), open(f"/proc/{child}/cmdline", "rb") as file:
            if TRACKER in file.read():
                return child
    return None


def shared_memory() -> str:
    """Return a mapping that this process shares with others and writes, or could make writable. Empty: none."""
    shared = [(rights, path) for _, rights, path in mappings() if "s" in rights and not path.startswith(SEMAPHORES)]
    for rights, path in shared:
        if "w" in rights:
            return path or "anonymous memory"
    return writable_yet() if shared else ""


def mappings() -> Iterator[tuple[str, str, str]]:
    """Yield the mappings of this process: addresses, rights, path."""
    with open("/proc/self/maps", errors="replace") as file:
        for line in file:
            fields = line.rstrip("\n").split(maxsplit=5)
            yield fields[0], fields[1], fields[5] if len(fields) > 5 else ""


def writable_yet() -> str:
    """Return a read-only shared mapping of something that was opened to be written. Empty: there is none."""
    path = ""
    with open("/proc/self/smaps", errors="replace") as file:
        for line in file:
            fields = line.rstrip("\n").split(maxsplit=5)
            if "-" in fields[0]:
                path = fields[5] if len(fields) > 5 else "anonymous memory"
            elif fields[0] == "VmFlags:" and {"sh", "mw"} <= {*line.split()} and not path.startswith(SEMAPHORES):
                return path
    return ""


def children() -> list[str]:
    """Return the process ids of this process's children, also of ended ones that nobody has waited for."""
    found: list[str] = []
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/children") as file:
            found += file.read().split()
    return found


def pending_task() -> str:
    """Return the name of the code of a task that cells have started. Empty: there is none."""
    for task in asyncio.all_tasks():
        frame = getattr(task.get_coro(), "cr_frame", None)
        if frame is None or str(frame.f_globals.get("__name__")).partition(".")[0] not in LIBRARIES_OF_KERNELS:
            return getattr(task.get_coro(), "__qualname__", "") or task.get_name()
    return ""


def open_file_against(descriptor: int, workspace: str, own: set[int]) -> str:
    """Return why an open file prevents a trial. Empty: it does not. Args: own: `OWN_ENDS`."""
    found, path = os.fstat(descriptor), os.readlink(f"/proc/self/fd/{descriptor}")
    kind = found.st_mode
    writes = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    folder = os.environ.get(values.FOLDER, "")
    own_log = f"{folder}/kernel.log"
    has_no_name = stat.S_ISREG(kind) and path.endswith(" (deleted)") and found.st_ino not in own
    if has_no_name and (writes or f"{path}/".startswith(f"{workspace}/")):  # else the copy opens it anew, to be read
        return "a file is open that has no name any more, which cannot be copied"
    if stat.S_ISREG(kind) and writes and path != own_log and not f"{path}/".startswith(f"{workspace}/"):
        return f"a file outside of the workspace is open for writing: {path}"
    if stat.S_ISCHR(kind) and writes and path not in HARMLESS_DEVICES and not path.startswith("/dev/pts/"):
        return f"a device is open: {path}"
    if stat.S_ISSOCK(kind):
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            is_own = found.st_ino in own or (
                connection.family == socket.AF_UNIX and os.fsdecode(connection.getsockname()).startswith(f"{folder}/k-")
            )
            if not is_own:
                return "it has an open connection, which cannot be copied"
    if stat.S_ISFIFO(kind) and found.st_ino not in own:
        return "a pipe is open, which cannot be copied"
    return ""


# --- in the trial


def take(before: Any) -> None:
    """Take over the notes from before the kernel was copied. Args: before: this module in that kernel."""
    tracker_pipes[:], random_states[:], origins[:] = before.tracker_pipes, before.random_states, before.origins


def confine(bounds: dict[str, Any]) -> None:
    """Limit the memory of this process and of all that it starts, and shut the network, for good."""
    sys.modules["freeact_seccomp"].install(walled=True, network=False, connect=False, join=False, trial=True)
    more = bounds["memory_bytes"]
    lower(resource.RLIMIT_DATA, data_bytes() + more)
    lower(resource.RLIMIT_FSIZE, more)
    own_semaphores()
    for pipe in tracker_pipes:  # what a trial makes is not removed by the kernel's process
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, pipe)
        os.close(nowhere)
    confined.append(True)
    if (tempfile := sys.modules.get("tempfile")) is not None:
        tempfile.tempdir = None  # type: ignore[attr-defined]  # found out in the environment of the origin


def own_semaphores() -> None:
    """Put memory of this process in the place of each semaphore of the origin, with the same state.

    A semaphore that a trial has taken would stay taken there for ever.
    """
    libc = sys.modules["freeact_seccomp"].LIBC
    for addresses, rights, path in [*mappings()]:
        if "s" in rights and path.startswith(SEMAPHORES):
            begin, end = (int(address, 16) for address in addresses.split("-"))
            held = ctypes.string_at(begin, end - begin)
            place, size = ctypes.c_void_p(begin), ctypes.c_size_t(end - begin)
            found = libc.mmap(place, size, PROTECTION, OWN_MAPPING, -1, ctypes.c_long(0))
            if found == -1:
                raise OSError(ctypes.get_errno(), "a semaphore cannot be copied")
            ctypes.memmove(begin, held, len(held))


def draw_the_same() -> None:
    """Draw the random numbers that the kernel would draw."""
    for drawn in random_states:
        random.setstate(drawn)


def lower(limit: int, value: int) -> None:
    """Lower a limit, if it is higher."""
    hard = resource.getrlimit(limit)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))


def data_bytes() -> int:
    """Return the memory of this process that counts for its limit."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmData:")) << 10


def ask_more(watches: list[Any]) -> None:
    """Ask the host about actions that end a trial and need no question elsewhere: a look-up of a host, a socket."""
    for watch in watches:
        watch.handlers |= network_handlers(watch.line.ask)


def network_handlers(ask: Any) -> dict[str, Any]:
    """Return the handlers by audit event."""

    def find(host: Any, *_: Any) -> None:
        ask(kind="network", host=os.fsdecode(host) if isinstance(host, str | bytes) else "")

    def make(_connection: Any, family: int, *_: Any) -> None:
        if family != socket.AF_UNIX:
            ask(kind="network", host="")

    return {
        "socket.getaddrinfo": find,
        "socket.gethostbyname": find,
        "socket.__new__": make,
        "socket.bind": lambda *_: ask(kind="network", host=""),
    }


def across_folders(call: Any, *, stays: bool = False) -> Any:
    """Let `os.rename` or `os.link` go from folder to folder of the workspace, as outside of a trial.

    In a trial Linux refuses it (EXDEV): an overlay does not move folders, and Landlock nothing into another folder where not
    all domains of a process, also those that guard no files, have rules about that. Programs copy by themselves then.

    Args:
        call: The function.
        stays: The file stays where it is, too.
    """

    def go(src: Any, dst: Any, **how: Any) -> None:
        try:
            call(src, dst, **how)
        except OSError as error:
            if error.errno != errno.EXDEV or how or not on_one_mount(src, dst):
                raise
        else:
            return
        is_folder = os.path.isdir(src) and not os.path.islink(src)
        if os.path.isdir(dst) and not os.path.islink(dst):
            os.rmdir(dst)
        elif os.path.lexists(dst):
            os.unlink(dst)
        if is_folder:
            shutil.copytree(src, dst, symlinks=True)
            shutil.rmtree(src)
        else:
            shutil.copy2(src, dst, follow_symlinks=False)
            if not stays:
                os.unlink(src)

    return functools.wraps(call)(go)


def on_one_mount(*paths: Any) -> bool:
    """Whether the folders of these paths are on one mount."""
    return len({os.stat(os.path.dirname(os.path.abspath(os.fspath(path)))).st_dev for path in paths}) == 1


def before() -> None:
    """Note the variables. Called once, before the cell."""
    if not confined:
        raise RuntimeError("a branch of its provider has no wall for a trial")
    os.rename, os.replace, os.link = (
        across_folders(os.rename),
        across_folders(os.replace),
        across_folders(os.link, stays=True),
    )
    os.wait, os.waitpid = for_programs_of_cells(os.wait), for_programs_of_cells(os.waitpid)
    shell = state.shell_here()
    state.begin(shell)
    found["before"] = state.report(shell, seconds=DIGEST_SECONDS, pickler=taken.Whole)
    with contextlib.suppress(OSError):  # there is no room for a process
        keep()
    draw_the_same()
    taken.begin(shell)


def keep() -> None:
    """Fork a process that keeps the variables as they are now, and compares them with later ones (`differences`)."""
    here, there = socket.socketpair()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        with there, hook.nothing_asked(), HALVES.forking_for_kernel():
            pid = os.fork()
            if pid == 0:
                be_keeper(here, there)
        OWN_CHILDREN.add(pid)
        here.settimeout(KEEPER_SECONDS)  # the cell may stop it
        keeper[:] = [here]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def be_keeper(trial: socket.socket, asked: socket.socket) -> NoReturn:
    """Run the process that keeps the variables."""
    try:
        trial.close()
        sys.modules["freeact_seccomp"].LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if file := asked.recv(values.TEXT_CHARS).decode():  # nothing comes if the trial has ended
            asked.sendall(differences.compare(file, state.variables(state.shell_here())))
    finally:
        os._exit(0)


def for_programs_of_cells(call: Any) -> Any:
    """Let `os.wait` or `os.waitpid` fail if there is nothing to wait for but the keeper."""

    def wait(pid: int = -1, *options: int) -> Any:
        if pid == -1 and all(int(child) in OWN_CHILDREN for child in children()):
            raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD))
        return call(*((pid, *options) if options else ()))

    return functools.wraps(call)(wait)


def after(file: str) -> None:
    """Write the variables before and after the cell into a new file of the trial's scratch folder."""
    shell = state.shell_here()
    found["after"] = state.report(shell, seconds=DIGEST_SECONDS, pickler=taken.Whole)
    told: dict[str, Any] = {
        "programs": used.programs_run(),
        "bound": bound_met(),
        "threads": left_threads,
        "origin": origins,
    }
    with contextlib.suppress(Exception):  # border: code of the values' types; without facts the cell runs again
        told["taken"] = facts = taken.facts(shell, found["before"], found["after"])
        if task := pending_task():
            facts["against"] = f"it leaves a task: {task}"
    with contextlib.suppress(Exception):  # border: the cell may have ended the keeper, or closed the pipes
        digests, later = ({name: each["digest"] for name, each in found[time].items()} for time in ("before", "after"))
        names = [name for name, digest in digests.items() if digest != later.get(name, digest) or not digest]
        differences.write(f"{file}-now", names, state.variables(shell))
        keeper[0].sendall(f"{file}-now".encode())
        found["differences"] = json.loads(received(keeper[0]))
    told |= found
    state.write_new(file, json.dumps(told).encode())


def bound_met() -> str:
    """Return the bound of the trial that has ended the cell: `memory`, `file`. Empty: none has.

    Libraries raise other errors while they handle that one, or because of it, so all of the chain counts.
    """
    errors, seen = [getattr(state.shell_here().last_execution_result, "error_in_exec", None)], set()
    while errors:
        error = errors.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        number = error.errno if isinstance(error, OSError) else None
        if isinstance(error, MemoryError) or number == errno.ENOMEM:
            return "memory"
        if number == errno.EFBIG:
            return "file"
        errors += [error.__cause__, error.__context__, *(error.exceptions if isinstance(error, BaseExceptionGroup) else ())]
    return ""
