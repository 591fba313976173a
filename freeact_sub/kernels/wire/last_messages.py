"""`LastMessages`: whether messages of a kernel still come. `is_needed`: which of too many are read."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

MAX_NEEDED_BYTES: Final = 65_536
NEEDED: Final = (b'"status"', b'"freeact_')
"""In the headers of messages that end a cell or ask its host."""
QUIET_SECONDS: Final = 0.1
"""Seconds without a message after which an ended kernel has sent nothing more."""
LAST_SECONDS: Final = 5.0
"""Seconds at most for its last messages."""


class LastMessages:
    """Counts the messages of one kernel."""

    def __init__(self) -> None:
        self._count = 0

    def came(self) -> None:
        """A message has come."""
        self._count += 1

    async def end(self) -> None:
        """Waits until nothing has come for a moment: what a kernel sent before it ended may still be on its way.

        No event tells that: the end of a process is heard before its last messages when this program was busy.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                count = -1
                while count != self._count:
                    count = self._count
                    await asyncio.sleep(QUIET_SECONDS)


def is_needed(parts: Sequence[bytes]) -> bool:
    """Whether a message ends a cell or asks its host."""
    return sum(map(len, parts)) <= MAX_NEEDED_BYTES and any(kind in parts[0] for kind in NEEDED)
