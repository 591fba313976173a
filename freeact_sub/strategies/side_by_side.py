"""`parallel` and `pipeline`: many pieces of work side by side, each failure in its place."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Stage: TypeAlias = Callable[[Any], Awaitable[Any]]
"""Takes what the stage before it has returned."""


async def parallel(thunks: Iterable[Callable[[], Awaitable[T]]]) -> list[T | Exception]:
    """Do everything side by side, and wait for all of it.

    How many children and requests are at work at a time is bounded by `subagents.max_concurrent` and
    `traffic.max_concurrent`; more wait.

    Args:
        thunks: Functions without arguments, each called once.

    Returns:
        One for each, in their order: what it returned, or the exception that it raised.
    """

    async def one(thunk: Callable[[], Awaitable[T]]) -> T | Exception:
        try:
            return await thunk()
        except Exception as error:  # noqa: BLE001  # border: one that fails takes nothing from the others
            return error

    # not gather: cancelled, it does not wait until those that it cancels have ended
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(thunk)) for thunk in thunks]
    return [task.result() for task in tasks]


async def pipeline(items: Iterable[Any], *stages: Stage) -> list[Any]:
    """Take every item through all stages; none waits for another one: the first may be done while the last begins.

    Args:
        items: What the first stage takes, one by one.
        stages: Asynchronous functions of one argument, in order.

    Returns:
        One for each item, in their order: what the last stage returned, or the exception of the stage that failed, after
        which no further stage has seen the item.
    """

    async def through(item: Any) -> Any:
        for stage in stages:
            item = await stage(item)
        return item

    return await parallel([lambda item=item: through(item) for item in items])  # type: ignore[misc]  # binds each item
