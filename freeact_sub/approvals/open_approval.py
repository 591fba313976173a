"""`OpenApproval`: one approval that waits for its answer. The first answer counts, from whatever thread it comes."""

import asyncio
import threading
from collections.abc import Callable

from freeact_sub.calls import Call
from freeact_sub.events import Decision
from freeact_sub.system.event_loop import running_loop


class OpenApproval:
    """Waits for a decision, and announces it as soon as it is taken."""

    def __init__(self, call: Call, announce: Callable[[Decision], None]) -> None:
        """Args: announce: called once with the decision, on the event loop, before the waiting call continues."""
        self.call = call
        self.answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
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

    def decide(self, decision: Decision) -> bool:
        """Answers the question; returns False if it was answered or withdrawn before."""
        with self._lock:
            if self._decided or self._loop.is_closed():
                return False
            self._decided = True
        if running_loop() is self._loop:
            self._settle(decision)
        else:
            self._loop.call_soon_threadsafe(self._settle, decision)
        return True

    def _settle(self, decision: Decision) -> None:
        self._announce(decision)
        if not self.answer.done():
            self.answer.set_result(decision)
