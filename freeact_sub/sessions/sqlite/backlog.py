"""`Backlog`: the queue of the thread that writes a session.

Each transaction costs as much as several writes, and each time the thread wakes up it takes the interpreter from the event
loop. So the thread lets writes gather for a moment, unless somebody waits for them.
"""

import queue
import threading
from typing import Any, Final

GATHER_SECONDS: Final = 0.1
"""Seconds that a write may wait for others to share its transaction."""


class Backlog:
    """A queue that any thread puts into and one thread takes from.

    Waking the thread costs more than most writes. So an item that nobody waits for wakes it only if it sleeps without a
    time limit; after it has taken items, it looks once more by itself.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: list[Any] = []
        self._asleep = False
        """The thread sleeps without a time limit: the next item must wake it."""
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """True: take at once."""

    def put(self, item: Any, *, now: bool = False) -> None:
        """Adds an item. Args: now: write it without waiting for others."""
        with self._lock:
            self._items.append(item)
            if now or self._asleep:
                self._wake.put(now)
                self._asleep = False

    def take(self) -> list[Any]:
        """Waits for items. Returns: all of them, in order."""
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
        """Sleeps until somebody wakes the thread or the time is over. Returns: whether to take at once."""
        try:
            return self._wake.get(timeout=seconds)
        except queue.Empty:
            return False
