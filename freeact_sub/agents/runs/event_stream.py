"""`EventStream`: the events of a run that is cancelled as soon as nobody holds the stream any more."""

from collections.abc import AsyncGenerator
from typing import Any

from freeact_sub.agents.runs.run import Run
from freeact_sub.events import Event


class EventStream(AsyncGenerator[Event, None]):
    """Yields the events of a run; behaves like an async generator.

    A generator that a loop leaves by `break` is closed by a task that runs later. This stream cancels its run at once, so
    that the next run knows that it only has to wait.
    """

    def __init__(self, run: Run) -> None:
        """Args: run: begins with the first event that is read."""
        self._run = run

    async def asend(self, value: None) -> Event:
        """Return the next event. Args: value: must be None."""
        del value
        try:
            return await self._run.__anext__()
        except StopAsyncIteration:
            raise
        except BaseException:
            await self._run.aclose()
            raise

    async def athrow(self, typ: Any, val: Any = None, tb: Any = None) -> Event:
        """Close the run and raise the exception."""
        await self._run.aclose()
        return await super().athrow(typ, val, tb)

    async def aclose(self) -> None:
        """Cancel the run and wait for its end. Can be called again."""
        await self._run.aclose()

    def __del__(self) -> None:
        self._run.leave()
