"""`Backlog`: what waits for the thread that writes a session.

Each transaction costs as much as several writes, and each time the thread wakes up it takes the interpreter from the event
loop. So the thread lets writes gather for a moment, unless somebody waits for them.
"""

import queue
import threading
from typing import Any, Final

GATHER_SECONDS: Final = 0.1
"""How long a write may wait for others that nobody waits for."""


class Backlog:
    """Any thread puts, one takes.

    To wake the thread costs more than most writes. So one that nobody waits for wakes it only where it would sleep for
    longer than a write may wait; after it has taken something it looks once more by itself.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: list[Any] = []
        self._asleep = False
        """Nobody looks any more: what comes must wake the thread."""
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """True: at once."""

    def put(self, item: Any, *, now: bool = False) -> None:
        """Add an item. Args: now: it is not to wait for others."""
        with self._lock:
            self._items.append(item)
            if now or self._asleep:
                self._wake.put(now)
                self._asleep = False

    def take(self) -> list[Any]:
        """Wait for items. Returns: all there are, in their order."""
        self._sleep(GATHER_SECONDS)
        while True:
            with self._lock:
                taken, self._items = self._items, []
                self._asleep = not taken
                while not self._wake.empty():
                    self._wake.get_nowait()
            if taken:
                return taken
            if not self._sleep(None):
                self._sleep(GATHER_SECONDS)

    def _sleep(self, seconds: float | None) -> bool:
        """Until somebody wakes the thread, or until the time is over. Returns: whether it is to be at once."""
        try:
            return self._wake.get(timeout=seconds)
        except queue.Empty:
            return False
