"""`AnswerCache`: answers of children, reused for equal requests; see `reuse.py`."""

import asyncio
import copy
from typing import Final

from freeact_sub.agents.runs.results import RunResult

MAX_KEPT: Final = 200
"""Results that are kept for one root; a new one replaces the oldest."""


class AnswerCache:
    """The results of one root's children, by key."""

    def __init__(self) -> None:
        self._results: dict[str, RunResult] = {}
        self._at_work: dict[str, asyncio.Event] = {}
        """Requests whose child is working now; each event is set when it has ended."""

    async def find(self, key: str) -> RunResult | None:
        """Return a copy of an earlier result; wait for a child that is working on the same request.

        Returns:
            None if there is none; the caller runs the child and must then call `settle`.
        """
        while key not in self._results:
            if key not in self._at_work:
                self._at_work[key] = asyncio.Event()
                return None
            await self._at_work[key].wait()
        return copy.deepcopy(self._results[key])

    def settle(self, key: str, result: RunResult | None) -> None:
        """Wake all who wait. Args: result: to be reused. None: it must not be, or there is none."""
        if result is not None:
            self._results[key] = copy.deepcopy(result)
            if len(self._results) > MAX_KEPT:
                del self._results[next(iter(self._results))]
        self._at_work.pop(key).set()
