"""Private names of ipykernel, IPython, asyncio and atexit that the code in a kernel uses; each function says what for.

Nothing public tells or changes this state. Where a library has another name for it, the function does nothing, or answers as
it mostly would: a process that a cell forks may then print a text twice, the error of a forgotten task is told late, and an
interrupt may end the kernel.
"""

import asyncio
import atexit
import collections
import functools
import io
import select
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

RUN_CALLBACK: Any = getattr(asyncio.Handle, "_run", None)
GIVEN_UP: set[Any] = set()
"""Abandoned tasks whose coroutines have not ended. Python would end a forgotten one, in a later cell."""


def forget_text(stream: Any) -> None:
    """Drop unsent text of a stream of ipykernel in a forked process: the kernel sends it.

    One of the kernel's threads may have held the lock of the stream at the fork, so the stream gets a new one.
    """
    if hasattr(stream, "_buffers"):
        stream._buffers, stream._buffer_lock = collections.defaultdict(io.StringIO), threading.RLock()


def print_errors_by(shell: Any, function: Any) -> None:
    """Let a function print the tracebacks of cells. IPython itself tells subclasses to override this name."""
    shell._showtraceback = function


def has_unread_text(stream: Any) -> bool:
    """Whether the thread of a stream of ipykernel has not yet read all text of programs from its pipe."""
    descriptor = getattr(stream, "_fid", None)
    if descriptor is None:
        return False
    return bool(select.select([descriptor], [], [], 0)[0]) or not waits_for_more(stream.watch_fd_thread, descriptor)


def waits_for_more(reader: threading.Thread, descriptor: int) -> bool:
    """Whether a thread is blocked in the call that reads a descriptor. Text read earlier has then been passed on.

    True where the system does not tell; Linux shows the number and the arguments of the call.
    """
    try:
        words = Path(f"/proc/self/task/{reader.native_id}/syscall").read_text(encoding="ascii").split()
    except OSError:
        return True
    return len(words) > 1 and int(words[1], 16) == descriptor


def descriptor_of(stream: Any) -> int | None:
    """Return the descriptor, 1 or 2, whose text a stream of ipykernel sends. None: another stream."""
    return getattr(stream, "_original_stdstream_fd", None)


def run_first(loop: Any, function: Any) -> None:
    """Let an event loop call a function before all other callbacks that are ready."""
    ready = getattr(loop, "_ready", None)
    if ready is not None:
        ready.appendleft(asyncio.Handle(function, (), loop))


def is_error_unread(task: Any) -> bool:
    """Whether no code has asked a task for its error. Asking here would mark it as read for good."""
    return bool(getattr(task, "_log_traceback", False))


def may_ask(kernel: Any) -> bool:
    """Whether the program that sent the running cell answers requests for input."""
    return bool(getattr(kernel, "_allow_stdin", False))


def keep_in_loop(is_kept: Callable[[Any], bool]) -> None:
    """Let no exception leave the event loops that a function names.

    asyncio takes `KeyboardInterrupt` and `SystemExit` for the end of the program. Code that awaits the task gets them.
    """
    if RUN_CALLBACK is None or hasattr(asyncio.Handle._run, "__wrapped__"):
        return

    @functools.wraps(RUN_CALLBACK)
    def run(handle: Any) -> None:
        if GIVEN_UP and is_step(handle) and handle._callback.__self__ in GIVEN_UP:
            return
        try:
            RUN_CALLBACK(handle)
        except (KeyboardInterrupt, SystemExit) as error:
            if not is_kept(handle._loop):
                raise
            if not is_step(handle):
                context = {"message": f"Interrupted: {handle!r}", "exception": error, "handle": handle}
                handle._loop.call_exception_handler(context)

    asyncio.Handle._run = run  # type: ignore[assignment, method-assign]


def handle_of(frame: FrameType) -> Any:
    """Return the callback of a loop that begins in a frame, if one does."""
    if RUN_CALLBACK is not None and frame.f_code is RUN_CALLBACK.__code__:
        return frame.f_locals.get("self")
    return None


def is_step(handle: Any) -> bool:
    """Whether a callback is a step of a task, or of asyncio's own."""
    callback = getattr(handle, "_callback", None)
    return isinstance(getattr(callback, "__self__", None), asyncio.Future)


def give_up(task: Any) -> bool:
    """End a task whose coroutine goes on after each cancel, so that its waiters go on. False: impossible."""
    try:
        asyncio.Future.set_exception(task, KeyboardInterrupt())
    except (TypeError, asyncio.InvalidStateError):
        return False
    GIVEN_UP.add(task)
    return True


def number_at_exit() -> int:
    """Return the number of functions that Python calls at its end."""
    return getattr(atexit, "_ncallbacks", int)()
