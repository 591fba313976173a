"""Times at which a request is sent, and sent again: places, pauses, patience, silence.

- `Traffic` bounds the requests in flight of one root, its children and their asks, and pauses them for busy providers.
- A conversation that does not fit into the model's context is a `ContextOverflowError`, in any server's words (`failures`),
  at once or in its stream. The maker of the request may shorten the conversation (`features/compaction.py`).

A provider that is asked too often refuses everybody, so one refusal pauses all requests to that provider and address, as
long as `Retry-After` says, else longer each time. A request that waits holds no place. Each is made again until its own
patience (`rate_limit_seconds`) has run out; one for which another model can stand in has none.

The retries of the providers' clients are turned off (`max_retries`), because each client knows of its own requests alone.
So their other retries are made here: replies that break off, 408, 409 and 5xx, for `FAILING_SECONDS`, longer each time, and
without a pause for others. Where nobody answers at all, or another model can stand in: `RETRIES` times.

A waiting caller hears each second for how long (`Meter`), and a person may end the wait (`Traffic.try_now`). A pause also
ends when its last waiter is cancelled: the next prompt finds out by itself. A slow first token is a matter of
`first_event_timeout_seconds`, from when the request is sent on. Each sending of a request is noted on the bill of the agent
that pays for it (`observers`).

The clock is the event loop's.

`Prefixes`: of agents whose first requests begin alike, one is sent first, so that the others read it from the cache. A
provider that bills the writing of its cache lets others read an entry once it has begun to answer the request that wrote
it. Twenty children that ask at once would write the same tools and system prompt twenty times.
"""

import asyncio
import copy
import math
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import anyio
from pydantic_ai.concurrency import ConcurrencyLimiter
from pydantic_ai.exceptions import ModelAPIError, ModelConnectionError, ModelRequestTimeout
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from freeact_sub.errors import ContextOverflowError
from freeact_sub.models.failures import busy, context_of, is_overflow, passes, reason_of
from freeact_sub.models.observers import Meter, models_in
from freeact_sub.system.process import chance
from freeact_sub.text import error_words

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
"""Longest pause if the provider does not name one."""
SPREAD_SECONDS: Final = 1.0
"""Seconds over which requests begin again after a pause, so that not all begin at once."""
RETRIES: Final = 2
"""Repetitions of a request after a transient failure, at least."""
RETRY_SECONDS: Final = 0.5
LONGEST_RETRY_SECONDS: Final = 20.0
FAILING_SECONDS: Final = 90.0
"""Seconds for which a request is made again after transient failures."""
TELL_SECONDS: Final = 1.0
BUSY: Final = "the provider is busy"
CACHE_WAIT_SECONDS: Final = 30.0
"""Longest wait for another agent's first answer."""
CACHE_KEPT_SECONDS: Final = 240.0
"""Assumed life of an entry in the cache; providers keep it for 5 minutes."""

_Event = TypeVar("_Event")


def sent_settings(settings: ModelSettings | None, model: Model) -> ModelSettings | None:
    """Return the settings without retries of the client, as requests are repeated here, and with the cache for prompts.

    Each turn repeats the whole conversation. Anthropic and Bedrock read it from a cache only if the request asks for that;
    pydantic-ai does so by the setting `cache`.
    """
    ours = ModelSettings()
    if "max_retries" not in model.unsupported_settings:
        ours["max_retries"] = 0
    if "cache" not in (model.settings or {}) and any(each.profile.get("supports_cache") for each in models_in(model)):
        ours["cache"] = True
    return {**ours, **(settings or {})} if ours else settings


