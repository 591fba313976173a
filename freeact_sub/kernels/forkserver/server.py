"""The fork server: a warm, single-threaded Python that forks IPython kernels on request. Run as a script.

    python server.py CONTROL_FD

It runs in the kernels' Python, so it needs ipykernel and the standard library only. Before it serves it imports IPython and
ipykernel, and the modules that are to be preloaded, and prepares an `IPKernelApp` with its shell, but without sockets,
threads or event loops: nothing that would not survive a fork. A forked child opens its sockets and is a normal kernel.

It talks JSON lines over CONTROL_FD. First it gets its settings (`preload`, `guest`, `skills`, `lent`) and answers
`{"ready": ...}`; then requests: `start` (a kernel), `adopt` (a branch that a kernel has forked of itself, see `brancher.py`)
and `end`; `lay` (files of a branch's own, see `layer.py`) and `drop`. It tells when a kernel has bound its sockets and when
it has ended. It ends, and its kernels with it, when the other end of CONTROL_FD is closed.

A kernel dies with this server (parent-death signal; safe here, for there is one thread only). Each kernel is a child
subreaper, so its daemons are below it while it lives; when it dies they become ours, as the next subreaper, and a child of
ours that is no kernel is the remains of a dead one: it is killed. The process guard above this server does the same for the
server itself.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import types
from collections.abc import Iterable
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None)
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""A server with threads must not fork, and numerical libraries start theirs on import, unless one is all they get."""
INLINE = "module://matplotlib_inline.backend_inline"
"""The backend of matplotlib that shows figures as outputs of a cell."""
KILL_ROUNDS = 100
REASON_BYTES = 2000


