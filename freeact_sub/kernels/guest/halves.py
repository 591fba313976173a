"""Ends a process that a cell forks where the cell ends, so that it cannot reply for its kernel.

Runs in kernels: standard library and IPython only. Else the child goes on into ipykernel's loop when it leaves the cell:
with the sockets of its kernel it sends a second reply, and takes the next cells. Its text and displays belong to the cell,
like those of any process that the cell starts. The cell's value and its error are the kernel's own.
"""

import asyncio
import contextlib
import os
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from .borrowed_kernel import forget_text, print_errors_by, run_first

CANNOT_AWAIT = "This forked process awaits something, but the event loop stays in the kernel. The process ends.\n"
THREADS_ARE_OURS = r".*is multi-threaded, use of (fork|forkpty)\(\) may lead to deadlocks"
TO_EXIT = "To exit: use"


def _no_task() -> None:
    """Return None: a callback or another thread forks, not a task."""


class Halves:
    """Judge of whether this process is the kernel; it ends any other."""

    def __init__(self) -> None:
        self.kernel = 0
        """The process id of the kernel; 0: there is none yet."""
        self.is_of_kernel = False
        """Whether the kernel forks for itself: the child sees to its own end."""
        self.shell: Any = None
        self.loop: Any = None
        self.flush: Callable[[], None] = lambda: None
        self.forking: Callable[[], asyncio.Task[Any] | None] = _no_task
        """Returns the task that forks at this moment."""
        self.task: asyncio.Task[Any] | None = None
        """The task that has forked this process; none in the kernel."""
        self.earlier: Any = None
        """The result of the cell before, in a forked process."""

    def attach(self, shell: Any, loop: Any, flush: Callable[[], None]) -> None:
        """Begin in this kernel. Called again in a branch. Args: flush: sends all buffered output."""
        if not self.kernel:
            os.register_at_fork(before=self.before, after_in_child=self.become_half)
            shell.events.register("post_execute", self.end_with_cell)
        self.kernel, self.shell, self.loop, self.flush = os.getpid(), shell, loop, flush

    @property
    def is_half(self) -> bool:
        """Whether this process was forked by a cell."""
        return bool(self.kernel) and os.getpid() != self.kernel

    def before(self) -> None:
        """Empty the buffers, whose text would be written twice. Called before each fork."""
        if self.kernel and not self.is_of_kernel:
            self.flush()
            if not self.is_half:  # from Python 3.14 on, a forked process cannot tell; the kernel keeps no task alive
                task = asyncio.current_task(self.loop)
                self.forking = _no_task if task is None else weakref.ref(task)

    def become_half(self) -> None:
        """Become a forked process. Called in each."""
        if not self.kernel or self.is_of_kernel:
            return
        self.task, self.earlier = self.forking(), self.shell.last_execution_result
        print_errors_by(self.shell, self.print_traceback)
        streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
        for stream in streams:
            forget_text(stream)
        self.shell.display_pub.session.pid = os.getpid()  # else it drops displays, until the first text
        hook = self.shell.displayhook
        if hasattr(hook, "finish_displayhook"):
            hook.finish_displayhook = self.print_value
        if self.task is not None:  # no loop counts as running here: from Python 3.14 on, its step fails
            self.loop.set_exception_handler(lambda *_: None)
        run_first(self.loop, self.end_in_loop)  # before all tasks and callbacks that are ready, which belong to the kernel

    def print_traceback(self, kind: Any, error: Any, lines: Any) -> None:
        """Print an error of the cell, in place of ipykernel's function, which sends it."""
        if kind is SystemExit:
            warnings.filterwarnings("ignore", message=TO_EXIT)
            if isinstance(error.code, str):
                sys.stderr.write(f"{error.code}\n")
        else:
            sys.stderr.write(self.shell.InteractiveTB.stb2text(lines) + "\n")

    def print_value(self) -> None:
        """Print the value of the cell, in place of ipykernel's function, which sends it."""
        hook = self.shell.displayhook
        data = (hook.msg or {}).get("content", {}).get("data", {})
        hook.msg = None
        if "text/plain" in data:
            sys.stdout.write(f"{data['text/plain']}\n")

    def end_with_cell(self) -> None:
        """End a forked process. Called at the end of each cell."""
        if self.is_half:
            self.end(self.code_of_cell())

    def code_of_cell(self) -> int:
        """Return the exit code that Python gives a program which ends as the cell did."""
        error = getattr(self.shell.last_execution_result, "error_in_exec", None)
        if not isinstance(error, SystemExit):
            return int(not self.shell.last_execution_succeeded)
        return error.code if isinstance(error.code, int) else int(error.code is not None)

    def end_in_loop(self) -> None:
        """End a forked process that gets back to the kernel's loop: a cell or callback has ended, or it awaits."""
        task = self.task
        if self.shell.last_execution_result is not self.earlier:
            self.end(self.code_of_cell())
        if task is None:
            self.end(0)
        if not task.done():
            sys.stderr.write(CANNOT_AWAIT)
            self.end(1)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            traceback.print_exception(error)
        self.end(int(task.cancelled() or error is not None))

    def end(self, code: int) -> NoReturn:
        """End this process without the clean-up of the kernel, which has the same threads and sockets."""
        try:
            self.flush()
        finally:
            os._exit(code & 0xFF)

    @contextlib.contextmanager
    def forking_for_kernel(self) -> Iterator[None]:
        """Mark a fork as the kernel's own, in the child as well."""
        self.is_of_kernel = True
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of each fork with threads
                yield
        finally:
            self.is_of_kernel = False


HALVES = Halves()