class Silence:
    """Limits of the silence of one request. Made when the request is sent."""

    def __init__(self, model_name: str, *, first_event_seconds: float | None, stall_seconds: float) -> None:
        """Args: first_event_seconds: until the first piece must have come; None: any time."""
        self._model_name = model_name
        self._first_event_seconds = math.inf if first_event_seconds is None else first_event_seconds
        self._stall_seconds = stall_seconds
        self._first_deadline = anyio.current_time() + self._first_event_seconds
        self._since: float | None = None
        """The time at which the wait for the next piece began. None: no wait."""
        self._task: asyncio.Task[Any] | None = None
        self._cancelled_before = 0
        """Cancels by others, when the task began to wait."""
        self._is_stalled = False

    @contextmanager
    def before_answer(self) -> Iterator[None]:
        """Limit the awaited call to the time left for the first piece.

        Raises:
            ModelRequestTimeout: The time is up.
        """
        with anyio.CancelScope(deadline=self._first_deadline) as scope:
            yield
        if scope.cancelled_caught:
            raise ModelRequestTimeout(self._model_name, self._first_event_seconds, setting="first_event_timeout")

    async def watched(self, events: AsyncIterable[_Event]) -> AsyncGenerator[_Event, None]:
        """Pass on the pieces of an answer.

        One timer watches all pieces but the first: a scope for each would take as long as the piece.

        Raises:
            ModelRequestTimeout: The first one took too long.
            ModelConnectionError: A later one did.
        """
        pieces = aiter(events)
        with self.before_answer():
            event = await anext(pieces, None)
        if event is None:
            return
        self._timer = asyncio.get_running_loop().call_later(self._stall_seconds, self._look)
        try:
            yield event
            self._waits()
            async for event in pieces:
                self._since = None
                yield event
                self._waits()
        except asyncio.CancelledError as error:
            if not self._ends_stall():
                raise
            silent = f"nothing came for {self._stall_seconds:g} seconds in the middle of an answer"
            raise ModelConnectionError(self._model_name, f"{silent} (setting `stall_seconds`)", phase="read") from error
        finally:
            self._timer.cancel()
            self._ends_stall()

    def _waits(self) -> None:
        self._since, self._task = asyncio.get_running_loop().time(), asyncio.current_task()
        self._cancelled_before = self._task.cancelling() if self._task is not None else 0

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        left = self._stall_seconds if self._since is None else self._since + self._stall_seconds - loop.time()
        if left > 0 or self._task is None:
            self._timer = loop.call_later(left, self._look)
        else:
            self._is_stalled = True
            self._task.cancel()

    def _ends_stall(self) -> bool:
        """Take back our cancel, if there was one. Return whether it was the only one."""
        is_stalled, self._is_stalled = self._is_stalled, False
        return is_stalled and self._task is not None and self._task.uncancel() <= self._cancelled_before


class Traffic:
    """The lanes of one root."""

    def __init__(self, *, max_concurrent: int, patience_seconds: float) -> None:
        """Args: max_concurrent: requests in flight. patience_seconds: for how long in all one request may wait."""
        self._patience = patience_seconds
        self.limiter = ConcurrencyLimiter(max_concurrent, name="models.max_concurrent")
        self._lanes: dict[tuple[str | None, ...], Lane] = {}

    def lane(self, model: Model, *, stands_in: bool = False) -> "Lane":
        """Return the lane of a model's provider and address.

        A fallback model has a lane of its own: it is used because the other lane is refused.
        """
        key = (model.system, model.base_url, model.model_name if stands_in else None)
        return self._lanes.setdefault(key, Lane(self.limiter, self._patience))

    def try_now(self) -> bool:
        """End all pauses, so that waiting requests are made now. Return whether there were any."""
        waited = [lane.waiting > 0 for lane in self._lanes.values()]
        for lane in self._lanes.values():
            lane.open()
        return any(waited)


