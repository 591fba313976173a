"""The progress of model requests, for front ends: seconds waited, pieces received.

A request is made deep below the agent that it is made for, and one model object serves all agents of a tree. So the watcher
is found by context: `watch` holds for all that is awaited inside it, and for no other agent.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, kw_only=True)
class RequestState:
    """The state of one request."""

    seconds: float
    """Since the request was made."""
    first_event_seconds: float | None = None
    """From the request to the first piece of the answer. None: the model is still silent."""
    pieces: int = 0
    """Pieces of the answer so far. Local servers send one for each token."""
    attempt: int = 1
    """2: the connection broke, and the request was made again."""
    paused_seconds: float | None = None
    """Seconds until the request is made again, because the provider is busy. None: it is not paused."""

    @property
    def pieces_per_second(self) -> float | None:
        """None: fewer than two pieces have arrived."""
        if self.first_event_seconds is None or self.pieces < 2 or self.seconds <= self.first_event_seconds:
            return None
        return (self.pieces - 1) / (self.seconds - self.first_event_seconds)


Watcher: TypeAlias = Callable[["Meter"], None]

_watcher: ContextVar[Watcher | None] = ContextVar("freeact_sub_model_progress", default=None)


@contextmanager
def watch(watcher: Watcher) -> Iterator[None]:
    """Calls the watcher when the state of a request made inside changes, with each piece; outer watchers are called first.

    A watcher must be quick and must not raise.
    """
    outer = _watcher.get()

    def report(meter: "Meter") -> None:
        if outer is not None:
            outer(meter)
        watcher(meter)

    token = _watcher.set(report)
    try:
        yield
    finally:
        _watcher.reset(token)


class Meter:
    """Measures one request."""

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name
        self._watcher = _watcher.get()
        self._began = self._changed = time.monotonic()
        self._first: float | None = None
        self._pieces = 0
        self._attempt = 1
        self._paused: float | None = None
        self._report()

    def piece(self) -> None:
        """Counts a piece of the answer."""
        self._pieces += 1
        if self._first is None:
            self._first = time.monotonic() - self._began
        self._report()

    def again(self) -> None:
        """Starts a new attempt."""
        self._attempt += 1
        self._first, self._pieces = None, 0
        self._report()

    def paused(self, seconds: float | None) -> None:
        """Notes how long the request waits for a busy provider. None: it waits no more."""
        if seconds is not None or self._paused is not None:
            self._paused = seconds
            self._report()

    @property
    def is_paused(self) -> bool:
        """Whether the request waits for a busy provider."""
        return self._paused is not None

    @property
    def state(self) -> RequestState:
        """As it was when it last changed."""
        return RequestState(
            seconds=self._changed - self._began,
            first_event_seconds=self._first,
            pieces=self._pieces,
            attempt=self._attempt,
            paused_seconds=self._paused,
        )

    def _report(self) -> None:
        self._changed = time.monotonic()
        if self._watcher is not None:
            self._watcher(self)