class Server:
    """The server that forks kernels, watches them, and tells the host of their ends."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.buffer = b""
        self.app: Any = None
        self.prebuilt = False
        self.kernels: dict[int, bool] = {}
        self.binding: dict[int, int] = {}
        """Read end of a kernel's pipe to its process id, until it has bound its sockets."""
        self.layers: dict[int, tuple[Any, int]] = {}
        """The processes that lay a copy over a workspace: the request of each, and the read end of its pipe."""
        self.stuck: set[int] = set()
        """Processes that SIGKILL has not ended yet: one that sleeps in a dead file system may never end."""

    def prepare(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Imports all that kernels will need, and builds all that can be built before a fork."""
        if settings["lent"]:
            sys.modules["freeact_lender"].install(settings["lent"])
        for name in BLAS_THREADS:
            os.environ.setdefault(name, "1")  # here only: a kernel gets the environment of its request
        os.environ.setdefault("MPLBACKEND", INLINE)  # matplotlib reads it when it is imported
        with contextlib.suppress(ImportError):  # only what is defined in cells cannot be saved then
            importlib.import_module("cloudpickle")
        failed = preload(name for name in settings["preload"] if not name.startswith("skills."))
        exec(compile(settings["guest"], "<freeact_guest>", "exec"), {})  # noqa: S102  # our own source
        sys.modules["freeact_guest.skills"].install(settings["skills"])
        failed |= preload(name for name in settings["preload"] if name.startswith("skills."))
        reason = ""
        try:
            for name in ("borrowed_streams", "borrowed_app"):
                load(f"freeact_{name}", os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py"))
            self.app = sys.modules["freeact_prebuild"].prebuild()
            self.prebuilt = True
        except Exception as error:  # noqa: BLE001  # border: another ipykernel may be built differently; then we only import
            reason = f"{type(error).__name__}: {error}"
            sys.modules["freeact_prebuild"].forget()
        gc.collect()
        gc.freeze()  # present objects are never collected, so their pages stay shared
        threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
        return {"threads": threads, "prebuilt": self.prebuilt, "reason": reason, "failed_preloads": failed}

    def serve(self) -> None:
        """Answers requests until the host is gone."""
        wakeup, writer = os.pipe()
        os.set_blocking(writer, False)
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            waited_for: list[Any] = [self.control, wakeup, *self.binding]
            ready, _, _ = select.select(waited_for, [], [])
            for descriptor in [item for item in ready if item in self.binding]:
                self.on_bound(descriptor)
            if wakeup in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wakeup, 4096)
                self.reap()
            if self.control in ready and not self.receive():
                return

    def receive(self) -> bool:
        """Handles the host's messages, and returns False when the host is gone."""
        try:
            data = self.control.recv(65536)
        except ConnectionError:
            return False
        if not data:
            return False
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            try:
                getattr(self, f"on_{request['op']}")(request)
            except OSError as error:
                self.send({"failed": request.get("id"), "reason": str(error)})
        return True

    def send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the host is gone: the next read tells us
            self.control.sendall(json.dumps(message).encode() + b"\n")

    def on_start(self, request: dict[str, Any]) -> None:
        """Forks a kernel."""
        prepare(request)
        bound, bound_writer = os.pipe()
        me = os.getpid()
        pid = os.fork()
        if pid == 0:

            def life() -> None:
                os.dup2(bound_writer, 3)
                become_kernel(request, me)
                self.run_kernel(request)

            sys.modules["freeact_brancher"].live_and_exit(life)
        os.close(bound_writer)
        self.kernels[pid] = True
        self.binding[bound] = pid
        self.send({"started": request["id"], "pid": pid})

    def on_adopt(self, request: dict[str, Any]) -> None:
        """Expects a branch: two generations below the kernel it was forked from, it will be our child in a moment.

        Raises:
            OSError: It is no such process; a kernel may lie.
        """
        pid = request["pid"]
        if request["origin"] not in self.kernels or parent(parent(pid)) != request["origin"]:
            raise ProcessLookupError(f"process {pid} is no branch of that kernel")
        self.kernels[pid] = True
        self.send({"started": request["id"], "pid": pid})

    def on_end(self, request: dict[str, Any]) -> None:
        """Ends a kernel with everything it has started; the host hears of it when that is done."""
        pid = request["pid"]
        if pid in self.kernels and parent(pid) != os.getpid():
            del self.kernels[pid]  # a branch that never came to us: it goes with the kernel below which it is
            self.send({"ended": pid, "code": -signal.SIGKILL})
        elif pid in self.kernels:
            for kill in (os.killpg, os.kill):  # before its setsid() the group is not there yet
                with contextlib.suppress(ProcessLookupError):
                    kill(pid, signal.SIGKILL)
            # `reap` reports the end when it comes: a process that sleeps in a dead file system may never end

    def on_lay(self, request: dict[str, Any]) -> None:
        """Forks a process that lays a copy on write over a workspace; the host hears of it when it has ended."""
        result, result_writer = os.pipe()
        me = os.getpid()
        pid = os.fork()
        if pid == 0:
            reason = "it could not be begun"
            try:
                prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                self.control.close()  # whose end tells the host that the server has ended
                if os.getppid() == me:
                    reason = sys.modules["freeact_layer"].reason_against(request)
            except BaseException as error:  # noqa: BLE001  # border: the host gets the reason
                reason = repr(error)
            finally:
                os.write(result_writer, b"." + reason.encode(errors="replace")[:REASON_BYTES])
                os._exit(0)
        os.close(result_writer)
        self.layers[pid] = request["id"], result

    def on_drop(self, request: dict[str, Any]) -> None:
        """Ends the process of a layer whose caller has given up."""
        for pid, (number, _) in self.layers.items():
            if number == request["id"]:
                os.kill(pid, signal.SIGKILL)  # it is ours until `reap` has seen its end

    def on_laid(self, pid: int) -> None:
        number, result = self.layers.pop(pid)
        reason = os.read(result, REASON_BYTES + 1) or b".it was ended"
        os.close(result)
        self.send({"laid": number, "reason": reason[1:].decode(errors="replace")})

    def on_bound(self, descriptor: int) -> None:
        """Tells the host that a kernel has bound its sockets."""
        pid = self.binding.pop(descriptor)
        if os.read(descriptor, 1):
            self.send({"bound": pid})
        os.close(descriptor)

    def reap(self) -> None:
        """Reaps ended processes. Kills what an ended kernel left behind before it reports the end."""
        ended: dict[int, int] = {}
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                self.stuck.discard(pid)
                if self.kernels.pop(pid, None):
                    ended[pid] = os.waitstatus_to_exitcode(status)
                elif pid in self.layers:
                    self.on_laid(pid)
        if not ended:
            return
        for pid in ended:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self.kill_orphans()
        for descriptor in [descriptor for descriptor, pid in self.binding.items() if pid in ended]:
            del self.binding[descriptor]  # nothing may follow the report of a kernel's end
            os.close(descriptor)
        for pid, code in ended.items():
            self.send({"ended": pid, "code": code})

    def kill_orphans(self) -> None:
        orphans: list[int] = []
        for attempt in range(KILL_ROUNDS):
            known = {*self.kernels, *self.layers, *self.stuck}
            orphans = [pid for pid in children() if pid not in known]
            if not orphans:
                return
            for pid in orphans:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            for pid in orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.0005 if attempt < 20 else 0.005)
        self.stuck.update(orphans)

    def run_kernel(self, request: dict[str, Any]) -> None:
        """Lives the life of the forked child."""
        prebuild = sys.modules["freeact_prebuild"]
        arguments = [*prebuild.ARGUMENTS, "-f", request["connection_file"]]
        sys.argv = ["ipykernel_launcher.py", "-f", request["connection_file"]]  # as code finds it in any ipykernel
        if self.prebuilt:
            prebuild.bind(self.app, request)
        else:
            from ipykernel.kernelapp import IPKernelApp

            prebuild.write_connection_file(request)
            self.app = IPKernelApp.instance()
            self.app.initialize(arguments)
        os.write(3, b"b")
        os.close(3)
        if self.prebuilt:
            prebuild.finish(self.app)
        loop = importlib.import_module("tornado.ioloop").IOLoop.current().asyncio_loop
        if request["servers"] is None:
            sys.modules["freeact_guest.descriptors"].install(self.app.shell, loop)
        else:
            sys.modules["freeact_guest.skills"].install(request.get("skills", ()))
            agent = sys.modules["freeact_guest.agent"]
            requests = agent.install(self.app.shell, request["servers"], loop, request["audit"])
            sys.modules["freeact_brancher"].Brancher(self.app, requests)
        self.app.start()


