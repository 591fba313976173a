"""Values that pass through the host in pieces: several are on their way at once, so that nobody waits for the one before."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from typing import Any, Final, TypeVar

PIECE_BYTES: Final = 4 * 2**20
PIECES_AHEAD: Final = 4
"""Pieces that are requested or sent before the first is answered."""

T = TypeVar("T")


async def in_order(works: AsyncIterator[Coroutine[Any, Any, T]]) -> AsyncGenerator[T]:
    """The results of coroutines in their order, a few of which run at once. None runs any more when this has ended.

    Args:
        works: The coroutines; the next one is taken when there is room for it.
    """
    running: deque[asyncio.Task[T]] = deque()
    try:
        async for work in works:
            running.append(asyncio.create_task(work))
            if len(running) == PIECES_AHEAD:
                yield await running.popleft()
        while running:
            yield await running.popleft()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
