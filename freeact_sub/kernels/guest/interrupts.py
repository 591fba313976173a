"""Ends a cell that is interrupted, and keeps the kernel. Standard library and IPython only.

ipykernel raises `KeyboardInterrupt` at any place while a cell runs, and when a cell awaits it only cancels its task. So code
that computes after an `await`, in another task or in a callback goes on; and a `KeyboardInterrupt` that reaches asyncio
leaves the event loop, with which the kernel ends. Here the signal is heard at all times. Running code of a cell gets the
exception, code of the kernel never does; a cell that awaits is cancelled as well; and no exception leaves the loop.

A host that kills the kernel if the cell does not end says so (`freeact_interrupt`). Then one signal may not be enough: a
pool waits for its threads, or a loop goes on after any exception. So the control thread repeats it.
"""

import asyncio
import contextvars
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from .borrowed_kernel import give_up, handle_of, is_step, keep_in_loop
from .tracebacks import is_ours

AGAIN_SECONDS = 0.05
"""Seconds between two looks at a cell that is to end."""
PATIENCE_SECONDS = 0.8
"""Seconds that a cell has for its own clean-up before it is interrupted again."""
FORCE_SECONDS = 1.2
"""Seconds after which a cell can no longer catch the exceptions."""

OF_CELL: contextvars.ContextVar[bool] = contextvars.ContextVar("freeact_of_cell", default=False)
"""Whether a cell has made the running task or callback; each inherits the context of its maker."""


