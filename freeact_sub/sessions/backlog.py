"""`Backlog`: what waits for the thread that writes a session.

Each transaction costs as much as several writes, and each time the thread wakes up it takes the interpreter from the event
loop. So the thread lets writes gather for a moment, unless somebody waits for them.
"""

import threading
from typing import Any, Final

GATHER_SECONDS: Final = 0.1
"""How long a write may wait for others that nobody waits for."""


class Backlog:
    """Any thread puts, one takes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._items: list[Any] = []
        self._urgent = False

    def put(self, item: Any, *, now: bool = False) -> None:
        """Add an item. Args: now: it is not to wait for others."""
        with self._changed:
            self._items.append(item)
            self._urgent = self._urgent or now
            if now or len(self._items) == 1:
                self._changed.notify()

    def take(self) -> list[Any]:
        """Wait for items. Returns: all there are, in their order."""
        with self._changed:
            self._changed.wait_for(lambda: self._items)
            self._changed.wait_for(lambda: self._urgent, GATHER_SECONDS)
            taken, self._items, self._urgent = self._items, [], False
            return taken
