"""`RunClock`: the time a run may take.

It stops while a person is asked on behalf of the run or a descendant, and while the run waits for a slot or a kernel.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import anyio

from freeact_sub.errors import LimitReachedError
from freeact_sub.system.stopwatch import Stopwatch


class RunClock:
    """The clock of one run."""

    def __init__(self, seconds: float | None, reached: Callable[[str, float, float], LimitReachedError]) -> None:
        """Args: seconds: the bound; None: no bound. reached: makes the error from a limit, an amount and a bound."""
        self._reached = reached
        self._seconds = seconds
        self._watch = Stopwatch(self._set_deadline)
        self._scope: anyio.CancelScope | None = None

    @property
    def left(self) -> float | None:
        """The remaining seconds. None: no bound."""
        return None if self._seconds is None else self._seconds - self._watch.seconds

    @property
    def stood_still(self) -> float:
        """For how many seconds it has stood still."""
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
        """Cancel the block when the time is up; the scope's `cancelled_caught` tells."""
        with anyio.CancelScope() as self._scope:
            self._set_deadline()
            yield self._scope

    def paused(self) -> AbstractContextManager[None]:
        """Stop the clock during the block."""
        return self._watch.paused()

    def _set_deadline(self) -> None:
        if self._scope is not None and self.left is not None:
            self._scope.deadline = float("inf") if self._watch.is_paused else anyio.current_time() + self.left
