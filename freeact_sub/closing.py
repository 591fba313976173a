"""Clean-up that is carried to its end, whatever happens to the task that waits for it.

A task may be cancelled in two ways: by asyncio (`task.cancel()`, once) and by an anyio scope (again and again, at every
await). Both would cut a `finally` short and leave a process behind. `carry_out` runs the clean-up in a task of its own,
waits for it within a bound, and passes the cancellation on afterwards.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import anyio

logger = logging.getLogger(__name__)


async def carry_out(work: Coroutine[Any, Any, None], *, timeout_seconds: float = 10) -> None:
    """Run clean-up to its end though the waiting task is cancelled; the cancellation is raised again afterwards.

    Args:
        work: The clean-up. What it raises is raised here.
        timeout_seconds: After this time the clean-up is cancelled, and an error is logged that names it.
    """
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    deadline = asyncio.get_running_loop().time() + timeout_seconds
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait({task}, timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
            except asyncio.CancelledError as error:
                cancelled = error
                continue
            if not task.done():
                logger.error("clean-up %s did not end in %g s: abandoned", task.get_coro(), timeout_seconds)
                task.cancel()
                await asyncio.wait({task}, timeout=1)
                break
    if cancelled is not None:
        if task.done() and not task.cancelled() and task.exception() is not None:
            logger.error("clean-up %s failed", task.get_coro(), exc_info=task.exception())
        raise cancelled
    if task.done() and not task.cancelled():
        task.result()


async def end_task(task: asyncio.Task[Any], *, timeout_seconds: float = 5) -> None:
    """Cancel a background task and wait until it has ended; its own outcome is dropped, an error is logged."""
    task.cancel()
    await asyncio.wait({task}, timeout=timeout_seconds)
    if not task.done():
        logger.error("task %s did not end in %g s: abandoned", task.get_name(), timeout_seconds)
    elif not task.cancelled() and task.exception() is not None:
        logger.error("task %s failed", task.get_name(), exc_info=task.exception())
