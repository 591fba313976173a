"""`InnerTasks`: tracks the asyncio tasks that pydantic-ai creates for a run, so that a cancelled run leaves none behind.

pydantic-ai 2.68 loses its inner tasks (of the run, and of a streamed request) if the run is cancelled at the very moment of
their hand-over; they would wait for ever.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models import ModelRequestContext

END_SECONDS: Final = 0.5
"""Seconds that a cancelled run waits for leftover tasks."""


@dataclass(kw_only=True)
class InnerTasks(AbstractCapability[Any]):
    """Notes the tasks that call the hooks of one run, and ends leftover ones."""

    _tasks: set[asyncio.Task[Any]] = field(default_factory=set, init=False)

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> Any:
        """See pydantic-ai."""
        del ctx
        return await self._noted(handler())

    async def wrap_model_request(self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Any) -> Any:
        """See pydantic-ai."""
        del ctx
        return await self._noted(handler(request_context))

    async def _noted(self, work: Awaitable[Any]) -> Any:
        """Await the work of a hook; meanwhile its task is known and can be ended."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("there is no asyncio task")
        self._tasks.add(task)
        try:
            return await work
        finally:
            self._tasks.discard(task)

    async def end(self) -> None:
        """Ends the tasks that a cancelled run has left."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=END_SECONDS)
