"""Private names of ipykernel, IPython and asyncio that the code in a kernel uses; each function says what for.

Each is about state that nothing public tells or changes. Where a library has another name for it, the function does nothing,
or answers as it mostly would: a process that a cell forks may then print a text twice, the error of a forgotten task is
told late, and an interrupt may end the kernel.
"""

import asyncio
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
"""Tasks whose coroutines have not ended, and are not gone on with. Python would end one that it forgets, in a later cell."""


def forget_text(stream: Any) -> None:
    """Drop what waits in a stream of ipykernel, in a process that was forked: the text is the kernel's to send.

    One of the kernel's threads may have held the lock of the stream when the process was forked, so it gets a new one.
    """
    if hasattr(stream, "_buffers"):
        stream._buffers, stream._buffer_lock = collections.defaultdict(io.StringIO), threading.RLock()


def print_errors_by(shell: Any, function: Any) -> None:
    """Have a function print the tracebacks of cells. IPython itself has subclasses override this name."""
    shell._showtraceback = function


def has_unread_text(stream: Any) -> bool:
    """Whether text that programs have written is not in a stream of ipykernel yet, whose thread reads it from a pipe."""
    descriptor = getattr(stream, "_fid", None)
    if descriptor is None:
        return False
    return bool(select.select([descriptor], [], [], 0)[0]) or not waits_for_more(stream.watch_fd_thread, descriptor)


def waits_for_more(reader: threading.Thread, descriptor: int) -> bool:
    """Whether a thread is blocked in the call that reads a descriptor. What it has read before is then passed on.

    True where the system does not tell: Linux does so, as the number and the arguments of the call.
    """
    try:
        words = Path(f"/proc/self/task/{reader.native_id}/syscall").read_text(encoding="ascii").split()
    except OSError:
        return True
    return len(words) > 1 and int(words[1], 16) == descriptor


def descriptor_of(stream: Any) -> int | None:
    """The descriptor, 1 or 2, of which a stream of ipykernel sends what is written to it. None: it is another's stream."""
    return getattr(stream, "_original_stdstream_fd", None)


def run_first(loop: Any, function: Any) -> None:
    """Have an event loop call a function before anything else that is ready."""
    ready = getattr(loop, "_ready", None)
    if ready is not None:
        ready.appendleft(asyncio.Handle(function, (), loop))


def is_error_unread(task: Any) -> bool:
    """Whether nobody has asked a task for its error. To ask for it here would answer that for good."""
    return bool(getattr(task, "_log_traceback", False))


def may_ask(kernel: Any) -> bool:
    """Whether the program that has sent the cell which runs answers requests for input."""
    return bool(getattr(kernel, "_allow_stdin", False))


def keep_in_loop(is_kept: Callable[[Any], bool]) -> None:
    """Let no exception leave the event loops that a function names.

    asyncio takes `KeyboardInterrupt` and `SystemExit` for the end of the program. What awaits the task gets them.
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
    """The callback of a loop that begins in a frame. None: none does."""
    if RUN_CALLBACK is not None and frame.f_code is RUN_CALLBACK.__code__:
        return frame.f_locals.get("self")
    return None


def is_step(handle: Any) -> bool:
    """Whether a callback is a step of a task, or of asyncio's own."""
    callback = getattr(handle, "_callback", None)
    return isinstance(getattr(callback, "__self__", None), asyncio.Future)


def give_up(task: Any) -> bool:
    """End a task whose coroutine goes on after each cancel: what waits for the task goes on. False: that is not possible."""
    try:
        asyncio.Future.set_exception(task, KeyboardInterrupt())
    except (TypeError, asyncio.InvalidStateError):
        return False
    GIVEN_UP.add(task)
    return True
