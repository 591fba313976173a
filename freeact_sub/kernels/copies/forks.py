"""Forks of the Jupyter kernel that this process is: whether it can be forked, and if not, why.

`BareFork` is one that looks at the variables as they are now, and ends. It is made in the main thread.
"""

import asyncio
import contextlib
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

from freeact_sub.errors import KernelError
from freeact_sub.system.process import missing_for_forks, state_folder

ERROR_CHARS: Final = 300
READ_BYTES: Final = 1 << 20
GO: Final = b"g"


class BareFork:
    """A fork that waits for the request of its result. It ends with this process in any case."""

    def __init__(self, work: Callable[[], bytes]) -> None:
        """Fork. Args: work: the fork's work when it is asked. Raises: OSError: there is no room for a process."""
        brancher: Any = importlib.import_module("freeact_sub.kernels.forkserver.brancher")  # Linux only
        self._reader, writer = os.pipe()
        asked, self._asking = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._pid: int | None = brancher.fork_quietly()
            if self._pid == 0:
                os.close(self._asking)
                _work_and_exit(brancher, work, asked, writer)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(writer)
            os.close(asked)
        self._reap: Callable[[int], None] = brancher.reap

    async def result(self, seconds: float) -> bytes:
        """Let the fork work, once, and end it. Raises: KernelError: it failed, takes longer, or has ended."""
        if self._pid is None:
            raise KernelError("it has ended")
        with contextlib.suppress(BrokenPipeError):
            os.write(self._asking, GO)
        reader, self._reader = self._reader, -1
        reading = asyncio.ensure_future(asyncio.to_thread(_read_all, reader))
        try:
            await asyncio.wait({reading}, timeout=seconds)
        finally:
            self.close()
            data = await asyncio.shield(reading)  # its end has come with that of the process
        if not data.endswith(b"\n"):
            raise KernelError(data.decode(errors="replace") or f"it took longer than {seconds:g} s")
        return data

    def close(self) -> None:
        """End the fork. Can be called again."""
        pid, self._pid = self._pid, None
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):  # the user's own code may have waited for it
            os.kill(pid, signal.SIGKILL)
            self._reap(pid)
        os.close(self._asking)
        if self._reader >= 0:
            os.close(self._reader)


