"""`RunClock`: the time a run may take.

It stands still while a person is asked for the run, or for a run below it, and while the run waits for its turn: for a place
among the agents at work, or for a kernel.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import anyio

from freeact_sub.errors import LimitReachedError
from freeact_sub.system.stopwatch import Stopwatch


class RunClock:
    """The clock of one run."""

    def __init__(self, seconds: float | None, reached: Callable[[str, float, float], LimitReachedError]) -> None:
        """Args: seconds: what the run may take; None: no bound. reached: the error for a limit, an amount and a bound."""
        self._reached = reached
        self._seconds = seconds
        self._watch = Stopwatch(self._set_deadline)
        self._scope: anyio.CancelScope | None = None

    @property
    def left(self) -> float | None:
        """Seconds; None where there is no bound."""
        return None if self._seconds is None else self._seconds - self._watch.seconds

    @property
    def stood_still(self) -> float:
        """Seconds for which it has stood still so far."""
        return self._watch.paused_seconds

    @property
    def reached(self) -> LimitReachedError:
        """The error that names the bound."""
        return self._reached("seconds", round(self._watch.seconds, 3), self._seconds or 0.0)

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

    def paused(self) -> AbstractContextManager[None]:
        """Time in here does not count."""
        return self._watch.paused()

    def _set_deadline(self) -> None:
        if self._scope is not None and self.left is not None:
            self._scope.deadline = float("inf") if self._watch.is_paused else anyio.current_time() + self.left
