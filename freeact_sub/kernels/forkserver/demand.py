"""`Demand`: how many kernels were asked for at once of late, which is how many are worth keeping ready."""

import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from typing import Final

SECONDS: Final = 60.0
"""What was asked for longer ago does not count."""


class Demand:
    """Counts, by what kernels are started with."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._unmet: Counter[Hashable] = Counter()
        self._most: dict[Hashable, deque[tuple[float, int]]] = {}
        """When so many were unmet; later ones are smaller."""

    def asked(self, key: Hashable) -> None:
        """A kernel is asked for."""
        self._unmet[key] += 1
        most, count = self._most.setdefault(key, deque()), self._unmet[key]
        while most and most[-1][1] <= count:
            most.pop()
        most.append((self._now(), count))

    def met(self, key: Hashable) -> None:
        """All that were asked for are there, and as many are ready as are to be kept."""
        del self._unmet[key]

    def at_once(self, key: Hashable) -> int:
        """How many were asked for before they, and those to be kept ready, were there: the most of the last minute."""
        most = self._most.get(key, deque())
        while most and most[0][0] < self._now() - SECONDS:
            most.popleft()
        return most[0][1] if most else 0

    def forget(self, key: Hashable) -> None:
        """Nobody asks for such kernels any more."""
        del self._unmet[key]
        self._most.pop(key, None)
