"""Bounds on a model's silence: before the first piece of an answer, and between two pieces."""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio
from pydantic_ai.exceptions import ModelConnectionError, ModelRequestTimeout

_Event = TypeVar("_Event")


class Silence:
    """Limits the silence of one request. Made when the request is sent."""

    def __init__(self, model_name: str, *, first_event_seconds: float | None, stall_seconds: float) -> None:
        """Args: first_event_seconds: until the first piece must have come; None: any time."""
        self._model_name = model_name
        self._first_event_seconds = math.inf if first_event_seconds is None else first_event_seconds
        self._stall_seconds = stall_seconds
        self._first_deadline = anyio.current_time() + self._first_event_seconds

    @contextmanager
    def before_answer(self) -> Iterator[None]:
        """Limits what is awaited inside to the time left for the first piece.

        Raises:
            ModelRequestTimeout: The time is up.
        """
        with anyio.CancelScope(deadline=self._first_deadline) as scope:
            yield
        if scope.cancelled_caught:
            raise ModelRequestTimeout(self._model_name, self._first_event_seconds, setting="first_event_timeout")

    async def watched(self, events: AsyncIterable[_Event]) -> AsyncGenerator[_Event, None]:
        """Passes on the pieces of an answer.

        Raises:
            ModelRequestTimeout: The first one took too long.
            ModelConnectionError: A later one did.
        """
        pieces = aiter(events)
        with self.before_answer():
            event = await anext(pieces, None)
        if event is None:
            return
        with _Stall(self._model_name, self._stall_seconds) as stall:
            yield event
            stall.waits()
            async for event in pieces:
                stall.waits_no_more()
                yield event
                stall.waits()


class _Stall:
    """One timer for all pieces but the first: a scope for each would take as long as the piece."""

    def __init__(self, model_name: str, seconds: float) -> None:
        self._model_name, self._seconds = model_name, seconds
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        """When somebody began to wait for the next piece. None: nobody does."""
        self._task: asyncio.Task[Any] | None = None
        """It waits."""
        self._cancelled_before = 0
        """By others, when the task began to wait."""
        self._is_stalled = False

    def waits(self) -> None:
        self._since, self._task = self._loop.time(), asyncio.current_task()
        self._cancelled_before = self._task.cancelling() if self._task is not None else 0

    def waits_no_more(self) -> None:
        self._since = None

    def _look(self) -> None:
        left = self._seconds if self._since is None else self._since + self._seconds - self._loop.time()
        if left > 0 or self._task is None:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self._is_stalled = True
            self._task.cancel()

    def __enter__(self) -> Self:
        self._timer = self._loop.call_later(self._seconds, self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Raises: ModelConnectionError: It was too silent."""
        self._timer.cancel()
        if self._task is None or not self._is_stalled:
            return
        if self._task.uncancel() <= self._cancelled_before and isinstance(error, asyncio.CancelledError):
            silent = f"nothing came for {self._seconds:g} seconds in the middle of an answer"
            raise ModelConnectionError(self._model_name, f"{silent} (setting `stall_seconds`)", phase="read") from error
