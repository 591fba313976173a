"""`SteadyModel` repeats requests that unreliable servers fail, and gives up with a clear error.

- The provider is busy, or has not begun to answer: `traffic` says when the request is made again.
- A reply breaks off: the connection breaks in its middle, it has no end (`mending`), or nothing comes for
  `stall_seconds`. Nothing of a reply is acted on before its end, so the request is made again. What was shown of a broken
  reply stays shown; only the last one counts.
- The conversation does not fit into the model's context: that is a `ContextOverflowError`, whichever words the server has
  (`refusals`), and whether it says so at once or in its stream.
  Who makes the request may shorten the conversation (`features/compaction.py`).

A slow first token is a matter of `first_event_timeout_seconds`, from when the request is sent on; its watcher is told of it.
Each time a request is sent is noted on the bill of the agent that pays for it (`observers`).
"""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio
from pydantic_ai import RunContext
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelRequestTimeout,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings

from freeact_sub.errors import ContextOverflowError
from freeact_sub.models.borrowed_stream import ADDED, UnhurriedModel, WrappedStream, closed_after, without_tags
from freeact_sub.models.failures import words_of
from freeact_sub.models.mending import mend_streams
from freeact_sub.models.observers import Attempt, Bill, Meter, current_bill, models_in
from freeact_sub.models.odd_streams import USUAL, EmptyStream, PartsInOrder, TaggedThoughts, has_nothing, in_order
from freeact_sub.models.refusals import context_of, is_overflow
from freeact_sub.models.traffic import Admission, Lane

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
        """Limits the awaited call to the time left for the first piece.

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
        """The time at which the wait for the next piece began. None: no wait."""
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
        """Raises ModelConnectionError if the stream was silent for too long."""
        self._timer.cancel()
        if self._task is None or not self._is_stalled:
            return
        if self._task.uncancel() <= self._cancelled_before and isinstance(error, asyncio.CancelledError):
            silent = f"nothing came for {self._seconds:g} seconds in the middle of an answer"
            raise ModelConnectionError(self._model_name, f"{silent} (setting `stall_seconds`)", phase="read") from error


class SteadyModel(UnhurriedModel):
    """A model whose requests outlive a busy provider, a failed server and a reply that breaks off."""

    def __init__(self, wrapped: Model, *, lane: Lane, patience_seconds: float, stall_seconds: float) -> None:
        """Args: lane: of its provider. patience_seconds: for how long a request may pause. stall_seconds: see `Config`."""
        super().__init__(wrapped)
        self._lane = lane
        self._patience_seconds = patience_seconds
        self._stall_seconds = stall_seconds

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """See pydantic-ai."""
        bill, admission = current_bill(), self._admission(Meter(self.model_name))
        settings = self._sent(model_settings)
        while True:
            attempt = Attempt(model=self.wrapped, messages=messages, parameters=model_request_parameters)
            async with admission.granted():
                bill.sent(attempt)
                try:
                    response = await self.wrapped.request(messages, settings, model_request_parameters)
                    attempt.response = in_order(response)
                except Exception as error:  # noqa: BLE001  # border: of clients; what is not mended is raised
                    bill.failed(error)
                    _raise_overflow(error)
                    admission.failed(error)
                    continue
                admission.answered()
                return attempt.response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncIterator[StreamedResponse]:
        """See pydantic-ai."""
        meter = Meter(self.model_name)
        bill, admission = current_bill(), self._admission(meter)
        settings = self._sent(model_settings)
        mend_streams(self.wrapped)
        async with AsyncExitStack() as stack:

            async def send() -> Answering:
                await stack.enter_async_context(admission.granted())
                attempt = Attempt(model=self.wrapped, messages=messages, parameters=model_request_parameters)
                silence = Silence(
                    self.model_name,
                    first_event_seconds=(model_settings or {}).get("first_event_timeout"),
                    stall_seconds=self._stall_seconds,
                )
                bill.sent(attempt)
                stream = self.wrapped.request_stream(messages, settings, model_request_parameters, run_context)
                with silence.before_answer():
                    try:
                        attempt.stream = await stack.enter_async_context(stream)
                    except UnexpectedModelBehavior as error:
                        if not has_nothing(error):
                            raise
                        attempt.stream = EmptyStream(
                            model_request_parameters=model_request_parameters, model=self.wrapped, began=datetime.now(UTC)
                        )
                return Answering(attempt=attempt, stream=attempt.stream, silence=silence)

            async def ask() -> Answering:
                while True:
                    try:
                        return await send()
                    except Exception as error:  # noqa: BLE001  # border: as above
                        bill.failed(error)
                        await stack.aclose()
                        _raise_overflow(error)
                        admission.failed(error)

            async def ask_again() -> Answering:
                await stack.aclose()
                meter.again()
                return await ask()

            answering = await ask()
            yield SteadyStream(
                model_request_parameters=model_request_parameters,
                inner=answering.stream,
                answering=answering,
                ask_again=ask_again,
                meter=meter,
                bill=bill,
                admission=admission,
            )

    def _admission(self, meter: Meter) -> Admission:
        return Admission(self._lane, meter, self._patience_seconds)

    def _sent(self, settings: ModelSettings | None) -> ModelSettings | None:
        """The settings without retries of the client, as requests are repeated here, and with the cache for prompts.

        Each turn repeats the whole conversation. Anthropic and Bedrock read it from a cache only if the request asks for
        that; pydantic-ai does so by the setting `cache`.
        """
        ours = ModelSettings()
        if "max_retries" not in self.wrapped.unsupported_settings:
            ours["max_retries"] = 0
        if "cache" not in (self.wrapped.settings or {}) and any(
            model.profile.get("supports_cache") for model in models_in(self.wrapped)
        ):
            ours["cache"] = True
        return {**ours, **(settings or {})} if ours else settings


@dataclass(frozen=True, kw_only=True)
class Answering:
    """A request whose response has begun."""

    attempt: Attempt
    stream: StreamedResponse
    silence: Silence


@dataclass(kw_only=True)
class SteadyStream(WrappedStream):
    """Streams an answer, and starts over if it breaks off or falls silent."""

    answering: Answering
    ask_again: Callable[[], Awaitable[Answering]]
    meter: Meter
    bill: Bill
    admission: Admission
    _thoughts: TaggedThoughts = field(init=False)
    _parts: PartsInOrder = field(init=False)
    first_index: int = field(default=0, init=False)
    """Index of the first part that counts: those before it are of a reply that broke off."""

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        tags, drops_blanks = without_tags(self.inner)
        self._thoughts = TaggedThoughts(USUAL if tags is None else (tags, *USUAL), drops_blanks=drops_blanks)
        self._parts = PartsInOrder()

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        following = 0
        while True:
            try:
                async with closed_after(self.answering.silence.watched(self.inner)) as events:
                    async for event in events:
                        if isinstance(event, ADDED):
                            continue
                        self.meter.piece()
                        for part in self._thoughts.passed(event):
                            placed = self._placed(self._parts.passed(part))
                            following = max(following, getattr(placed, "index", -1) + 1)
                            yield self.keep(placed)
                for part in self._thoughts.rest():
                    placed = self._placed(self._parts.passed(part))
                    following = max(following, getattr(placed, "index", -1) + 1)
                    yield self.keep(placed)
                for event in self._parts.rest():
                    yield self.keep(self._placed(event))
            except ModelAPIError as error:
                self.bill.failed(error)
                if self.cancelled:
                    raise
                _raise_overflow(error)
                self.admission.failed(error)
                self.first_index = following
                self.answering = await self.ask_again()
                self.inner = self.answering.stream
                self._begin()
            else:
                self.answering.attempt.response = self.get()
                self.admission.answered()
                return
            finally:
                self.copy_end()

    def get(self) -> ModelResponse:
        """See pydantic-ai."""
        return self._parts.whole(self._thoughts.whole(self.inner.get()))

    def _placed(self, event: ModelResponseStreamEvent) -> ModelResponseStreamEvent:
        """The event, with its index behind those of a reply that broke off."""
        if self.first_index and isinstance(event, (PartStartEvent, PartDeltaEvent)):
            return replace(event, index=event.index + self.first_index)
        return event


def _raise_overflow(error: Exception) -> None:
    """Raises: ContextOverflowError: The server refuses the request because it is too long."""
    if isinstance(error, ModelAPIError) and is_overflow(error):
        raise ContextOverflowError(context_tokens=context_of(error), said=words_of(error.body)) from error
