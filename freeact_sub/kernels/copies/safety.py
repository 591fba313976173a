"""Whether the Jupyter kernel that this process is can be forked, and if not, why."""

import contextlib
import importlib
import sys
import threading
from pathlib import Path
from typing import Any, Final

from freeact_sub.config.schema import state_folder

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
"""The same by their classes. The one of tqdm is started again where it is missing."""
SUBSHELL: Final = ("ipykernel.subshell", "SubshellThread")
"""JupyterLab has messages of widgets handled in such threads, which stay; each holds its lock while it does something."""
PRIVATE_MAPPINGS: Final = ("/dev/shm/sem.", "/memfd:", "anon_inode:")  # noqa: S108  # names in a list, not files
"""Shared memory through which no values reach another process: locks of `multiprocessing`, and what has no other user."""
SQLITE_SHARED: Final = "-shm"
"""The end of the name of a file that SQLite shares between processes for a database in WAL mode."""


def kernel_app() -> Any | None:
    """The `IPKernelApp` of this process. None: it is no Jupyter kernel of ipykernel."""
    module = sys.modules.get("ipykernel.kernelapp")
    return module.IPKernelApp.instance() if module is not None and module.IPKernelApp.initialized() else None


def unsafe(app: Any) -> str:
    """Why this kernel cannot be copied now. Empty: it can, and idle threads of GNU OpenMP have been ended for it.

    Args:
        app: Its `IPKernelApp`. None: there is none.
    """
    if sys.platform != "linux":
        return f"a kernel is copied on Linux only, and this is {sys.platform}"
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
    """What is wrong with shared memory in a copy. Args: path: what `shared_memory` has found."""
    if path.endswith(SQLITE_SHARED):
        return f"SQLite has a database open in WAL mode, which a copy could not read: {path.removesuffix(SQLITE_SHARED)}"
    return f"it shares memory, which a copy would change as well: {path}"


def shared_memory() -> str:
    """A file or a memory that a fork would write as well as this process, or nothing. Our own sessions' is not counted."""
    own = str(state_folder().resolve())
    with contextlib.suppress(OSError), Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as file:
        for line in file:
            fields = line.rstrip("\n").split(maxsplit=5)
            rights, path = fields[1], fields[5] if len(fields) > 5 else ""  # the path is the sixth field
            if "w" in rights and "s" in rights and not path.startswith((*PRIVATE_MAPPINGS, own)):
                return "anonymous shared memory" if path.startswith("/dev/zero") else path
    return ""
