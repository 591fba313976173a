"""`Demand`: the largest number of kernels that were in use at once of late; so many spares are worth keeping."""

import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

SECONDS: Final = 60.0
"""Seconds after which a request no longer counts."""


@dataclass
class Burst:
    """Requests that came before spares could be made again."""

    kernels: int = 0
    """Those that are waited for or in use."""

    def end(self) -> None:
        """Counts one kernel less: it has ended, or could not be started."""
        self.kernels -= 1


class Demand:
    """Counts kernels, by their key."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._bursts: dict[Hashable, Burst] = {}
        self._most: dict[Hashable, deque[tuple[float, int]]] = {}
        """Times, each with the number of kernels of the burst then; later numbers are smaller."""

    def asked(self, key: Hashable) -> Burst:
        """Counts a request for a kernel; the burst that it belongs to."""
        burst = self._bursts.setdefault(key, Burst())
        burst.kernels += 1
        most = self._most.setdefault(key, deque())
        while most and most[-1][1] <= burst.kernels:
            most.pop()
        most.append((self._now(), burst.kernels))
        return burst

    def met(self, key: Hashable) -> None:
        """Ends a burst of requests: all are served, and the wanted spares are ready."""
        self._bursts.pop(key, None)

    def at_once(self, key: Hashable) -> int:
        """The largest number of kernels of one burst in the last minute."""
        most = self._most.get(key, deque())
        while most and most[0][0] < self._now() - SECONDS:
            most.popleft()
        return most[0][1] if most else 0

    def forget(self, key: Hashable) -> None:
        """Drops the counts of a key."""
        self._bursts.pop(key, None)
        self._most.pop(key, None)
