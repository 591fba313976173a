"""`parallel` and `pipeline`: concurrent work, with each failure in its place."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias, TypeVar

from freeact_sub.errors import StrategyError

T = TypeVar("T")

Stage: TypeAlias = Callable[[Any], Awaitable[Any]]
"""Takes the return value of the previous stage."""


async def parallel(thunks: Iterable[Callable[[], Awaitable[T]]]) -> list[T | Exception]:
    """Call all functions concurrently, and wait for all of them.

    `subagents.max_concurrent` and `traffic.max_concurrent` bound how many children and requests work at a time; more wait.

    Args:
        thunks: Async functions without arguments, each called once.

    Returns:
        One item for each, in order: its return value or its exception; a StrategyError if it was cancelled by itself.
    """
    thunks = [*thunks]  # else what iterating raises would come from within the group

    async def one(thunk: Callable[[], Awaitable[T]]) -> T | Exception:
        try:
            return await thunk()
        except Exception as error:  # noqa: BLE001  # border: one failure must not affect the others
            return error

    # not gather: when cancelled, it does not wait for its tasks to end
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(thunk)) for thunk in thunks]
    return [StrategyError("it was cancelled") if task.cancelled() else task.result() for task in tasks]


async def pipeline(items: Iterable[Any], *stages: Stage) -> list[Any]:
    """Take every item through all stages, without items waiting for each other.

    Args:
        items: The arguments of the first stage.
        stages: Async functions of one argument, in order.

    Returns:
        One item for each, in order: the last stage's return value, or the exception of the stage that failed, which ends the
        item's way.
    """

    async def through(item: Any) -> Any:
        for stage in stages:
            item = await stage(item)
        return item

    return await parallel([lambda item=item: through(item) for item in items])  # type: ignore[misc]  # binds each item
