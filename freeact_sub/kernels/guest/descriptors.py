"""Output of a cell: no part stays in a buffer or goes where nobody reads it, and no cell takes later cells' output unsaid.

Runs in kernels: standard library and IPython only. ipykernel shows what is written to the descriptors 1 and 2, by programs
and by C. But `fileno()` of its streams is the descriptor of its log; and what C and `sys.__stdout__` have buffered comes
when the process ends, which for a kernel is never.

In a stock ipykernel a cell that sets `sys.stdout` or `sys.stderr` to None makes the next cell hang, one that closes it makes
every later `print` fail, and one that leaves a `StringIO` in its place hides later output (`Streams`).
"""

import asyncio
import contextlib
import functools
import importlib
import sys
import time
import warnings
from typing import Any

from . import contexts, width
from .borrowed_kernel import descriptor_of, has_unread_text, is_error_unread
from .halves import HALVES, THREADS_ARE_OURS

LINES = 1
"""C's `_IOLBF`."""
NEVER_RETRIEVED = "Task exception was never retrieved"
READ_SECONDS = 1.0
LOOK_SECONDS = 0.001
MAX_LOOKED_AT = 1000
"""Values of a list, set or dictionary."""


class Streams:
    """Looks after the streams of this kernel at the end of each cell."""

    def __init__(self) -> None:
        self._own: dict[str, Any] = {}
        self._at_begin: list[tuple[Any, Any]] = []
        """Of the cell that runs, last, and of those that run it, as `%%capture` does: what `sys` had when it began."""

    def attach(self, shell: Any) -> None:
        """This process is a kernel. Called again in a branch, which has other streams."""
        if not self._own:
            shell.events.register("pre_execute", lambda: self.on_cell(shell))
            shell.events.register("post_execute", self.on_end_of_cell)
        self._at_begin = []
        self._own = {"stdout": sys.stdout, "stderr": sys.stderr}
        for stream in self._own.values():
            with contextlib.suppress(AttributeError):
                stream.close = stream.flush

    @property
    def own(self) -> tuple[Any, ...]:
        """Those of the kernel, whatever a cell has put in their place."""
        return tuple(self._own.values())

    def on_cell(self, shell: Any) -> None:
        """Notes what is there; tells hidden streams for which cell they print, as ipykernel tells `sys.stdout`."""
        self._at_begin.append((sys.stdout, sys.stderr))
        for name, own in self._own.items():
            if getattr(sys, name) is not own and hasattr(own, "set_parent"):
                own.set_parent(shell.get_parent())

    def flush_replaced(self) -> None:
        """Flushes the streams that a cell has hidden; ipykernel flushes `sys.stdout` and `sys.stderr`."""
        for name, own in self._own.items():
            if getattr(sys, name) is not own:
                own.flush()

    def put_back(self) -> list[str]:
        """Puts back those that nobody can write to. Returns their names."""
        gone = [name for name in self._own if not is_writable(getattr(sys, name, None))]
        for name in gone:
            setattr(sys, name, self._own[name])
        return gone

    def on_end_of_cell(self) -> None:
        """Puts back what cannot be written to, and tells of a stream that a cell has left in the place of the kernel's."""
        for name in self.put_back():
            self._own[name].write(f"[The cell has left a sys.{name} that cannot be written to. The kernel's own is back.]\n")
        began = self._at_begin.pop() if self._at_begin else (sys.stdout, sys.stderr)
        for (name, own), before in zip(self._own.items(), began, strict=True):
            present = getattr(sys, name)
            if not any(present is known for known in (before, own, getattr(sys, f"__{name}__"))):
                own.write(
                    f"[The cell has set sys.{name} to a {type(present).__name__}: later cells write into it. "
                    f"`sys.{name} = sys.__{name}__` shows their output here again.]\n"
                )


def is_writable(stream: Any) -> bool:
    """Whether `print` can use it."""
    return callable(getattr(stream, "write", None)) and not getattr(stream, "closed", False)


STREAMS = Streams()


def install(shell: Any, loop: Any) -> None:
    """Called once in each kernel, and again in a branch."""
    for stream in (sys.stdout, sys.stderr):
        number = descriptor_of(stream)
        if number is not None:
            stream.fileno = lambda number=number: number  # type: ignore[method-assign]  # ipykernel's streams allow it
    contexts.install(shell)
    is_branch = bool(HALVES.kernel)
    HALVES.attach(shell, loop, flush)
    STREAMS.attach(shell)
    if not is_branch:
        width.install(shell)
        buffer_lines()
        # the threads of which Python warns are the kernel's own; what they hold at a fork is seen to
        warnings.filterwarnings("ignore", message=THREADS_ARE_OURS, category=DeprecationWarning)
        shell.events.register("post_execute", flush_files)
        shell.events.register("post_run_cell", lambda _: tell_of_failed_tasks(shell.user_ns))


@functools.cache
def libc() -> Any:
    """The C library; None: it cannot be called."""
    with contextlib.suppress(ImportError, OSError, TypeError):
        ctypes = importlib.import_module("ctypes")
        return ctypes.CDLL(None)
    return None


def buffer_lines() -> None:
    """Has C write each line when it is whole, as in a terminal."""
    library = libc()
    with contextlib.suppress(AttributeError, ValueError):  # another C library
        stdout = importlib.import_module("ctypes").c_void_p.in_dll(library, "stdout")
        library.setvbuf(stdout, None, LINES, 0)


def flush() -> None:
    """Sends all that is buffered."""
    flush_files()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a cell may have closed or replaced it
            stream.flush()


def flush_files() -> None:
    """Writes what Python and C have buffered for the descriptors; ipykernel then sends it with the rest of the cell."""
    for file in (sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):  # as above
            file.flush()  # type: ignore[union-attr]
    library = libc()
    if library is not None:
        library.fflush(None)
    for stream in STREAMS.own:
        if hasattr(stream, "watch_fd_thread"):  # ipykernel's own thread sends what it has read, perhaps after the cell's end
            await_reader(stream)
    STREAMS.flush_replaced()


def await_reader(stream: Any) -> None:
    """Waits until what was written to the descriptor of a stream is read."""
    deadline = time.monotonic() + READ_SECONDS
    while has_unread_text(stream) and stream.watch_fd_thread.is_alive() and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)


def tell_of_failed_tasks(variables: dict[str, Any]) -> None:
    """Tells of the errors of tasks that variables still hold.

    asyncio does so when a task is forgotten, which these may never be.
    """
    for task in [task for value in list(variables.values()) for task in tasks_in(value)]:
        if task.done() and not task.cancelled() and is_error_unread(task):
            context = {"message": NEVER_RETRIEVED, "exception": task.exception(), "future": task}
            task.get_loop().call_exception_handler(context)


def tasks_in(value: Any) -> list[Any]:
    """The tasks and futures that a value is or contains."""
    if isinstance(value, asyncio.Future):
        return [value]
    if type(value) in (list, tuple, set, dict) and len(value) <= MAX_LOOKED_AT:
        items = value.values() if type(value) is dict else value
        return [item for item in items if isinstance(item, asyncio.Future)]
    return []
