"""Output of a cell: no part stays in a buffer or goes unread, and no cell takes later cells' output without a word.

Runs in kernels: standard library and IPython only. ipykernel shows what programs and C write to the descriptors 1 and 2.
But `fileno()` of its streams is the descriptor of its log; and text in the buffers of C and `sys.__stdout__` comes when the
process ends, which for a kernel is never.

In a stock ipykernel a cell that sets `sys.stdout` or `sys.stderr` to None makes the next cell hang, one that closes it makes
every later `print` fail, and one that leaves a `StringIO` in its place hides later output (`Streams`).

The look of output is kept, too: the width of the window, for wide output (tables of pandas, rich, programs), which a request
to run a cell may name; and settings of cells in the context of their thread, such as NumPy's options for printing and
`decimal`'s precision, which a branch, in a context of its own, gets from its origin. Settings of code come first.
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
"""Maximum values of a list, set or dictionary to look at."""


class Streams:
    """Care for the streams of this kernel at the end of each cell."""

    def __init__(self) -> None:
        self._own: dict[str, Any] = {}
        self._at_begin: list[tuple[Any, Any]] = []
        """Streams in `sys` at the beginning of the running cell (last) and of cells that run it, as `%%capture` does."""

    def attach(self, shell: Any) -> None:
        """Begin in this kernel. Called again in a branch, which has other streams."""
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
        """The kernel's streams, even if a cell has replaced them in `sys`."""
        return tuple(self._own.values())

    def on_cell(self, shell: Any) -> None:
        """Note the streams in `sys`; tell hidden ones for which cell they print, as ipykernel tells `sys.stdout`."""
        self._at_begin.append((sys.stdout, sys.stderr))
        for name, own in self._own.items():
            if getattr(sys, name) is not own and hasattr(own, "set_parent"):
                own.set_parent(shell.get_parent())

    def flush_replaced(self) -> None:
        """Flush the streams that a cell has hidden; ipykernel flushes `sys.stdout` and `sys.stderr`."""
        for name, own in self._own.items():
            if getattr(sys, name) is not own:
                own.flush()

    def put_back(self) -> list[str]:
        """Put the kernel's streams back in place of unwritable ones. Return their names."""
        gone = [name for name in self._own if not is_writable(getattr(sys, name, None))]
        for name in gone:
            setattr(sys, name, self._own[name])
        return gone

    def on_end_of_cell(self) -> None:
        """Replace unwritable streams, and warn of a stream that a cell has left in place of the kernel's."""
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
    """Whether `print` can use a stream."""
    return callable(getattr(stream, "write", None)) and not getattr(stream, "closed", False)


STREAMS = Streams()


def install(shell: Any, loop: Any) -> None:
    """Look after output in a kernel. Called once in each, and again in a branch."""
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
    """Return the C library, if it can be called."""
    with contextlib.suppress(ImportError, OSError, TypeError):
        ctypes = importlib.import_module("ctypes")
        return ctypes.CDLL(None)
    return None


def buffer_lines() -> None:
    """Let C write each line when it is whole, as in a terminal."""
    library = libc()
    with contextlib.suppress(AttributeError, ValueError):  # another C library
        stdout = importlib.import_module("ctypes").c_void_p.in_dll(library, "stdout")
        library.setvbuf(stdout, None, LINES, 0)


def flush() -> None:
    """Send all buffered output."""
    flush_files()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a cell may have closed or replaced it
            stream.flush()


def flush_files() -> None:
    """Write the buffers of Python and C to the descriptors; ipykernel then sends the text with the rest of the cell."""
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
    """Wait until all text in the descriptor of a stream is read."""
    deadline = time.monotonic() + READ_SECONDS
    while has_unread_text(stream) and stream.watch_fd_thread.is_alive() and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)


def tell_of_failed_tasks(variables: dict[str, Any]) -> None:
    """Print the errors of tasks that variables still hold.

    asyncio prints them when a task is forgotten, and a variable may never forget it.
    """
    for task in [task for value in list(variables.values()) for task in tasks_in(value)]:
        if task.done() and not task.cancelled() and is_error_unread(task):
            context = {"message": NEVER_RETRIEVED, "exception": task.exception(), "future": task}
            task.get_loop().call_exception_handler(context)


def tasks_in(value: Any) -> list[Any]:
    """Return the tasks and futures that a value is or contains."""
    if isinstance(value, asyncio.Future):
        return [value]
    if type(value) in (list, tuple, set, dict) and len(value) <= MAX_LOOKED_AT:
        items = value.values() if type(value) is dict else value
        return [item for item in items if isinstance(item, asyncio.Future)]
    return []


SET: dict[contextvars.ContextVar[Any], Any] = {}
"""Last value of each variable that code has set."""
contexts_before: list[contextvars.Context] = []


def install_contexts(shell: Any) -> None:
    """Keep the contexts of cells. Called once in each kernel, and again in a branch."""
    shell.events.register("pre_run_cell", note_context)
    shell.events.register("post_run_cell", keep_context)


def note_context(_: Any) -> None:
    """Note the context. Called before each cell."""
    contexts_before[:] = [contextvars.copy_context()]


def keep_context(_: Any) -> None:
    """Keep the changes of a cell. Called after each."""
    now = contextvars.copy_context()
    for before in contexts_before:
        SET.update((each, value) for each, value in now.items() if before.get(each) is not value)
    for each in SET.keys() - now.keys():
        del SET[each]


def take_over_contexts() -> None:
    """Set the kept values in a copy of the process: once, before its event loop starts."""
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
        """Note the width that a request names. Called before each cell."""
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
        """Return the spec of pandas, which sets the width at its import; None for other modules."""
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
    """Let output have the width of its window. Called once in each kernel."""
    width = Width(shell)
    shell.events.register("pre_run_cell", width.note)
    sys.meta_path.insert(0, width)
