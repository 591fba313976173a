"""How far a model request is, for who wants to show it: seconds waited, pieces that have come.

A request is made deep below the agent that it is made for, and one model object serves all agents of a tree. So the watcher
is found by context: `watched` holds for all that is awaited inside it, and for no other agent.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, kw_only=True)
class ModelProgress:
    """The state of one request."""

    seconds: float
    """Since the request was made."""
    first_event_seconds: float | None = None
    """From the request to the first piece of the answer. None: the model is still silent."""
    pieces: int = 0
    """Pieces of the answer so far. Local servers send one for each token."""
    attempt: int = 1
    """2: the connection broke, and the request was made again."""

    @property
    def pieces_per_second(self) -> float | None:
        """None where there is nothing to measure yet."""
        if self.first_event_seconds is None or self.pieces < 2 or self.seconds <= self.first_event_seconds:
            return None
        return (self.pieces - 1) / (self.seconds - self.first_event_seconds)


Watcher: TypeAlias = Callable[[ModelProgress], None]

_watcher: ContextVar[Watcher | None] = ContextVar("freeact_sub_model_progress", default=None)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Requests made inside tell the watcher when they begin, and with each piece. It must be quick, and not raise.

    Who watches from further outside is told as well.
    """
    outer = _watcher.get()

    def tell(progress: ModelProgress) -> None:
        if outer is not None:
            outer(progress)
        watcher(progress)

    token = _watcher.set(tell)
    try:
        yield
    finally:
        _watcher.reset(token)


class Meter:
    """Measures one request."""

    def __init__(self) -> None:
        self._watcher = _watcher.get()
        self._began = time.monotonic()
        self._first: float | None = None
        self._pieces = 0
        self._attempt = 1
        self._tell()

    def piece(self) -> None:
        """A piece of the answer has come."""
        self._pieces += 1
        if self._first is None:
            self._first = time.monotonic() - self._began
        self._tell()

    def again(self) -> None:
        """The request is made once more."""
        self._attempt += 1
        self._first, self._pieces = None, 0
        self._tell()

    def _tell(self) -> None:
        if self._watcher is not None:
            seconds = time.monotonic() - self._began
            self._watcher(
                ModelProgress(seconds=seconds, first_event_seconds=self._first, pieces=self._pieces, attempt=self._attempt)
            )
