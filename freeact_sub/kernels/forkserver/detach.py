"""The steps by which a fork of a running kernel becomes a kernel of its own, around the same shell and variables.

It shares no socket, thread or event loop with its origin: it makes new ones, on top of the stack on which it was forked.
The zmq contexts and loops of the origin must not be touched. Their descriptors are the same open files: to remove
one from an epoll here would remove it there. So every inherited pipe, socket and event descriptor is covered, before
anything else, by one that can do nothing, and the old objects are kept for ever, so that none of them cleans up (`KEPT`).

Shell, app and output streams stay the same objects, for code refers to them: extensions, loggers, `get_ipython()`. Their
connections are new.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import gc
import importlib
import os
import signal
import stat
import sys
import types
from typing import Any

PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
ADDRESS = (*PORTS, "_ports", "session", "connection_file", "curve_publickey", "curve_secretkey")
"""Attributes of an app on where its kernel is reached, and by whom."""
BYTES_HEADER = sys.getsizeof(b"") - 1
"""The offset of the content in a `bytes` object."""
KEPT: list[Any] = []
"""Objects of the origin that a branch must never finalize."""


def become_kernel(app: Any, requests: Any, request: dict[str, Any], kept: int) -> None:
    """Lets go of the origin, and opens a kernel around the shell and its variables.

    Args:
        app: The `IPKernelApp`.
        requests: The `Requests` of the guest.
        request: The host's message (`kernels/local.py`).
        kept: A descriptor that stays as it is.
    """
    gc.freeze()  # collecting would copy pages and finalize objects of the origin
    walls = None if request["trial"] is None else take_walls(request["trial"]["sources"])
    if request["joins"] is not None:
        join(request["joins"])
    old = app.kernel
    # in a trial no file is left at the mount at which the origin has it: it may be written there
    leave_descriptors(request["log"], old, kept, ["", ""] if request["trial"] else request["moved"])
    KEPT.append([watch.line for watch in sys.modules["freeact_guest.hook"].WATCHES])
    KEPT.append((forget_address(app, old), old, requests.waiting, requests.blocked, requests.loop))
    leave_loop(requests.loop)
    leave_cell(app.shell, old)
    os.environ.update(request["environment"])
    for path in request["folders"]:
        os.makedirs(path, exist_ok=True)
    if request["trial"] is None:
        seed()
    if request["moved"] is not None:
        move(*request["moved"])
    if request["wall"] is not None and "landlock" in request["wall"]["pieces"]:
        # a domain of its own within the origin's: neither the origin nor another branch of it is to be reached from here
        sys.modules["freeact_wall"].restrict_files(request["wall"])
    if walls is not None:
        walls["freeact_guest.trial"].confine(request["trial"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    open_app(app, request, old)
    loop = importlib.import_module("tornado.ioloop").IOLoop.current().asyncio_loop
    requests.errands.clear()
    sys.modules["freeact_guest.agent"].install(app.shell, request["servers"], loop, request["audit"], requests)
    if request["moved"] is not None:  # nobody else has the files that are used here
        sys.modules["freeact_guest.used"].USED.begin(lambda _: None)
    if walls is not None:
        walls["freeact_guest.trial"].ask_more(sys.modules["freeact_guest.hook"].WATCHES)
        walls["freeact_seccomp"].refuse_names()


def take_walls(sources: dict[str, str]) -> dict[str, Any]:
    """Makes the modules that build the walls of a trial anew: in this memory code of cells may have changed them.

    Args:
        sources: By name, sent by the host, which looks at the result from outside (`wall/of_trials.py`).

    Returns:
        The modules.
    """
    before = sys.modules["freeact_guest.trial"]
    made = {}
    for name, source in sources.items():
        module = made[name] = sys.modules[name] = types.ModuleType(name)
        module.__package__ = name.rpartition(".")[0]
        exec(compile(source, f"<{name}>", "exec"), module.__dict__)  # noqa: S102  # our own
    made["freeact_guest.trial"].take(before)
    return made


def forget_address(app: Any, old: Any) -> Any:
    """Overwrites the key of the origin, and forgets its addresses: code here would have the origin run code by them.

    Returns:
        The other attributes of the app, which must be kept.
    """
    for session in (app.session, old.session):
        overwrite(session.key)
        session.key = b""
    for name in ("curve_publickey", "curve_secretkey"):
        if getattr(app, name, None) is not None:
            overwrite(getattr(app, name))
            setattr(app, name, None)
    for config in (app.config, app.cli_config):
        for name in ADDRESS:
            config.IPKernelApp.pop(name, None)
        config.Session.pop("key", None)
    app.argv = []
    app.heartbeat.port, app.heartbeat.addr = 0, ("", 0)
    state = sys.modules["freeact_borrowed_app"].state_of(app)
    for part in state:
        for name in ADDRESS:
            part.pop(name, None)
    return state


def overwrite(secret: bytes) -> None:
    """Overwrites a secret where it stands. One byte may be any other object's."""
    if len(secret) > 1:
        ctypes.memset(id(secret) + BYTES_HEADER, 0, len(secret))


