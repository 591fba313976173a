"""Forks a copy of a notebook's kernel (`fork_copy`), which becomes a kernel of its own around the same shell and variables.

It forks twice. The first fork becomes a process guard, the second one the copy. The guard ends the copy, and all that the
copy has started, when the origin ends in any way, and when it gets SIGTERM. The copy ends when its guard does. Neither
goes back into the code below: the running cell continues in the origin only.

`forkserver/detach.py` does the same for kernels that our fork server started, and names what must not be touched. Here the
kernel is any that Jupyter has started, with a host of agents in it: the host's parts (magics, environment, files that are
open for writing) end here, before the wall is built and before any code runs.
"""

import contextlib
import ctypes
import fcntl
import gc
import importlib
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from freeact_sub.kernels.forkserver import borrowed_app, borrowed_streams, detach
from freeact_sub.kernels.forkserver.brancher import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    fork_quietly,
    fork_reporting,
    live_and_exit,
    prctl,
)
from freeact_sub.kernels.guest import compiled_guest, state
from freeact_sub.kernels.wall import wall
from freeact_sub.system.process import stat_fields

KEPT_VARIABLES: Final = ("MPLBACKEND",)
"""Variables that ipykernel has set in the environment, so that figures are outputs of a cell."""
ENVIRONMENT_FIELDS: Final = slice(47, 49)
"""Bounds of a process's environment in memory: fields 50 and 51 of `/proc/PID/stat`, after the name."""

ARGUMENT_FIELDS: Final = slice(45, 47)
"""Bounds of a process's command line in memory."""
PIECE_BYTES: Final = 1 << 26
SEARCH_SECONDS: Final = 0.5
"""Seconds to search for a key in the memory of a notebook's kernel, which may hold gigabytes: small pieces are first."""
SECRET_BYTES: Final = 16
COMMAND: Final = b"ipykernel_launcher"
OWN_REFERENCES: Final = 4
"""References that only the environment itself holds to a value, for example as a constant in code."""


def become_copy(app: Any, loop: Any, request: Mapping[str, Any], forget: Callable[[], None]) -> None:
    """Let go of the kernel that this process is a fork of, open another one, and run it until it ends.

    Args:
        app: The `IPKernelApp`.
        loop: The event loop on which the fork was made.
        request: The host's choices: `log`, `connection`, `connection_file`, `environment`, `folders`, `cwd`, `wall`, and
            the guest's: `servers`, `skills`, `audit`.
        forget: Takes the host of agents out of the shell.
    """
    # by these names `detach` finds them
    sys.modules.setdefault("freeact_borrowed_app", borrowed_app)
    sys.modules.setdefault("freeact_borrowed_streams", borrowed_streams)
    gc.freeze()  # collecting would copy pages, and finalize objects of the origin
    old, shell = app.kernel, app.shell
    for name in ("stdout", "stderr"):
        if not hasattr(old, f"_{name}"):
            setattr(old, f"_{name}", getattr(sys, name))
    close_what_writes()
    detach.leave_descriptors(request["log"], old, -1, None)
    key = bytearray(old.session.key)
    detach.KEPT.append((detach.forget_address(app, old), old, loop, shell.history_manager.db))
    overwrite_everywhere(key)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # the log, until there are new sockets
    detach.leave_loop(loop)
    detach.leave_cell(shell, old)
    shell.history_manager.enabled = shell.history_manager.using_thread = False
    forget()
    leave_guest(shell)
    # a variable `agent` would hide the agent's own; it is kept, for its end would run code of its type
    detach.KEPT.append((shell.user_ns.pop("agent", None), shell.user_ns_hidden.pop("agent", None)))
    state.begin(shell)
    replace_environment(request["environment"])
    replace_command_line()
    for path in request["folders"]:
        Path(path).mkdir(parents=True, exist_ok=True)
    os.chdir(request["cwd"])
    detach.seed()
    if request["wall"] is not None:
        wall.build(request["wall"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    app.poller = None
    app.subshells = True
    app.__class__ = sys.modules["freeact_borrowed_app"].ForkedKernelApp  # without debugger and ports
    detach.open_app(app, dict(request), old)
    install_guest(shell, request)
    app.start()


def install_guest(shell: Any, request: Mapping[str, Any]) -> None:
    """Install the guest: the object that code finds as `agent`. It was compiled before the fork."""
    program, names = compiled_guest()
    exec(program, dict(names))  # noqa: S102  # our own
    sys.modules["freeact_guest.skills"].install(request["skills"])
    loop = importlib.import_module("tornado.ioloop").IOLoop.current().asyncio_loop
    sys.modules["freeact_guest.agent"].install(shell, request["servers"], loop, request["audit"])


def leave_guest(shell: Any) -> None:
    """Leave the guest of our kernelspec's kernel: its functions would end this process as a half of that kernel."""
    if (halves := sys.modules.get("freeact_guest.halves")) is not None:
        halves.HALVES.kernel, halves.HALVES.is_of_kernel = os.getpid(), True
    for functions in shell.events.callbacks.values():
        functions[:] = [each for each in functions if not str(each.__module__).startswith("freeact_guest.")]


def close_what_writes() -> None:
    """Take away the files that are open for writing: the text of this process would be in the user's files.

    The numbers stay taken, so that no object closes a file of ours.
    """
    nothing = os.open("/", os.O_PATH | os.O_CLOEXEC)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  # pathlib would make more of them
        with contextlib.suppress(OSError):  # the listing's own is closed by now
            descriptor = int(name)
            flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
            if stat.S_ISREG(os.fstat(descriptor).st_mode) and flags & os.O_ACCMODE != os.O_RDONLY and descriptor > 2:
                os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)


def replace_environment(environment: Mapping[str, str]) -> None:
    """Give this process another environment, and overwrite the one that it had, which may hold keys.

    Its values are where the process began, where the C library has put later ones, and in objects of Python.
    """
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    overwrite_variables()
    for value in os.environb.values():
        if len(value) > 1 and sys.getrefcount(value) <= OWN_REFERENCES:
            detach.overwrite(value)
    os.environ.clear()
    os.environ.update({**kept, **environment})
    start, end = map(int, stat_fields("self")[ENVIRONMENT_FIELDS])
    if start:
        ctypes.memset(start, 0, end - start)


def replace_command_line() -> None:
    """Overwrite the command line, which names the file with the addresses and the key of the origin."""
    sys.orig_argv[:] = [sys.executable]
    start, end = map(int, stat_fields("self")[ARGUMENT_FIELDS])
    if start:
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, COMMAND, min(len(COMMAND), end - start))