def preload(names: Iterable[str]) -> dict[str, str]:
    """Imports modules; returns why some could not be."""
    failed = {}
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001  # border: any module may fail in any way; kernels can do without
            failed[name] = f"{type(error).__name__}: {error}"
    return failed


def prepare(request: dict[str, Any]) -> None:
    """Makes the parts of a kernel that may be made before the fork, unless an earlier kernel's are there already."""
    wall, audit = request.get("wall"), request.get("audit")
    with contextlib.suppress(Exception):  # the kernel fails at the same, and the host hears why
        if wall is not None:
            sys.modules["freeact_wall"].prepare(wall)
        if audit is not None:
            sys.modules["freeact_guest.writable"].compile_rules(audit["folders"], audit["asked"], request["cwd"])


def become_kernel(request: dict[str, Any], server: int) -> None:
    """Makes the forked process independent of its origin."""
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != server:
        os._exit(1)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(4, 1 << 20)
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    for name in [name for name in os.environ if name not in request["environment"]]:
        del os.environ[name]
    for name, value in request["environment"].items():
        if os.environ.get(name) != value:  # to set one copies pages
            os.environ[name] = value
    os.environ.setdefault("MPLBACKEND", INLINE)
    time.tzset()
    sys.modules["freeact_detach"].seed()
    if request.get("wall") is not None:
        sys.modules["freeact_wall"].build(request["wall"])
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # new credentials may have taken it away
        if os.getppid() != server:
            os._exit(1)


def children() -> list[int]:
    """Returns the processes whose parent we are."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def parent(pid: int) -> int:
    """Returns the parent of a process; 0: the process does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # the name, in parentheses, may hold anything; the parent is the second field after it
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def prctl(option: int, value: int) -> None:
    """Calls `prctl`; Linux only, as this server is."""
    LIBC.prctl(option, value, 0, 0, 0)


def load(name: str, path: str) -> None:
    """Makes a file a module, under a name that is not in the way of a kernel's own code."""
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = path
    with open(path, "rb") as file:
        exec(compile(file.read(), path, "exec"), module.__dict__)  # noqa: S102  # our own source


def main(descriptor: int) -> None:
    """Serves the host at the other end of the descriptor."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != folder]
    sys.argv = ["ipykernel_launcher.py"]
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    for name in ("wall", "view", "seccomp"):  # compiled once, and not in each kernel that is forked
        load(f"freeact_{name}", os.path.join(os.path.dirname(folder), "wall", f"{name}.py"))
    load("freeact_lender", os.path.join(os.path.dirname(folder), "lender.py"))
    load("freeact_layer", os.path.join(os.path.dirname(folder), "files", "layer.py"))
    for name in ("prebuild", "brancher", "detach"):
        load(f"freeact_{name}", os.path.join(folder, f"{name}.py"))
    server = Server(control)
    data = b""
    while not data.endswith(b"\n"):
        piece = control.recv(65536)
        if not piece:
            return
        data += piece
    server.send({"ready": server.prepare(json.loads(data))})
    server.serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
    os._exit(0)
