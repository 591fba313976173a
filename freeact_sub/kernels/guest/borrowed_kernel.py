"""Private names of ipykernel, IPython and asyncio that the code in a kernel uses; each function says what for.

Each is about state that nothing public tells or changes. Where a library has another name for it, the function does nothing,
or answers as it mostly would: a process that a cell forks may then print a text twice, and the error of a forgotten task is
told late.
"""

import asyncio
import collections
import io
import select
import threading
from pathlib import Path
from typing import Any


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