class Lane:
    """The requests to one provider."""

    def __init__(self, limiter: ConcurrencyLimiter, longest_pause: float) -> None:
        self.limiter = limiter
        self._longest_pause = longest_pause
        self.open_at = 0.0
        """The end of the pause, on the clock of the event loop."""
        self.refusal: ModelAPIError | None = None
        """The reason of the pause."""
        self.waiting = 0
        """Requests that wait for the end of a pause."""
        self.opened = asyncio.Event()
        """Set when a person ends the present pauses."""
        self._paused_at = -math.inf
        self.refusals = 0
        """Refusals in a row, of requests that were sent after the last pause."""

    def refused(self, error: ModelAPIError, *, sent_at: float, patience: float) -> None:
        """Pause the lane after a refusal. Args: patience: seconds that the refused request can still wait.

        Raises:
            ModelAPIError: The error itself, if the pause is too long.
        """
        now = anyio.current_time()
        if error.retry_after is not None:
            pause = error.retry_after
        elif sent_at <= self._paused_at:  # others, sent at the same time, were refused already
            pause = max(0.0, self.open_at - now)
        else:
            longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(self.refusals, 10))
            pause = chance.uniform(longest / 2, longest)
            pause = min(pause, patience or pause)
            self.refusals += 1
        if pause <= self._longest_pause:  # else who asks next may find it otherwise
            self._paused_at, self.refusal = now, error
            self.open_at = max(self.open_at, now + pause)
        if pause > patience:
            raise error

    def open(self) -> None:
        """End the pause."""
        self.open_at, self.refusals = 0.0, 0
        opened, self.opened = self.opened, asyncio.Event()
        opened.set()

    @asynccontextmanager
    async def awaited(self) -> AsyncIterator[None]:
        """Count a waiting request inside. If it is cancelled and was the last, the pause ends."""
        self.waiting += 1
        try:
            yield
        except anyio.get_cancelled_exc_class():
            if self.waiting == 1:
                self.open()
            raise
        finally:
            self.waiting -= 1

    def answered(self, *, sent_at: float) -> None:
        """Reset the growing pause."""
        if sent_at > self._paused_at:
            self.refusals = 0


class Admission:
    """Admission of one request to its lane, each time it is made."""

    def __init__(self, lane: Lane, meter: Meter, patience_seconds: float) -> None:
        self._lane = lane
        self._meter = meter
        self._patience = patience_seconds
        """The remaining seconds."""
        self._failures = 0
        self._failing_since: float | None = None
        """The time of the first request that failed while the server was not busy."""
        self._open_at = 0.0
        """The end of this request's own pause."""
        self._why = ""
        """The reason of the request's own pause, for people."""
        self._sent_at = 0.0
        self._waiting_since: float | None = None
        """The time up to which the patience is used. All time from a refusal on counts, slept or not, or it never ends."""

    @asynccontextmanager
    async def granted(self) -> AsyncIterator[None]:
        """Wait until the request may be sent; the request counts as in flight inside.

        Raises:
            ModelAPIError: The provider pauses for longer than this request can wait.
        """
        limiter = self._lane.limiter
        await self._pause()
        await limiter.acquire(f"model:{self._meter.model_name}")
        while self._lane.open_at > anyio.current_time():  # another pause has started meanwhile
            limiter.release()
            await self._pause()
            await limiter.acquire(f"model:{self._meter.model_name}")
        try:
            self._sent_at = anyio.current_time()
            yield
        finally:
            limiter.release()

    def answered(self) -> None:
        """Note that the provider has started to answer."""
        if self._lane.refusals:
            self._lane.answered(sent_at=self._sent_at)

    def failed(self, error: Exception) -> None:
        """Return if the failed request should be repeated; `granted` then waits as long as needed.

        Raises:
            Exception: The error itself; the request is not to be made again.
        """
        refusal = busy(error)
        if refusal is not None:
            self._lane.refused(refusal, sent_at=self._sent_at, patience=self._patience)
            self._waiting_since = anyio.current_time()
        elif passes(error):
            self._failed_for_now(error)
        else:
            raise error

    def _failed_for_now(self, error: Exception) -> None:
        now = anyio.current_time()
        self._failing_since = self._sent_at if self._failing_since is None else self._failing_since
        pause = chance.uniform(0.5, 1) * min(LONGEST_RETRY_SECONDS, RETRY_SECONDS * 2**self._failures)
        pause = max(pause, getattr(error, "retry_after", None) or 0.0)
        left = min(FAILING_SECONDS, self._patience) - (now - self._failing_since)
        self._failures += 1
        is_unreachable = isinstance(error, ModelConnectionError) and error.phase == "connect"
        if self._failures > RETRIES and (is_unreachable or pause > left):
            raise error
        self._open_at, self._why = now + pause, reason_of(error)

    async def _pause(self) -> None:
        self._use_up_patience()
        if max(self._lane.open_at, self._open_at) > anyio.current_time():
            async with self._lane.awaited():
                await self._wait()
        self._waiting_since = None
        self._meter.paused(None)

    async def _wait(self) -> None:
        lane, spread = self._lane, 0.0
        while (rest := max(lane.open_at + spread, self._open_at) - anyio.current_time()) > 0:
            is_busy = lane.open_at + spread > self._open_at
            if is_busy and rest - spread > self._patience and lane.refusal is not None:
                raise copy.copy(lane.refusal) from lane.refusal
            spread = spread or (chance.uniform(0, min(SPREAD_SECONDS, rest / 4)) if is_busy else 0.0)
            self._meter.paused(rest, BUSY if is_busy else self._why)
            with anyio.move_on_after(min(rest, TELL_SECONDS)):
                await lane.opened.wait()
                self._open_at = spread = 0.0
            self._use_up_patience()

    def _use_up_patience(self) -> None:
        """Count the time since the refusal, or since the last call."""
        now = anyio.current_time()
        if self._waiting_since is not None:
            self._patience = max(0.0, self._patience - (now - self._waiting_since))
        self._waiting_since = now


