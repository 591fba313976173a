"""`RunClock`: the time a run may take. It stands still while a person is asked for the run, or for a run below it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from freeact_sub.errors import LimitReachedError


class RunClock:
    """The clock of one run."""

    def __init__(self, owner: str, seconds: float | None) -> None:
        """Args: owner: the agent's id. seconds: what the run may take; None: no bound."""
        self._owner = owner
        self._seconds = seconds
        self._started = time.monotonic()
        self._paused_at = 0.0
        self._paused_seconds = 0.0
        self._pauses = 0
        self._scope: anyio.CancelScope | None = None

    @property
    def left(self) -> float | None:
        """Seconds; None where there is no bound."""
        return None if self._seconds is None else self._seconds - self._taken

    @property
    def _taken(self) -> float:
        now = self._paused_at if self._pauses else time.monotonic()
        return now - self._started - self._paused_seconds

    @property
    def reached(self) -> LimitReachedError:
        """The error that names the bound."""
        return LimitReachedError("seconds", amount=round(self._taken, 3), bound=self._seconds or 0.0, owner=self._owner)

    def check(self) -> None:
        """Raise LimitReachedError if no time is left."""
        if self.left is not None and self.left <= 0:
            raise self.reached

    @contextmanager
    def running(self) -> Iterator[anyio.CancelScope]:
        """Cancels what is inside when the time is up; `cancelled_caught` of the scope tells."""
        with anyio.CancelScope() as self._scope:
            self._set_deadline()
            yield self._scope

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time in here does not count."""
        if self._pauses == 0:
            self._paused_at = time.monotonic()
        self._pauses += 1
        self._set_deadline()
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                self._paused_seconds += time.monotonic() - self._paused_at
            self._set_deadline()

    def _set_deadline(self) -> None:
        if self._scope is None or self.left is None:
            return
        self._scope.deadline = float("inf") if self._pauses else anyio.current_time() + self.left
