"""`SteadyModel` repeats requests that unreliable servers fail, and gives up with a clear error.

- The provider is busy, or has not begun to answer: `traffic` says when the request is made again.
- The connection breaks in the middle of a stream, or nothing comes for `stall_seconds`. Nothing of a reply is acted on
  before its end, so the request is made once more. What was shown of the first reply stays shown; only the second counts.
- The conversation does not fit into the model's context: that is a `ContextOverflowError`, whichever words the server has.
  Who makes the request may shorten the conversation (`agents/context/`).

A slow first token is a matter of `first_event_timeout_seconds`, from when the request is sent on; `progress` tells of it.
Each time a request is sent is noted on the bill of the agent that pays for it (`attempts`).
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from pydantic_ai import RunContext
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelContextWindowExceededError,
    ModelHTTPError,
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
from freeact_sub.models.attempts import Attempt, Bill, current_bill
from freeact_sub.models.borrowed_stream import ADDED, UnhurriedModel, WrappedStream, closed_after
from freeact_sub.models.inner import models_in
from freeact_sub.models.odd_chunks import mend_chunks
from freeact_sub.models.odd_streams import EmptyStream, PartsInOrder, has_nothing, in_order
from freeact_sub.models.progress import Meter
from freeact_sub.models.silence import Silence
from freeact_sub.models.traffic import Admission, Lane, busy, passes

_OVERFLOW: Final = re.compile(
    r"""(?ix)
    exceed_context_size | exceeds?\s(?:the\s)?(?:available\s|model'?s?\s)?(?:maximum\s)?context | maximum\scontext
    | context\s(?:size|length|window)\s(?:exceeded|of|is) | prompt\sis\stoo\slong | input\sis\stoo\slong
    | too\smany\s(?:input\s)?tokens
    """
)
"""The wording of llama-server, Ollama, LM Studio and TGI, which pydantic-ai does not recognise."""


class SteadyModel(UnhurriedModel):
    """A model whose requests outlive a busy provider and one broken connection."""

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
        mend_chunks(self.wrapped)
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
    """A request whose answer has begun."""

    attempt: Attempt
    stream: StreamedResponse
    silence: Silence


@dataclass(kw_only=True)
class SteadyStream(WrappedStream):
    """Streams an answer, and starts over once if the connection breaks or falls silent."""

    answering: Answering
    ask_again: Callable[[], Awaitable[Answering]]
    meter: Meter
    bill: Bill
    admission: Admission
    _parts: PartsInOrder = field(default_factory=PartsInOrder, init=False)
    first_index: int = field(default=0, init=False)
    """Index of the first part that counts: those before it are of a reply that broke off."""
    _broke: bool = field(default=False, init=False)
    """An answer broke off in its middle, which is forgiven once."""

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        following = 0
        while True:
            try:
                async with closed_after(self.answering.silence.watched(self.inner)) as events:
                    async for event in events:
                        if isinstance(event, ADDED):
                            continue
                        self.meter.piece()
                        placed = self._placed(self._parts.passed(event))
                        following = max(following, getattr(placed, "index", -1) + 1)
                        yield self.keep(placed)
                for event in self._parts.rest():
                    yield self.keep(self._placed(event))
            except ModelAPIError as error:
                self.bill.failed(error)
                self._broke_off(error, begun=following > self.first_index)
                self.first_index = following
                self.answering = await self.ask_again()
                self.inner = self.answering.stream
                self._parts = PartsInOrder()
            else:
                self.answering.attempt.response = self.get()
                self.admission.answered()
                return
            finally:
                self.copy_end()

    def get(self) -> ModelResponse:
        """See pydantic-ai."""
        return self._parts.whole(self.inner.get())

    def _placed(self, event: ModelResponseStreamEvent) -> ModelResponseStreamEvent:
        """The event, with its index behind those of a reply that broke off."""
        if self.first_index and isinstance(event, (PartStartEvent, PartDeltaEvent)):
            return replace(event, index=event.index + self.first_index)
        return event

    def _broke_off(self, error: ModelAPIError, *, begun: bool) -> None:
        """Raises the error unless the request may be repeated."""
        if self.cancelled or (begun and self._broke):
            raise error
        if not begun or busy(error) is not None:
            self.admission.failed(error)
        elif not passes(error):
            raise error
        self._broke = self._broke or begun


def _raise_overflow(error: Exception) -> None:
    """Raises: ContextOverflowError: The server refuses the request because it is too long."""
    if isinstance(error, ModelAPIError) and is_overflow(error):
        raise ContextOverflowError(context_tokens=_context_of(error)) from error


def is_overflow(error: ModelAPIError) -> bool:
    """The server says that the request is too long for the model's context."""
    if isinstance(error, ModelContextWindowExceededError):
        return True
    return (
        isinstance(error, ModelHTTPError)
        and error.status_code in (400, 413, 422, 500)
        and bool(_OVERFLOW.search(str(error)))
    )


def _context_of(error: ModelAPIError | None) -> int | None:
    """The size of the context, where the server tells it."""
    size = error.body.get("n_ctx") if error is not None and isinstance(error.body, dict) else None
    return size if isinstance(size, int) else None