@dataclass(eq=False)
class _Prefix:
    """A prefix in a provider's cache, or on its way there."""

    known: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the provider has begun to answer a request with the prefix, or that request has failed."""
    since: float = field(default_factory=time.monotonic)

    @property
    def is_old(self) -> bool:
        """Whether the provider may have dropped the prefix."""
        return self.known.is_set() and time.monotonic() - self.since > CACHE_KEPT_SECONDS


@dataclass(kw_only=True)
class FirstRequest:
    """The first request of one agent. Later ones wait for nobody."""

    entry: _Prefix | None
    """The prefix to wait for, if there is one."""
    leads: bool = False
    """Whether the request of this agent is sent first."""

    async def wait(self) -> None:
        """Wait until the prefix is in the cache, for a bounded time."""
        if self.entry is None or self.leads:
            return
        entry, self.entry = self.entry, None
        with suppress(TimeoutError):
            async with asyncio.timeout(CACHE_WAIT_SECONDS):
                await entry.known.wait()

    def is_known(self) -> None:
        """Let the others go on: the provider has begun to answer, or the request has failed."""
        if self.entry is not None and self.leads:
            self.entry.since = time.monotonic()
            self.entry.known.set()
            self.entry = None


@dataclass(kw_only=True)
class Prefixes:
    """The prefixes with which the agents of one root have begun."""

    _begun: dict[Hashable, _Prefix] = field(default_factory=dict)

    def of(self, prefix: Hashable) -> FirstRequest:
        """Return the place of an agent's first request."""
        entry = self._begun.get(prefix)
        if entry is not None and not entry.is_old:
            return FirstRequest(entry=entry)
        entry = self._begun[prefix] = _Prefix()
        return FirstRequest(entry=entry, leads=True)


def raise_overflow(error: Exception) -> None:
    """Raise `ContextOverflowError` if the server refuses the request because it is too long."""
    if isinstance(error, ModelAPIError) and is_overflow(error):
        raise ContextOverflowError(context_tokens=context_of(error), said=error_words(error.body)) from error
