"""`OpenQuestion`: one open question or approval request. The first answer from any thread counts."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeAlias, TypeVar

from freeact_sub.calls import Call
from freeact_sub.events import Decision
from freeact_sub.events.effects import CLOSED, Effects
from freeact_sub.system.event_loop import running_loop
from freeact_sub.text import one_line

UNSHOWN_SECONDS: Final = 30.0
"""The log warns about a question that no front end has shown for so long."""
TOO_LATE: Final = "nobody has answered within {seconds:g} s (setting `approval_timeout_seconds`)"
UNSHOWN: Final = (
    "%s waits for an answer since %g s: %s; whoever reads the events must call event.approve(), event.deny() or "
    "event.answer(), or run.answer() (the setting `approval_timeout_seconds` bounds the wait)"
)
NOT_TRIED: Final = Effects(status="refused", reason="only cells of an agent's own kernel are tried")
TryOut: TypeAlias = Callable[[Call], Coroutine[None, None, Effects]]
"""Does what a call would do where it changes nothing. It raises only when it is cancelled."""
A = TypeVar("A")

logger = logging.getLogger(__name__)


class OpenQuestion(Generic[A]):
    """Waits for an answer or a decision, and announces it at once."""

    def __init__(self, announce: Callable[[A], None]) -> None:
        """Args: announce: called once with the outcome, on the event loop, before the waiting caller continues."""
        self.outcome: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._announce = announce
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._decided = False
        self.shown = False
        """A front end has put it before a person."""

    @property
    def is_decided(self) -> bool:
        """Whether it is answered or withdrawn."""
        return self._decided

    def decide(self, answer: A) -> bool:
        """Closes the question with an answer or a decision; returns False if it was already closed."""
        with self._lock:
            if self._decided or self._loop.is_closed():
                return False
            self._decided = True
        if running_loop() is self._loop:
            self._settle(answer)
        else:
            self._loop.call_soon_threadsafe(self._settle, answer)
        return True

    @contextmanager
    def timed(
        self,
        agent_id: str,
        words: str,
        *,
        unshown_seconds: float,
        timeout_seconds: float | None,
        too_late: Callable[[str], A],
    ) -> Iterator[None]:
        """Log the question, in these words, if no front end shows it in time; answer it when the time is up.

        Args:
            agent_id: The agent that asks.
            words: The question, for the log.
            unshown_seconds: The time to show it.
            timeout_seconds: The time to answer it. None: there is no bound.
            too_late: Makes the answer from a reason.
        """
        loop = asyncio.get_running_loop()

        def warn() -> None:
            if not self.shown:
                logger.warning(UNSHOWN, agent_id, unshown_seconds, one_line(words, 200))

        timers = [loop.call_later(unshown_seconds, warn)]
        if timeout_seconds is not None:
            answer = too_late(TOO_LATE.format(seconds=timeout_seconds))
            timers.append(loop.call_later(timeout_seconds, self.decide, answer))
        try:
            yield
        finally:
            for timer in timers:
                timer.cancel()

    def _settle(self, answer: A) -> None:
        self._announce(answer)
        if not self.outcome.done():
            self.outcome.set_result(answer)


class OpenApproval(OpenQuestion[Decision]):
    """A call that waits for a decision."""

    def __init__(self, call: Call, announce: Callable[[Decision], None], try_out: TryOut | None = None) -> None:
        """Args: announce: see `OpenQuestion`. try_out: tries what the call would do. None: it cannot be tried."""
        super().__init__(announce)
        self.call = call
        self._try_out = try_out
        self._trial: asyncio.Task[Effects] | None = None

    @property
    def effects(self) -> Effects | None:
        """What the call did in its trial. None: that has not begun, or not ended."""
        trial = self._trial
        return trial.result() if trial is not None and trial.done() and not trial.cancelled() else None

    async def effects_ready(self) -> Effects:
        """Tries the call, once; waits for what it did, or for the decision. From any event loop."""
        if running_loop() is not self._loop:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.effects_ready(), self._loop))
        if self._decided:
            return self.effects or CLOSED
        if self._try_out is None:
            return NOT_TRIED
        if self._trial is None:
            self._trial = asyncio.create_task(self._try_out(self.call), name="trial of a call")
        either: set[asyncio.Future[Any]] = {self._trial, self.outcome}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return self.effects or CLOSED

    def end_trial(self) -> None:
        """Nobody needs its result any more."""
        if self._trial is not None:
            self._trial.cancel()
