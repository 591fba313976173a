"""Time in which nothing but waiting takes any: the clock of the event loop stands still while there is work.

What a test measures in it is the sum of the delays and bounds that were waited for, to the last of them, and never how busy
the machine is.
"""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from support.waiting import eventually

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Instead of waiting for a time, moves the clock; what threads are at work on is waited for."""

    seconds = 0.0
    threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0 or self.threads:
            return super().select(None if self.threads and timeout != 0 else timeout)
        if not (events := super().select(0)):
            self.seconds += timeout
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """See the module. For code that waits for nothing outside of this process."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.seconds

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        self._clock.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_has_ended)
        return future

    def _thread_has_ended(self, _: Any) -> None:
        self._clock.threads -= 1


async def passes(seconds: float) -> None:
    """Let so much of virtual time pass."""
    assert isinstance(asyncio.get_running_loop(), VirtualTimeLoop)
    await asyncio.sleep(seconds)


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
    """A test whose `asyncio.get_running_loop().time()` is virtual."""

    async def leave_no_task(*args: Any, **kwargs: Any) -> T:
        result = await test(*args, **kwargs)
        await eventually(lambda: asyncio.all_tasks() == {asyncio.current_task()})
        # since 3.12 a loop gives its threads a time to end when it is closed, and a virtual one has passed at once
        await asyncio.get_running_loop().shutdown_default_executor()
        return result

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> T:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            return runner.run(leave_no_task(*args, **kwargs))

    return run
