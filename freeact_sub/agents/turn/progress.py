"""`RequestProgress`: shows the progress of a long model request, so that a slow model does not look dead."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from freeact_sub import models
from freeact_sub.channel import Emitter
from freeact_sub.events import ModelProgress

FIRST_SECONDS: Final = 2.0
"""Quicker requests show nothing."""
STEP_SECONDS: Final = 1.0


@dataclass(kw_only=True)
class RequestProgress:
    """Emits ModelProgress for the requests of one run, which are made one after another."""

    emitter: Emitter
    only_pauses: bool = False
    """Show only waits for a busy provider."""
    _meter: models.Meter | None = field(default=None, init=False)
    """Of the latest request whose state has changed."""
    _paused: bool = field(default=False, init=False)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the run inside the block: pydantic-ai opens requests in the run's task, wherever it calls the hooks."""
        with models.watch(self._note):
            yield

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the progress of the request that is made inside the block, if it takes long."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._meter, self._paused = None, False
        timers: list[asyncio.TimerHandle] = []

        def emit() -> None:
            if self.emitter.channel.is_idle:  # a slow reader has more important events to read
                self.emitter.put(self._event(loop.time() - began))
            timers[:] = [loop.call_later(STEP_SECONDS, emit)]

        timers.append(loop.call_later(FIRST_SECONDS, emit))
        try:
            yield
        finally:
            timers[0].cancel()

    def _note(self, meter: models.Meter) -> None:
        self._meter, before, self._paused = meter, self._paused, meter.is_paused
        if self._paused != before or (self._paused and self.only_pauses):
            self.emitter.put(self._event(meter.state.seconds))

    def _event(self, seconds: float) -> ModelProgress:
        if self._meter is None:
            return ModelProgress(seconds=seconds, tokens=0)
        known = self._meter.state
        return ModelProgress(
            seconds=seconds,
            tokens=known.pieces,
            tokens_per_second=known.pieces_per_second,
            paused_seconds=known.paused_seconds,
        )