class CellInterrupts:
    """Handler of SIGINT for the main thread, in which cells run."""

    def __init__(self) -> None:
        self.home = 0
        """The process id of the kernel; 0: there is none yet."""
        self.kernel: Any = None
        self.loop: Any = None
        self.running: str | None = None
        """The id of the request that the kernel handles."""
        self.ending: set[str] = set()
        """Requests that the control thread is to end, and that have not ended."""
        self.ended: str | None = None
        """The id of the last request that the kernel has handled."""
        self.task: asyncio.Task[Any] | None = None
        """The task in which the kernel handles the request."""
        self.cell: asyncio.Future[Any] | None = None
        """The task of a running cell that awaits."""
        self.wanted: str | None = None
        """The request whose end the control thread wanted by its last signal. None: the last signal was the host's."""
        self.is_felt = False
        self.asked_at: float | None = None
        """The time at which the host asked for the end of a cell, until it ends."""

    def attach(self, shell: Any, loop: Any) -> None:
        """Begin in this kernel. Called again in a branch."""
        kernel = shell.kernel
        if not self.home:
            shell.events.register("pre_execute", self.on_cell)
            shell.events.register("post_execute", lambda: OF_CELL.set(False))
            keep_in_loop(self.is_ours)
        self.home, self.kernel, self.loop = os.getpid(), kernel, loop
        self.running = self.ended = self.task = self.cell = self.wanted = self.asked_at = None
        self.ending, self.is_felt = set(), False
        OF_CELL.set(False)
        kernel.pre_handler_hook, kernel.post_handler_hook = self.begin, self.end
        kernel.control_handlers["freeact_interrupt"] = self.on_message
        signal.signal(signal.SIGINT, self.on_signal)

    def is_ours(self, loop: Any) -> bool:
        """Whether no exception may leave this loop."""
        return loop is self.loop and os.getpid() == self.home

    def begin(self) -> None:
        """Note the request. Called before the kernel handles it; an earlier cell may have set a handler of its own."""
        self.running, self.is_felt = self.kernel.get_parent("shell")["header"]["msg_id"], False
        self.task = asyncio.current_task(self.loop)
        signal.signal(signal.SIGINT, self.on_signal)

    def end(self) -> None:
        """Note the end of the request. Called after the kernel has handled it."""
        if self.running is not None:
            self.ended = self.running
            self.ending.discard(self.running)
        self.running = self.task = self.cell = self.asked_at = None
        signal.signal(signal.SIGINT, self.on_signal)
        if sys.gettrace() is no_trace:
            sys.settrace(None)

    def on_cell(self) -> None:
        """Note the cell. Called where it begins, in its own task if it awaits; ipykernel has set another handler before."""
        OF_CELL.set(True)
        task = asyncio.current_task(self.loop)
        if self.cell is None and task is not self.task:
            self.cell = task
            signal.signal(signal.SIGINT, self.on_signal)

    def on_signal(self, _number: int, frame: FrameType | None) -> None:
        """Interrupt the cell. Called in the main thread, between any two steps of its code.

        Raises:
            KeyboardInterrupt: Code of a cell runs here.
        """
        if os.getpid() != self.home:  # a process that a cell has forked
            raise KeyboardInterrupt
        wanted, self.wanted = self.wanted, None
        if wanted is not None and (wanted not in self.ending or self.running not in (None, wanted)):
            return  # the control thread was late
        is_code = self.is_code(frame)
        awaits = self.cell is not None and asyncio.current_task(self.loop) is not self.cell
        self.is_felt = self.is_felt or (self.running is not None and (is_code or awaits))
        if awaits:
            self.loop.call_soon_threadsafe(self.stop, self.cell)
        if is_code:
            if self.is_forced:
                raise_at_each_line(frame)
            raise KeyboardInterrupt

    @property
    def is_forced(self) -> bool:
        """Whether the cell has had its time to end by itself."""
        return self.seconds_asked >= FORCE_SECONDS

    @property
    def seconds_asked(self) -> float:
        """The seconds since the host asked for the end of a cell that still runs; 0 if it has not."""
        asked_at = self.asked_at
        return 0.0 if asked_at is None else time.monotonic() - asked_at

    def stop(self, cell: "asyncio.Future[Any]") -> None:
        """Cancel a cell that awaits."""
        if not cell.done() and (not self.is_forced or not give_up(cell)):
            cell.cancel()

    def is_code(self, frame: FrameType | None) -> bool:
        """Whether a frame is of a cell or of code that it has called, not of the kernel around it."""
        shell = self.kernel.shell
        shows = type(shell).showtraceback.__code__
        ends_here = {type(shell).run_code.__code__: True, type(shell.events).trigger.__code__: True, shows: False}
        own = (shell.user_ns, shell.user_global_ns)
        inner = inside = frame
        while frame is not None:
            if any(frame.f_globals is names for names in own):
                return True
            if frame.f_code in ends_here:
                return ends_here[frame.f_code] and inside is not None and not is_ours(inside)
            handle = handle_of(frame)
            if handle is not None:
                return self.is_callback(handle, None if inner is frame else inner)
            inside, frame = frame, frame.f_back
        return False

    def is_callback(self, handle: Any, inner: FrameType | None) -> bool:
        """Whether a cell made a callback of the loop, none of whose functions a cell has defined.

        Args:
            handle: The callback's handle.
            inner: The running frame. None: the callback is written in C.
        """
        if not OF_CELL.get() or asyncio.current_task(self.loop) in {self.task, self.cell} - {None}:
            return False
        if inner is None:
            return not is_step(handle)
        return inner.f_globals.get("__name__", "").partition(".")[0] not in {"asyncio", "tornado", "contextlib"}

    def on_message(self, _stream: Any, _idents: Any, message: dict[str, Any]) -> None:
        """Interrupt a cell until it has ended. Called in the control thread."""
        content = message["content"]
        if content["request"] != self.ended:
            self.ending.add(content["request"])
            self.asked_at = time.monotonic()
            self.repeat(content["request"], time.monotonic() + content["seconds"])

    def repeat(self, request: str, until: float) -> None:
        """Interrupt a cell until it has ended, or until this time."""
        if request not in self.ending or self.running not in (None, request) or time.monotonic() > until:
            self.ending.discard(request)
            return
        if not self.is_felt or self.seconds_asked > PATIENCE_SECONDS:
            self.wanted = request
            # to this thread alone: a program that the cell has started may end at the first, and be cut short by a second
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        asyncio.get_running_loop().call_later(AGAIN_SECONDS, self.repeat, request, until)


def raise_at_each_line(frame: FrameType | None) -> None:
    """Interrupt code that catches an interrupt, too: at its next line, which is that of the `except`."""

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            raise KeyboardInterrupt
        return trace

    while frame is not None and handle_of(frame) is None and frame.f_code.co_name != "run_code":
        frame.f_trace = trace
        frame = frame.f_back
    sys.settrace(no_trace)


def no_trace(*_: object) -> None:
    """Trace no other code."""


INTERRUPTS = CellInterrupts()
