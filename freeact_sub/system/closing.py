"""Clean-up that is carried to its end, whatever happens to the task that waits for it.

A task may be cancelled in two ways: by asyncio (`task.cancel()`, once) and by an anyio scope (again and again, at every
await). Both would cut a `finally` short and leave a process behind. `carry_out` runs the clean-up in its own task,
waits for it within a bound, and passes the cancellation on afterwards.
"""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
from collections.abc import Coroutine
from typing import Any, Final

import anyio

END_SECONDS: Final = 5.0
"""For a background task that was cancelled."""

logger = logging.getLogger(__name__)


async def carry_out(work: Coroutine[Any, Any, None], *, timeout_seconds: float = 10) -> None:
    """Runs clean-up to its end even if the waiting task is cancelled, and raises the cancellation afterwards.

    Args:
        work: The clean-up. Its exceptions are raised here.
        timeout_seconds: After this time the clean-up is cancelled, and an error in the log names it.
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


async def until_done(task: asyncio.Task[Any]) -> None:
    """Waits for a task of ours as if its work were done here: a cancellation ends it first, and is raised then."""
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        with anyio.CancelScope(shield=True):
            while not task.done():
                try:
                    await asyncio.wait({task})
                except asyncio.CancelledError:
                    task.cancel()  # asked again
        if not task.cancelled():
            task.exception()  # retrieve it: the cancellation is what counts
        raise


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancels a background task and waits for its end. Drops its result; logs its error."""
    task.cancel()
    await asyncio.wait({task}, timeout=END_SECONDS)
    if not task.done():
        logger.error("task %s did not end in %g s: abandoned", task.get_name(), END_SECONDS)
    elif not task.cancelled() and task.exception() is not None:
        logger.error("task %s failed", task.get_name(), exc_info=task.exception())


async def end_guarded(
    process: subprocess.Popen[bytes] | asyncio.subprocess.Process, ended: asyncio.Future[Any], *, timeout_seconds: float
) -> None:
    """Has a process guard end its program and all that the program has started; kills its group where that takes too long.

    Args:
        process: The guard, the leader of its process group.
        ended: Done when the guard has ended.
        timeout_seconds: How long it may take to end, and again when it was killed.
    """
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    done, _ = await asyncio.wait({ended}, timeout=timeout_seconds)
    if not done:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.wait({ended}, timeout=timeout_seconds)