def leave_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Detaches from the origin's event loop, whose tasks run in the origin only."""
    signal.set_wakeup_fd(-1)
    sys.modules["freeact_borrowed_app"].leave_running_loop(loop)  # the origin's code is never returned to
    asyncio.set_event_loop(asyncio.new_event_loop())
    guest = sys.modules.get("freeact_guest.descriptors")
    if guest is not None:  # there is none in a copy of a kernel of Jupyter's own
        guest.take_over_contexts()


def join(folder: str) -> None:
    """Enters the namespaces in which the copy is at the workspace's own path. Args: folder: the private folder."""
    layer, here = sys.modules["freeact_layer"], os.readlink("/proc/self/cwd")  # it may have been removed
    layer.join({kind: os.open(f"{folder}/{name}", os.O_RDONLY | os.O_CLOEXEC) for kind, name in layer.PINS.items()})
    sys.modules["freeact_wall"].drop_capabilities()  # whoever enters a namespace for users has all of them in it
    with contextlib.suppress(FileNotFoundError):
        os.chdir(here)


def move(origin: str, own: str) -> None:
    """Works in a copy of the workspace. Args: origin: where the origin has it. own: where the copy is."""
    here = os.readlink("/proc/self/cwd")
    if is_in(here, origin):
        os.chdir(own)
        with contextlib.suppress(OSError):  # it is gone
            os.chdir(own + here[len(origin) :])
    sys.path[:] = [own + path[len(origin) :] if is_in(path, origin) else path for path in sys.path]
    importlib.invalidate_caches()


def is_in(path: str, folder: str) -> bool:
    """Returns whether a path is a folder or below it."""
    return f"{path}/".startswith(f"{folder}/")


