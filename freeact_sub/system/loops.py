"""Processes that live no longer than the event loop in which they were started.

A loop that ends as `asyncio.run` ends it closes the agents that are open in it. One that is merely closed tells nobody:
what it has left is ended by whoever looks next.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Final

_ends: Final[dict[Callable[[], None], asyncio.AbstractEventLoop]] = {}
"""What ends a process, with the loop that it belongs to."""


def end_with_loop(end: Callable[[], None]) -> None:
    """Have a process of the running loop ended after the loop. Args: end: waits for the end; any thread may call it."""
    _ends[end] = asyncio.get_running_loop()


def forget(end: Callable[[], None]) -> None:
    """Note that a process has ended."""
    _ends.pop(end, None)


def is_left_behind() -> bool:
    """Whether a loop was closed before its processes had ended."""
    return any(loop.is_closed() for loop in tuple(_ends.values()))


def end_left_behind() -> None:
    """End the processes of closed loops. Blocks for a moment for each."""
    for end, loop in tuple(_ends.items()):
        if loop.is_closed() and _ends.pop(end, None) is not None:
            end()


def end_left_behind_soon() -> None:
    """Do the same in a thread, for finalizers, which must not block."""
    if is_left_behind():
        threading.Thread(target=end_left_behind, name="ends what a closed event loop has left").start()
