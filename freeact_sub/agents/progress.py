"""Tells on the stream how far a model request is that takes long, so that nobody takes a slow model for a dead one."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from freeact_sub import models
from freeact_sub.channel import Emitter
from freeact_sub.events import ModelProgress

FIRST_SECONDS: Final = 2.0
"""A request that is quicker is not told of."""
STEP_SECONDS: Final = 1.0


class RequestProgress:
    """Of the model requests of one run, one after the other."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._latest: models.ModelProgress | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """The run goes on inside: pydantic-ai opens requests in the task of the run, wherever its hooks are called."""
        with models.watched(self._note):
            yield

    @contextmanager
    def told(self) -> Iterator[None]:
        """One request is made inside."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._latest = None
        timers: list[asyncio.TimerHandle] = []

        def tell() -> None:
            if self._emitter.channel.is_idle:  # a reader that is behind has more to read than this
                self._emitter.put(self._event(loop.time() - began))
            timers[:] = [loop.call_later(STEP_SECONDS, tell)]

        timers.append(loop.call_later(FIRST_SECONDS, tell))
        try:
            yield
        finally:
            timers[0].cancel()

    def _note(self, progress: models.ModelProgress) -> None:
        self._latest = progress

    def _event(self, seconds: float) -> ModelProgress:
        known = self._latest
        if known is None:
            return ModelProgress(seconds=seconds, tokens=0)
        return ModelProgress(seconds=seconds, tokens=known.pieces, tokens_per_second=known.pieces_per_second)
