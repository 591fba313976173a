"""Ctrl-C, SIGTERM and SIGHUP: the first one ends the program cleanly, the second one at once.

The handlers are Python's own (`signal.signal`), not the event loop's, so that the second one works also while the loop
is busy. Nothing outlives the program then either: guards that end with it watch the processes that it has started.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

INTERRUPTED = 130
"""The exit status of an interrupted program."""
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupts:
    """The handling of interrupts while the program works; a context manager."""

    def __init__(self, on_interrupt: Callable[[bool], None]) -> None:
        """Args: on_interrupt: called in the loop at the first interrupt; the argument is False if it was a Ctrl-C."""
        self._on_interrupt = on_interrupt
        self._loop = asyncio.get_running_loop()
        self.restore_terminal: Callable[[], None] = lambda: None
        """A function to call before the program ends at once, set by the code that changes the terminal's settings."""
        self._ignores_keys = False
        self._previous: dict[int, Any] = {}
        self._pending = self._is_ending = False

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def interrupt(self) -> None:
        """Count one Ctrl-C from the keyboard: pass on the first one before returning, end the program at the second.

        A key that was typed after Ctrl-C is handled after it, even if the terminal sent both at once.
        """
        self._count(must_end=False)
        self._on_interrupt(False)

    @contextmanager
    def ignoring_keys(self) -> Iterator[None]:
        """Ignore Ctrl-C while another program has the terminal, because that program gets the key."""
        self._ignores_keys = True
        try:
            yield
        finally:
            self._ignores_keys = False

    def expect_end(self) -> None:
        """Make the next Ctrl-C end the program, because the run is already ending."""
        self._is_ending = True

    def reset(self) -> None:
        """Make the next interrupt a first one again, because the interrupted run has ended."""
        self._pending = self._is_ending = False

    def leave_at_once(self) -> None:
        """End the program without any clean-up but the terminal's."""
        self.restore_terminal()
        os._exit(INTERRUPTED)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGINT and self._ignores_keys:
            return
        must_end = number != signal.SIGINT
        self._count(must_end=must_end)
        self._loop.call_soon_threadsafe(self._on_interrupt, must_end)

    def _count(self, *, must_end: bool) -> None:
        if self._pending or (self._is_ending and not must_end):
            self.leave_at_once()
        self._pending = True
