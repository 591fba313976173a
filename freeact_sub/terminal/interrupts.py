"""Ctrl-C, SIGTERM and SIGHUP: once is a request to end cleanly, twice ends the program at once.

The handlers are Python's own (`signal.signal`), not the event loop's, so that the second one works also while the loop
is busy. Nothing outlives the program then either: what it has started is watched by guards that end with it.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

INTERRUPTED = 130
"""Exit status of a program that was interrupted."""
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupts:
    """Owns the handling of interrupts while the program works; a context manager."""

    def __init__(self, on_interrupt: Callable[[bool], None]) -> None:
        """Args: on_interrupt: called in the loop at the first interrupt; the argument is False if it was a Ctrl-C."""
        self._on_interrupt = on_interrupt
        self._loop = asyncio.get_running_loop()
        self.restore_terminal: Callable[[], None] = lambda: None
        """Called before the program ends at once: whoever changes the terminal's settings puts this here."""
        self._ignores_keys = False
        self._previous: dict[int, Any] = {}
        self._pending = self._is_ending = False

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def interrupt(self, *, must_end: bool = False) -> None:
        """Count one interrupt: the first is passed on, the second ends the program.

        Args:
            must_end: False for Ctrl-C, which at an idle prompt ends nothing.
        """
        if self._pending or (self._is_ending and not must_end):
            self.leave_at_once()
        self._pending = True
        self._loop.call_soon_threadsafe(self._on_interrupt, must_end)

    @contextmanager
    def ignoring_keys(self) -> Iterator[None]:
        """For this time another program has the terminal: a Ctrl-C is for that one."""
        self._ignores_keys = True
        try:
            yield
        finally:
            self._ignores_keys = False

    def expect_end(self) -> None:
        """What runs is being ended: the next Ctrl-C ends the program."""
        self._is_ending = True

    def reset(self) -> None:
        """What was interrupted has ended: the next interrupt is a first one again."""
        self._pending = self._is_ending = False

    def leave_at_once(self) -> None:
        """End the program without any clean-up but the terminal's."""
        self.restore_terminal()
        os._exit(INTERRUPTED)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGINT and self._ignores_keys:
            return
        self.interrupt(must_end=number != signal.SIGINT)