def leave_descriptors(log_path: str, old: Any, kept: int, moved: list[str] | None) -> None:
    """Reopens files, each at its own position from now on; connections to somebody stay the origin's.

    Args:
        log_path: The file for output past all streams.
        old: The origin's kernel.
        kept: A descriptor that stays as it is.
        moved: The workspace's old and new path; None: the same.
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    logs = {1, 2, *(getattr(stream, "_original_stdstream_copy", 1) for stream in (old._stdout, old._stderr))}
    for descriptor in (0, *logs):
        os.dup2(null, descriptor)  # should there be no log, nothing is written into the origin's output
    os.close(null)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    nothing = os.open("/", os.O_PATH | os.O_CLOEXEC)
    for descriptor in logs:
        os.dup2(log, descriptor)
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor not in {0, log, nothing, kept, *logs}:
            with contextlib.suppress(OSError):  # the listing's own is closed by now
                leave_descriptor(descriptor, nothing, moved)
    os.close(nothing)
    os.close(log)


def leave_descriptor(descriptor: int, nothing: int, moved: list[str] | None) -> None:
    """Leaves one descriptor. The number stays taken: an object may still close it, and must not close one of ours."""
    kind, replacement = os.fstat(descriptor).st_mode, nothing
    flags, path = fcntl.fcntl(descriptor, fcntl.F_GETFL), f"/proc/self/fd/{descriptor}"
    stands = os.readlink(path)
    if moved is not None and (is_in(stands, moved[0]) or (moved[0] == moved[1] and stat.S_ISDIR(kind))):
        # not the origin's file, but that of the same name; one that has no name any more is closed
        if is_in(stands, moved[0]):
            stands = moved[1] + stands[len(moved[0]) :]
        path, flags = stands, flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC)
        if stat.S_ISDIR(kind) or flags & os.O_PATH:
            with contextlib.suppress(OSError):
                replacement = os.open(path, flags | os.O_CLOEXEC)
            os.dup2(replacement, descriptor, inheritable=os.get_inheritable(descriptor))
            if replacement != nothing:
                os.close(replacement)
            return
    if flags & os.O_PATH or stat.S_ISDIR(kind) or (stat.S_ISCHR(kind) and not is_terminal(descriptor)):
        return
    if stat.S_ISREG(kind):
        with contextlib.suppress(OSError):  # not to be opened again: then it is closed
            replacement = os.open(path, flags | os.O_CLOEXEC)
            os.lseek(replacement, os.lseek(descriptor, 0, os.SEEK_CUR), os.SEEK_SET)
    os.dup2(replacement, descriptor, inheritable=os.get_inheritable(descriptor))
    if replacement != nothing:
        os.close(replacement)


def is_terminal(descriptor: int) -> bool:
    """Returns whether a descriptor is an end of a terminal, the master's included."""
    return os.isatty(descriptor) or os.readlink(f"/proc/self/fd/{descriptor}").endswith("ptmx")


def leave_cell(shell: Any, old: Any) -> None:
    """Puts back the objects that a running cell has replaced; the cell continues in the origin only."""
    while shell.display_trap.is_active:
        shell.display_trap.__exit__(None, None, None)
    shell.displayhook.exec_result = None
    if not isinstance(shell.display_pub, shell.display_pub_class):
        shell.init_display_pub()  # it was captured
    sys.modules["freeact_borrowed_app"].restore_input(old)
    shell.execution_count = max(shell.execution_count, len(shell.history_manager.input_hist_parsed))


def seed() -> None:
    """Seeds random numbers anew, so that forks differ: numpy's. `random`, ssl, uuid and secrets see to a fork themselves."""
    numpy_random, tempfile = sys.modules.get("numpy.random"), sys.modules.get("tempfile")
    if numpy_random is not None:
        numpy_random.seed()
    if tempfile is not None:
        tempfile.tempdir = None  # type: ignore[attr-defined]  # found out in the environment of the origin


def open_app(app: Any, request: dict[str, Any], old: Any) -> None:
    """Gives the app new sockets, threads and a new kernel around its old shell, in the order of `IPKernelApp.initialize`."""
    shell, comms = app.shell, importlib.import_module("comm").get_comm_manager()
    app.context = app.heartbeat = None
    app.session = type(app.session)(parent=app)
    for name in PORTS:
        setattr(app, name, 0)
    app.connection_file = request["connection_file"]
    app.load_connection_info(request["connection"])
    sys.argv = ["ipykernel_launcher.py", "-f", app.connection_file]
    app.init_sockets()
    app.init_heartbeat()
    if request["attach"]:
        sys.modules["freeact_prebuild"].write_connection_file(request)
    reopen_output(app, old)
    type(old).clear_instance()
    app.init_kernel()
    if app.kernel.shell is not shell:
        raise RuntimeError("the kernel did not take the shell of its origin")
    shell.kernel = shell.parent = app.kernel
    for comm in comms.comms.values():
        comm.kernel = app.kernel
    comms.kernel = app.kernel


def reopen_output(app: Any, old: Any) -> None:
    """Connects the output streams anew; they stay the same objects, for loggers and others hold them."""
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    streams = {"stdout": old._stdout, "stderr": old._stderr}
    for name, stream in streams.items():
        KEPT.append(dict(stream.__dict__))
        stream.__init__(app.session, app.iopub_thread, name)
    sys.stdout, sys.stderr = streams.values()
    app.outstream_class = None  # the streams exist already
    app.init_io()
