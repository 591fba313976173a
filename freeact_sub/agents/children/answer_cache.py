"""`AnswerCache`: what children have answered in this session, for whoever asks the same again; see `reuse.py`."""

import asyncio
import copy
from typing import Final

from freeact_sub.agents.runs.results import RunResult

MAX_KEPT: Final = 200
"""Results of one root agent; the oldest is dropped for a new one."""


class AnswerCache:
    """The results of one root's children, by key."""

    def __init__(self) -> None:
        self._results: dict[str, RunResult] = {}
        self._at_work: dict[str, asyncio.Event] = {}
        """What somebody finds out now; set when that has ended."""

    async def find(self, key: str) -> RunResult | None:
        """An earlier result, whose output is nobody else's; who finds out the same at this moment is waited for.

        Returns:
            None: there is none. Whoever asked finds it out, and must then call `settle`.
        """
        while key not in self._results:
            if key not in self._at_work:
                self._at_work[key] = asyncio.Event()
                return None
            await self._at_work[key].wait()
        return copy.deepcopy(self._results[key])

    def settle(self, key: str, result: RunResult | None) -> None:
        """Let those go on who wait. Args: result: to be used again. None: it is not to be, or there is none."""
        if result is not None:
            self._results[key] = copy.deepcopy(result)
            if len(self._results) > MAX_KEPT:
                del self._results[next(iter(self._results))]
        self._at_work.pop(key).set()
