"""Clean-up that is carried to its end, whatever happens to the task that waits for it.

A task may be cancelled in two ways: by asyncio (`task.cancel()`, once) and by an anyio scope (again and again, at every
await). Both would cut a `finally` short and leave a process behind. `carry_out` runs the clean-up in its own task,
waits for it within a bound, and passes the cancellation on afterwards.

Processes live no longer than the event loop in which they were started. A loop that ends as `asyncio.run` ends it closes the
agents that are open in it. A loop that is merely closed tells nobody: the next look ends the processes that it has left.

`guarded_shell` runs a command in a shell under the process guard, which ends with all that it has started. `DaemonThreads`
are for calls that may never return, such as a look at a file system that does not answer: threads of `asyncio.to_thread`
would keep the program from ending.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar

import anyio

from freeact_sub.system.guard import GUARD_COMMAND

END_SECONDS: Final = 5.0
"""Seconds that a cancelled background task has to end."""

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

MAX_THREADS: Final = 32


async def carry_out(work: Coroutine[Any, Any, object], *, timeout_seconds: float = 10) -> None:
    """Run clean-up to its end even if the waiting task is cancelled, and raise the cancellation afterwards.

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


async def joined(task: asyncio.Task[None]) -> None:
    """Wait for the end of a task that a cancel here leaves alone, and raise its error."""
    await asyncio.wait({task})
    task.result()


async def until_done(task: asyncio.Task[Any]) -> None:
    """Wait for a task of ours as if its work were done here: a cancellation ends the task first, and is raised then."""
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
    """Cancel a background task and wait for its end. Drop its result; log its error."""
    task.cancel()
    await asyncio.wait({task}, timeout=END_SECONDS)
    if not task.done():
        logger.error("task %s did not end in %g s: abandoned", task.get_name(), END_SECONDS)
    elif not task.cancelled() and task.exception() is not None:
        logger.error("task %s failed", task.get_name(), exc_info=task.exception())


async def end_guarded(
    process: subprocess.Popen[bytes] | asyncio.subprocess.Process, ended: asyncio.Future[Any], *, timeout_seconds: float
) -> None:
    """End a guarded program and its descendants; kill the process group after a timeout.

    Args:
        process: The guard, the leader of its process group.
        ended: Done when the guard has ended.
        timeout_seconds: Seconds to wait for the end, and again after the kill.
    """
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    done, _ = await asyncio.wait({ended}, timeout=timeout_seconds)
    if not done:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.wait({ended}, timeout=timeout_seconds)


_ends: Final[dict[Callable[[], None], asyncio.AbstractEventLoop]] = {}
"""Functions that end a process, with the loop of each."""


def end_with_loop(end: Callable[[], None]) -> None:
    """End a process after the running loop. Args: end: waits for the end; any thread may call it."""
    _ends[end] = asyncio.get_running_loop()


def forget(end: Callable[[], None]) -> None:
    """Forget a process that has ended."""
    _ends.pop(end, None)


def is_left_behind() -> bool:
    """Return whether a loop was closed before its processes had ended."""
    return any(loop.is_closed() for loop in tuple(_ends.values()))


def end_left_behind() -> None:
    """End the processes of closed loops. Blocks for a moment for each."""
    for end, loop in tuple(_ends.items()):
        if loop.is_closed() and _ends.pop(end, None) is not None:
            end()


def end_left_behind_soon() -> None:
    """End the processes of closed loops in a thread; for finalizers, which must not block."""
    if is_left_behind():
        threading.Thread(target=end_left_behind, name="ends what a closed event loop has left").start()


SHELL_END_SECONDS: Final = 3.0
CHUNK_BYTES: Final = 65_536


@asynccontextmanager
async def guarded_shell(
    command: str, folder: Path, environment: Mapping[str, str], *, stdin: int, stderr: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a shell that runs a command; leaving the block ends it and all its descendants.

    Args:
        command: Text for bash, or for `/bin/sh` where the environment has no bash.
        folder: The working directory.
        environment: All environment variables.
        stdin: As in `subprocess`. Standard output is always a pipe.
        stderr: As in `subprocess`.
    """
    process = await asyncio.create_subprocess_exec(
        *GUARD_COMMAND,
        str(os.getpid()),
        shutil.which("bash", path=environment.get("PATH")) or "/bin/sh",
        "-c",
        command,
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        cwd=folder,
        env=dict(environment),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        await carry_out(_end_shell(process))


async def _end_shell(process: asyncio.subprocess.Process) -> None:
    streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
    # asyncio notices the end of a process only once all that it has written is read
    reading = [asyncio.create_task(_read_to_end(stream)) for stream in streams]
    if process.returncode is None:
        await end_guarded(process, asyncio.create_task(process.wait()), timeout_seconds=SHELL_END_SECONDS)
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)


async def _read_to_end(stream: asyncio.StreamReader) -> None:
    while await stream.read(CHUNK_BYTES):
        pass


class DaemonThreads(Executor):
    """An executor of at most `MAX_THREADS` threads, which end with the program whatever they do."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls = SimpleQueue[tuple[Future[Any], Callable[[], Any]]]()
        self._idle = threading.Semaphore(0)
        self._started = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Runs a call as soon as a thread is free."""
        future = Future[T]()
        self._calls.put((future, lambda: fn(*args, **kwargs)))
        if not self._idle.acquire(blocking=False) and self._started < MAX_THREADS:
            self._started += 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            future, call = self._calls.get()
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as error:  # noqa: BLE001  # it is the caller's
                    future.set_exception(error)
                else:
                    future.set_result(result)
            del future, call
            self._idle.release()
