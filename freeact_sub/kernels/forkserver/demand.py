"""`Demand`: the largest number of simultaneous requests for kernels of late; so many spares are worth keeping."""

import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from typing import Final

SECONDS: Final = 60.0
"""Seconds after which a request no longer counts."""


class Demand:
    """Counts requests, by the key of their kernels."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._unmet: Counter[Hashable] = Counter()
        self._most: dict[Hashable, deque[tuple[float, int]]] = {}
        """Times, each with the number of unmet requests then; later numbers are smaller."""

    def asked(self, key: Hashable) -> None:
        """Counts a request for a kernel that is not there yet."""
        self._unmet[key] += 1
        most, count = self._most.setdefault(key, deque()), self._unmet[key]
        while most and most[-1][1] <= count:
            most.pop()
        most.append((self._now(), count))

    def met(self, key: Hashable) -> None:
        """Ends a burst of requests: all are served, and the wanted spares are ready."""
        del self._unmet[key]

    def at_once(self, key: Hashable) -> int:
        """The largest number of requests in one burst of the last minute."""
        most = self._most.get(key, deque())
        while most and most[0][0] < self._now() - SECONDS:
            most.popleft()
        return most[0][1] if most else 0

    def forget(self, key: Hashable) -> None:
        """Drops the counts of a key."""
        del self._unmet[key]
        self._most.pop(key, None)