def overwrite_everywhere(secret: bytearray) -> None:
    """Overwrite a secret in all of this memory, also in texts that were read once, and last in `secret`."""
    if len(secret) < SECRET_BYTES:
        secret[:] = bytes(len(secret))
        return  # a text as short as this one is not only the secret
    library = ctypes.CDLL(None)
    library.memmem.restype = ctypes.c_void_p
    own = (ctypes.c_char * len(secret)).from_buffer(secret)
    until = time.monotonic() + SEARCH_SECONDS
    for start, end in sorted(anonymous_memory(), key=lambda place: place[1] - place[0]):
        for begin in range(start, end, PIECE_BYTES):
            if time.monotonic() > until:
                break
            place, last = begin, min(begin + PIECE_BYTES + len(secret), end)  # it may stand across the end of a piece
            while found := library.memmem(
                ctypes.c_void_p(place), ctypes.c_size_t(last - place), own, ctypes.c_size_t(len(secret))
            ):
                if found != ctypes.addressof(own):
                    ctypes.memset(found, 0, len(secret))
                place = found + len(secret)
    ctypes.memset(own, 0, len(secret))


def anonymous_memory() -> list[tuple[int, int]]:
    """Return the bounds of this process's writable memory that is not of a file."""
    found = []
    with Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as file:
        for line in file:
            addresses, rights, _, _, number, *_ = line.split(maxsplit=5)
            if rights.startswith("rw") and rights.endswith("p") and number == "0":
                start, end = (int(address, 16) for address in addresses.split("-"))
                found.append((start, end))
    return found


def overwrite_variables() -> None:
    """Overwrite the values of variables that the C library has, without making copies of them."""
    library = ctypes.CDLL(None)
    library.strchr.restype = ctypes.c_void_p
    entries, number = ctypes.POINTER(ctypes.c_void_p).in_dll(library, "environ"), 0
    while entries and (entry := entries[number]):
        if value := library.strchr(ctypes.c_void_p(entry), ord("=")):
            ctypes.memset(value + 1, 0, library.strlen(ctypes.c_void_p(value + 1)))
        number += 1


MAX_DESCRIPTORS = 1 << 20


def fork_copy(life: Callable[[], None], guard: Sequence[str]) -> tuple[int, int]:
    """Fork a copy. Call it in the main thread.

    Args:
        life: The copy's work, from its first moment to its end.
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
    """Fork the copy, report it, and become the program of the guard."""
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
    """Live the life of a copy."""

    def begin() -> None:
        os.close(result_writer)
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            raise SystemExit(1)
        life()

    live_and_exit(begin)
