"""`Pulse`: what a server tells of how far a request is. One that tells is not silent: its time begins anew."""

import math
from collections.abc import Callable
from typing import Final, TypeAlias

from freeact_sub.events.call_progress import CallProgress

TELL_SECONDS: Final = 0.2
"""Between two of a request that are passed on."""
MAX_TIMES: Final = 12
"""How often its time limit a request may take that tells of its progress."""
MAX_CHARS: Final = 1_000
"""Of a message."""

OnProgress: TypeAlias = Callable[[CallProgress], None]


class Pulse:
    """The progress of one request."""

    def __init__(self, clock: Callable[[], float], seconds: float, on_progress: OnProgress | None = None) -> None:
        """Makes it; its time begins with `begin`.

        Args:
            clock: The seconds that count.
            seconds: The time limit of the request, from its begin or from its last progress.
            on_progress: Called with each progress that is passed on. None: nobody hears it.
        """
        self._clock = clock
        self._seconds = seconds
        self._on_progress = on_progress
        self._began = self._last = clock()
        self._told = -math.inf

    def begin(self) -> None:
        """The request is on its way."""
        self._began = self._last = self._clock()

    async def beat(self, progress: float, total: float | None, message: str | None) -> None:
        """The server tells; the callback of the MCP SDK."""
        self._last = now = self._clock()
        is_last = total is not None and progress >= total
        if self._on_progress is None or not math.isfinite(progress) or (now - self._told < TELL_SECONDS and not is_last):
            return
        self._told = now
        total = total if total is not None and math.isfinite(total) and total > 0 else None
        self._on_progress(CallProgress(progress=progress, total=total, message=(message or "")[:MAX_CHARS]))

    @property
    def left(self) -> float:
        """The seconds that the request has left."""
        return min(self._last + self._seconds, self._began + MAX_TIMES * self._seconds) - self._clock()

    @property
    def lateness(self) -> str:
        """How a request is late, in words that follow its name."""
        if self._last == self._began:
            return f"did not respond within {self._seconds:g} s"
        if self._clock() - self._last >= self._seconds:
            return f"told of its progress, and then nothing for {self._seconds:g} s"
        return f"told of its progress, and has not ended within {MAX_TIMES} times its {self._seconds:g} s"
