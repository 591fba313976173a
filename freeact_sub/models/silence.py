"""Bounds on a model's silence: before the first piece of an answer, and between two pieces."""

import math
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import TypeVar

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

    @contextmanager
    def _in_answer(self) -> Iterator[None]:
        with anyio.move_on_after(self._stall_seconds) as scope:
            yield
        if scope.cancelled_caught:
            silent = f"nothing came for {self._stall_seconds:g} seconds in the middle of an answer"
            raise ModelConnectionError(self._model_name, f"{silent} (setting `stall_seconds`)", phase="read")

    async def watched(self, events: AsyncGenerator[_Event, None]) -> AsyncGenerator[_Event, None]:
        """Passes on the pieces of an answer.

        Raises:
            ModelRequestTimeout: The first one took too long.
            ModelConnectionError: A later one did.
        """
        begun = False
        async with aclosing(events):
            while True:
                with self._in_answer() if begun else self.before_answer():
                    try:
                        event = await anext(events)
                    except StopAsyncIteration:
                        return
                begun = True
                yield event
