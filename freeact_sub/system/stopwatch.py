"""`Stopwatch`: measures time that can be paused."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stopwatch:
    """A count of seconds since it was made, which stands still while paused."""

    def __init__(self, on_change: Callable[[], None], *, now: Callable[[], float] = time.monotonic) -> None:
        """Args: on_change: called when it stops and when it continues. now: tells the time in seconds."""
        self._on_change = on_change
        self._now = now
        self._began = now()
        self._pauses = 0
        self._paused_at = 0.0
        self._paused_seconds = 0.0

    @property
    def is_paused(self) -> bool:
        """Whether it stands still now."""
        return self._pauses > 0

    @property
    def seconds(self) -> float:
        """Seconds so far, without those for which it stood still."""
        return self._now() - self._began - self.paused_seconds

    @property
    def paused_seconds(self) -> float:
        """Seconds for which it has stood still so far."""
        return self._paused_seconds + (self._now() - self._paused_at if self._pauses else 0.0)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stops the time inside; pauses may overlap."""
        if not self._pauses:
            self._paused_at = self._now()
        self._pauses += 1
        self._on_change()
        try:
            yield
        finally:
            if self._pauses == 1:
                self._paused_seconds = self.paused_seconds
            self._pauses -= 1
            self._on_change()
