"""Finds the observers of a model request by context: the bill that pays for it, and the watcher of its progress.

A request is made deep below its agent, and one model object serves all agents of a tree. A request may be made more than
once, be refused, or wait for its turn and never be sent; only its sender knows. So the agent's `Bill` is found by context,
and each attempt is noted on it from the moment it is sent: no response tells the cost of a request that is cut off after
that. The watcher of its progress (seconds waited, pieces received) is found likewise: `watch` holds for all that is awaited
inside it, and for no other agent.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from pydantic_ai.exceptions import ModelConnectionError, ModelHTTPError, ModelRequestTimeout
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel

SECRET: Final = "[secret]"  # noqa: S105  # what stands in place of one


@dataclass(kw_only=True)
class Attempt:
    """One sending of a request."""

    model: Model
    messages: list[ModelMessage]
    parameters: ModelRequestParameters
    stream: StreamedResponse | None = None
    """The streamed response. None: it has not begun, or is not streamed."""
    response: ModelResponse | None = None
    """The whole response. None: it has not arrived."""

    @property
    def received(self) -> ModelResponse | None:
        """The response as far as it has arrived."""
        return self.response if self.stream is None else self.stream.get()

    def is_billed(self, error: BaseException) -> bool:
        """Whether the provider bills an attempt that failed with this error; a refused or undelivered request is free."""
        received = self.received
        if received is not None and received.parts:
            return True
        match error:
            case ModelHTTPError():
                return False
            case ModelConnectionError(phase=phase):
                return phase not in ("pool", "connect", "write")
            case ModelRequestTimeout():
                return True
        return not isinstance(error, Exception)  # a cancel comes while the provider works


@dataclass(kw_only=True)
class Bill:
    """Bill of one agent for its cut-off requests. The agent makes one request at a time."""

    book: Callable[[Attempt], None]
    """Called with an attempt that was cut off."""
    check_again: Callable[[], None] = field(default=lambda: None)
    """Raises if a cut-off request must not be repeated."""
    attempt: Attempt | None = None
    """The latest attempt. None: it was refused, or is booked."""

    def sent(self, attempt: Attempt) -> None:
        """Note a new attempt; book the one before, unless it was answered with `suspended` and continues here."""
        earlier, self.attempt = self.attempt, None
        if earlier is not None and (earlier.response is None or earlier.response.state != "suspended"):
            self.book(earlier)
            self.check_again()
        self.attempt = attempt

    def failed(self, error: BaseException) -> None:
        """Forget the latest attempt if the provider does not bill it."""
        if self.attempt is not None and not self.attempt.is_billed(error):
            self.attempt = None

    def close(self) -> None:
        """Book the latest attempt if no response was counted for it."""
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            self.book(attempt)


_bill: ContextVar[Bill | None] = ContextVar("freeact_sub_bill", default=None)


@contextmanager
def charge_to(bill: Bill) -> Iterator[None]:
    """Note the requests made inside on this bill."""
    token = _bill.set(bill)
    try:
        yield
    finally:
        _bill.reset(token)


def current_bill() -> Bill:
    """Return the bill of the agent that makes the request; outside an agent, an unused bill."""
    return _bill.get() or Bill(book=lambda _: None)


@dataclass(frozen=True, kw_only=True)
class RequestState:
    """The state of one request."""

    seconds: float
    """Seconds since the request was made."""
    first_event_seconds: float | None = None
    """Seconds from the request to the first piece of the answer. None: the model is still silent."""
    pieces: int = 0
    """Pieces of the answer so far. Local servers send one for each token."""
    attempt: int = 1
    """The number of the attempt; 2 after a broken connection."""
    paused_seconds: float | None = None
    """Seconds until the request is repeated. None: no pause."""
    paused_because: str = ""
    """The reason of the pause, for people: the provider is busy, the server failed, the reply broke off."""

    @property
    def pieces_per_second(self) -> float | None:
        """Pieces in a second. None: fewer than two have arrived."""
        if self.first_event_seconds is None or self.pieces < 2 or self.seconds <= self.first_event_seconds:
            return None
        return (self.pieces - 1) / (self.seconds - self.first_event_seconds)


Watcher: TypeAlias = Callable[["Meter"], None]

_watcher: ContextVar[Watcher | None] = ContextVar("freeact_sub_model_progress", default=None)


@contextmanager
def watch(watcher: Watcher) -> Iterator[None]:
    """Call the watcher when the state of a request made inside changes, with each piece; outer watchers are called first.

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
    """Meter of one request."""

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name
        self._watcher = _watcher.get()
        self._began = self._changed = time.monotonic()
        self._first: float | None = None
        self._pieces = 0
        self._attempt = 1
        self._paused: float | None = None
        self._because = ""
        self._report()

    def piece(self) -> None:
        """Count a piece of the answer."""
        self._pieces += 1
        if self._first is None:
            self._first = time.monotonic() - self._began
        self._report()

    def again(self) -> None:
        """Start a new attempt."""
        self._attempt += 1
        self._first, self._pieces = None, 0
        self._report()

    def paused(self, seconds: float | None, because: str = "") -> None:
        """Note how long the request waits until it is made again. None: the wait is over."""
        if seconds is not None or self._paused is not None:
            self._paused, self._because = seconds, because
            self._report()

    @property
    def is_paused(self) -> bool:
        """Whether the request waits until it is made again."""
        return self._paused is not None

    @property
    def state(self) -> RequestState:
        """The state at the last change."""
        return RequestState(
            seconds=self._changed - self._began,
            first_event_seconds=self._first,
            pieces=self._pieces,
            attempt=self._attempt,
            paused_seconds=self._paused,
            paused_because=self._because,
        )

    def _report(self) -> None:
        self._changed = time.monotonic()
        if self._watcher is not None:
            self._watcher(self)


def bills_cache_writes(model: Model, settings: Mapping[str, Any]) -> bool:
    """Whether requests to the model write its provider's cache, which costs more than plain input."""
    wanted = {**(model.settings or {}), **settings}.get("cache", True)
    return bool(wanted) and any(one.profile.get("supports_cache") for one in models_in(model))


def models_in(model: Model) -> tuple[Model, ...]:
    """Return the model itself without wrappers, or its fallback chain in order."""
    if isinstance(model, FallbackModel):
        return tuple(inner for one in model.models for inner in models_in(one))
    return models_in(model.wrapped) if isinstance(model, WrapperModel) else (model,)


def addresses(model: Model) -> list[str]:
    """Return where requests go: the name and the server of the model, and of its fallbacks."""
    return [_address_of(each) for each in models_in(model)]


def _address_of(model: Model) -> str:
    """Return the name and the server of one model, without a password."""
    try:
        parts = urlsplit(str(model.base_url or ""))
    except ValueError:
        return f"{model.model_id} at {SECRET}"
    server = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
    return f"{model.model_id} at {server}" if parts.netloc else model.model_id