def _work_and_exit(brancher: Any, work: Callable[[], bytes], asked: int, writer: int) -> NoReturn:
    """Do a fork's work. Printed text goes nowhere; no loop, no socket and no clean-up of the origin is touched."""
    try:
        brancher.prctl(brancher.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setpgid(0, 0)  # when it shuts down, ipykernel waits half a minute for all of its group, also for the dead
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
        nothing = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(nothing, descriptor)
        if os.read(asked, 1) == GO:
            _write_all(writer, work() + b"\n")
    except BaseException as error:  # noqa: BLE001  # border: the end of this process
        _write_all(writer, f"{type(error).__name__}: {error}"[:ERROR_CHARS].rstrip().encode())
    finally:
        os._exit(0)


def _write_all(writer: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(writer, view) :]


def _read_all(reader: int) -> bytes:
    with open(reader, "rb", buffering=READ_BYTES) as file:  # it is a descriptor
        return file.read()


OWN_THREADS: Final = (
    *("IOPub", "Heartbeat", "Control", "Shell channel", "ParentPoller"),
    *("_watch_pipe_fd", "IPythonHistorySavingThread", "GarbageCollectorThread"),
    *("asyncio_", "AnyIO worker thread"),
    *("removes ", "sweeps sessions", "writes session ", "looks at "),
    *("hooks", "saves rules", "decides", "tries mounts", "serves agents"),
)
"""Names of threads of ipykernel, IPython, pyzmq and of our own host. A fork goes on without them."""
OWN_KINDS: Final = frozenset(
    {
        *(("ipykernel.parentpoller", "ParentPollerUnix"), ("ipykernel.heartbeat", "Heartbeat")),
        *(("ipykernel.control", "ControlThread"), ("ipykernel.shellchannel", "ShellChannelThread")),
        *(("IPython.core.history", "HistorySavingThread"), ("zmq.utils.garbage", "GarbageCollectorThread")),
        ("tqdm._monitor", "TMonitor"),
    }
)
"""Classes of such threads. The one of tqdm is started again where it is missing."""
SUBSHELL: Final = ("ipykernel.subshell", "SubshellThread")
"""The class of threads for JupyterLab's widgets, which stay; each holds its lock while it works."""
PRIVATE_MAPPINGS: Final = ("/dev/shm/sem.", "/memfd:", "anon_inode:")  # noqa: S108  # names in a list, not files
"""Shared memory through which no values reach another process: locks of `multiprocessing`, and unshared files."""
SQLITE_SHARED: Final = "-shm"
"""The end of the name of a file that SQLite shares between processes for a database in WAL mode."""


def kernel_app() -> Any | None:
    """Return the `IPKernelApp` of this process, if it is a Jupyter kernel of ipykernel."""
    module = sys.modules.get("ipykernel.kernelapp")
    return module.IPKernelApp.instance() if module is not None and module.IPKernelApp.initialized() else None


def unsafe(app: Any) -> str:
    """Return why this kernel cannot be copied now. Empty: it can, and idle threads of GNU OpenMP have been ended for it.

    Args:
        app: Its `IPKernelApp`. None: there is none.
    """
    if lacks := missing_for_forks(pidfds=True):
        return f"this system has no {lacks}, and a kernel cannot be copied without"
    brancher: Any = importlib.import_module("freeact_sub.kernels.forkserver.brancher")  # Linux only
    if app is None or getattr(app, "kernel", None) is None:
        return "this is no Jupyter kernel of ipykernel"
    if threading.current_thread() is not threading.main_thread():
        return "this cell does not run in the kernel's main thread"
    if not all(hasattr(stream, "pub_thread") for stream in (sys.stdout, sys.stderr)):
        return "its output is being captured"
    borrowed: Any = importlib.import_module("freeact_sub.kernels.forkserver.borrowed_app")
    borrowed.end_idle_script_loop(app.shell)
    if others := sorted({thread.name for thread in threading.enumerate() if not is_own(thread)}):
        return f"threads are running whose work would stop half way in a copy: {', '.join(others[:5])}"
    if getattr(app.kernel, "eventloop", None) is not None:
        return "it runs the event loop of a window system (%gui), whose connection cannot be shared"
    if brancher.uses_gpu(brancher.open_files()):
        return "it uses a GPU, and what is on it cannot be copied"
    if shared := shared_memory():
        return why_not_shared(shared)
    if threads := brancher.threads_lost():
        return f"threads of {threads} are running, which do not survive a copy"
    return ""


def is_own(thread: threading.Thread) -> bool:
    """Whether a thread belongs to the kernel, to IPython or to the host of agents, and not to the user's code."""
    if thread is threading.main_thread() or (type(thread).__module__, type(thread).__name__) in OWN_KINDS:
        return True
    if (type(thread).__module__, type(thread).__name__) == SUBSHELL:
        handling: Any = thread
        return not handling.asyncio_lock.locked()
    return thread.name.startswith(OWN_THREADS) or "(_watch_pipe_fd)" in thread.name


def why_not_shared(path: str) -> str:
    """Return the fault of shared memory in a copy. Args: path: as found by `shared_memory`."""
    if path.endswith(SQLITE_SHARED):
        return f"SQLite has a database open in WAL mode, which a copy could not read: {path.removesuffix(SQLITE_SHARED)}"
    return f"it shares memory, which a copy would change as well: {path}"


def shared_memory() -> str:
    """Return a file or memory that a fork would write as well as this process, if any; our own sessions' do not count."""
    own = str(state_folder().resolve())
    with contextlib.suppress(OSError), Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as file:
        for line in file:
            fields = line.rstrip("\n").split(maxsplit=5)
            rights, path = fields[1], fields[5] if len(fields) > 5 else ""  # the path is the sixth field
            if "w" in rights and "s" in rights and not path.startswith((*PRIVATE_MAPPINGS, own)):
                return "anonymous shared memory" if path.startswith("/dev/zero") else path
    return ""
