"""Output of a cell: no part stays in a buffer or goes where nobody reads it, and no cell takes later cells' output unsaid.

Runs in kernels: standard library and IPython only. ipykernel shows what is written to the descriptors 1 and 2, by programs
and by C. But `fileno()` of its streams is the descriptor of its log; and what C and `sys.__stdout__` have buffered comes
when the process ends, which for a kernel is never.

In a stock ipykernel a cell that sets `sys.stdout` or `sys.stderr` to None makes the next cell hang, one that closes it makes
every later `print` fail, and one that leaves a `StringIO` in its place hides later output (`Streams`).

How output looks stays with it: the width of the window that shows it, for what is drawn as wide (tables of pandas, rich,
programs), which a request to run a cell may say; and what cells have set in the context of their thread, such as NumPy's
options for printing and `decimal`'s precision, which a branch, in a context of its own, gets from its origin. What code has
set itself stays.
"""

import asyncio
import contextlib
import contextvars
import functools
import importlib
import importlib.util
import os
import sys
import time
import warnings
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from typing import Any

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
    install_contexts(shell)
    is_branch = bool(HALVES.kernel)
    HALVES.attach(shell, loop, flush)
    STREAMS.attach(shell)
    if not is_branch:
        install_width(shell)
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


SET: dict[contextvars.ContextVar[Any], Any] = {}
"""By variable: its last value."""
contexts_before: list[contextvars.Context] = []
"""The context before the cell that runs."""


def install_contexts(shell: Any) -> None:
    """Called once in each kernel, and again in a branch."""
    shell.events.register("pre_run_cell", note_context)
    shell.events.register("post_run_cell", keep_context)


def note_context(_: Any) -> None:
    """Called before each cell."""
    contexts_before[:] = [contextvars.copy_context()]


def keep_context(_: Any) -> None:
    """Called after each cell."""
    now = contextvars.copy_context()
    for before in contexts_before:
        SET.update((each, value) for each, value in now.items() if before.get(each) is not value)
    for each in SET.keys() - now.keys():
        del SET[each]


def take_over_contexts() -> None:
    """Sets it here, in a copy of the process: once, before its event loop starts."""
    for each, value in SET.items():
        each.set(value)


VARIABLES = ("COLUMNS", "JUPYTER_COLUMNS", "POLARS_TABLE_WIDTH")
PANDAS_DEFAULT = 80


class Width(MetaPathFinder):
    """The present width. It stands among the finders of modules, because a cell may import pandas and print a table."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._columns = 0
        self._searches = False

    def note(self, _: Any) -> None:
        """Called before each cell."""
        with contextlib.suppress(Exception):  # a request without a width, or a kernel of another kind
            columns = self._shell.kernel.get_parent("shell")["content"].get("columns")
            if isinstance(columns, int) and columns > 0:
                self._tell(columns)

    def _tell(self, columns: int) -> None:
        before, self._columns = self._columns, columns
        for name in VARIABLES:
            if os.environ.get(name, str(before)) == str(before):
                os.environ[name] = str(columns)
        self._tell_pandas(before or PANDAS_DEFAULT)
        printer = self._shell.display_formatter.formatters["text/plain"]
        if printer.max_width in (before, printer.traits()["max_width"].default_value):
            printer.max_width = columns

    def _tell_pandas(self, before: int) -> None:
        pandas = sys.modules.get("pandas")
        if pandas is not None and hasattr(pandas, "set_option") and pandas.get_option("display.width") == before:
            pandas.set_option("display.width", self._columns)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """See `importlib.abc.MetaPathFinder`."""
        del path, target
        if name != "pandas" or self._searches or not self._columns:
            return None
        self._searches = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searches = False
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                load(module)
                with contextlib.suppress(Exception):
                    self._tell_pandas(PANDAS_DEFAULT)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install_width(shell: Any) -> None:
    """Called once in each kernel."""
    width = Width(shell)
    shell.events.register("pre_run_cell", width.note)
    sys.meta_path.insert(0, width)
