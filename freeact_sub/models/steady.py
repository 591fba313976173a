"""`SteadyModel` repeats requests that unreliable servers fail, and gives up with a clear error.

- The provider is busy, or has not begun to answer: `traffic` says when the request is made again.
- The connection breaks in the middle of a stream, or nothing comes for `stall_seconds`. Nothing of a reply is acted on
  before its end, so the request is made once more. What was shown of the first reply stays shown; only the second counts.
- The conversation does not fit into the model's context. The outputs of older calls are shortened in this request, then
  those of the newest; the history keeps them whole. Then it is a `ContextOverflowError`.

A slow first token is a matter of `first_event_timeout_seconds`, from when the request is sent on; `progress` tells of it.
Each time a request is sent is noted on the bill of the agent that pays for it (`attempts`).
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from pydantic_ai import RunContext
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    ToolReturnPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings

from freeact_sub.errors import ContextOverflowError
from freeact_sub.models.attempts import Attempt, Bill, current_bill
from freeact_sub.models.borrowed_stream import ADDED, UnhurriedModel, WrappedStream, closed_after
from freeact_sub.models.inner import models_in
from freeact_sub.models.odd_streams import EmptyStream, PartsInOrder, has_nothing
from freeact_sub.models.progress import Meter
from freeact_sub.models.silence import Silence
from freeact_sub.models.traffic import Admission, Lane, busy, passes

CHARS_PER_TOKEN: Final = 3
"""A low estimate: a token of code, tables or English has more."""
OLDER_CHARS: Final = 400
"""Kept of each older output when the context is full."""
NEWEST_CHARS: Final = 1200
"""Kept of each newest output when that was not enough."""

_OVERFLOW: Final = re.compile(
    r"""(?ix)
    exceed_context_size | exceeds?\s(?:the\s)?(?:available\s|model'?s?\s)?(?:maximum\s)?context | maximum\scontext
    | context\s(?:size|length|window)\s(?:exceeded|of|is) | prompt\sis\stoo\slong | input\sis\stoo\slong
    | too\smany\s(?:input\s)?tokens
    """
)
"""The wording of llama-server, Ollama, LM Studio and TGI, which pydantic-ai does not recognise."""


_Answer = TypeVar("_Answer")


class SteadyModel(UnhurriedModel):
    """A model whose requests outlive a busy provider, one broken connection and a full context."""

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

        async def ask(fitting: list[ModelMessage]) -> ModelResponse:
            while True:
                attempt = Attempt(model=self.wrapped, messages=fitting, parameters=model_request_parameters)
                async with admission.granted():
                    bill.sent(attempt)
                    try:
                        attempt.response = await self.wrapped.request(fitting, settings, model_request_parameters)
                    except Exception as error:  # noqa: BLE001  # border: of clients; what is not mended is raised
                        bill.failed(error)
                        _raise_overflow(error)
                        admission.failed(error)
                        continue
                    admission.answered()
                    return attempt.response

        return await _fitting(messages, ask)

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
        async with AsyncExitStack() as stack:

            async def send(fitting: list[ModelMessage]) -> Answering:
                await stack.enter_async_context(admission.granted())
                attempt = Attempt(model=self.wrapped, messages=fitting, parameters=model_request_parameters)
                silence = Silence(
                    self.model_name,
                    first_event_seconds=(model_settings or {}).get("first_event_timeout"),
                    stall_seconds=self._stall_seconds,
                )
                bill.sent(attempt)
                stream = self.wrapped.request_stream(fitting, settings, model_request_parameters, run_context)
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

            async def ask(fitting: list[ModelMessage]) -> Answering:
                while True:
                    try:
                        return await send(fitting)
                    except Exception as error:  # noqa: BLE001  # border: as above
                        bill.failed(error)
                        await stack.aclose()
                        _raise_overflow(error)
                        admission.failed(error)

            async def ask_again() -> Answering:
                await stack.aclose()
                meter.again()
                return await _fitting(messages, ask)

            answering = await _fitting(messages, ask)
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
    """Raises an overflow at once: `_fitting` repeats the request with shorter messages."""
    if isinstance(error, ModelAPIError) and is_overflow(error):
        raise error


async def _fitting(messages: list[ModelMessage], ask: Callable[[list[ModelMessage]], Awaitable[_Answer]]) -> _Answer:
    """Ask with the messages as they are, else with shortened ones.

    Raises:
        ContextOverflowError: None of them fits.
    """
    error: ModelAPIError | None = None
    for fitting in _shorter_and_shorter(messages):
        try:
            return await ask(fitting)
        except ModelAPIError as refused:
            if not is_overflow(refused):
                raise
            error = refused
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


def _shorter_and_shorter(messages: list[ModelMessage]) -> Iterator[list[ModelMessage]]:
    yield messages
    older = shortened(messages, keep_newest=True, chars=OLDER_CHARS)
    if older != messages:
        yield older
    newest = shortened(older, keep_newest=False, chars=NEWEST_CHARS)
    if newest != older:
        yield newest


def within(messages: list[ModelMessage], context_tokens: int) -> list[ModelMessage]:
    """Cuts the outputs of tools to fit into the context, before a server refuses the request.

    Args:
        messages: A history.
        context_tokens: Size of the context. A fifth of it is left for the answer, the system prompt and the tools.
    """
    room = int(context_tokens * 0.8 * CHARS_PER_TOKEN)
    size = _size_of(messages)
    if size <= room:
        return messages
    older = shortened(messages, keep_newest=True, chars=OLDER_CHARS)
    outputs = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if not outputs or _size_of(older) <= room:
        return older
    others = _size_of(older) - sum(len(part.model_response_str()) for part in outputs)
    return shortened(older, keep_newest=False, chars=max(NEWEST_CHARS, (room - others) // len(outputs)))


def _size_of(messages: Sequence[ModelMessage]) -> int:
    """The approximate number of characters sent."""
    return sum(len(_text_of(part)) for message in messages for part in message.parts)


def _text_of(part: ModelRequestPart | ModelResponsePart) -> str:
    if isinstance(part, ToolReturnPart):
        return part.model_response_str()
    return str(getattr(part, "args", None) or getattr(part, "content", ""))


def shortened(messages: Sequence[ModelMessage], *, keep_newest: bool, chars: int) -> list[ModelMessage]:
    """Cuts the results of tools in the middle.

    Args:
        messages: A history.
        keep_newest: Leave the newest message whole.
        chars: Kept of each text.
    """
    last = len(messages) - 1
    return [
        _shortened(message, chars) if isinstance(message, ModelRequest) and not (keep_newest and index == last) else message
        for index, message in enumerate(messages)
    ]


def _shortened(message: ModelRequest, chars: int) -> ModelRequest:
    if not any(isinstance(part, ToolReturnPart) for part in message.parts):
        return message
    parts = [
        replace(part, content=_cut(part, chars)) if isinstance(part, ToolReturnPart) else part for part in message.parts
    ]
    return replace(message, parts=parts) if parts != list(message.parts) else message


def _cut(part: ToolReturnPart[Any], chars: int) -> Any:
    """The result cut to so many characters, without pictures, which take more room than most texts."""
    items = part.content_items(mode="str")
    text = "\n".join(item for item in items if isinstance(item, str))
    pictures = sum(not isinstance(item, str) for item in items)
    if len(text) <= chars + 100 and not pictures:
        return part.content
    if len(text) > chars + 100:
        left_out = len(text) - chars
        note = f"\n[{left_out:,} characters are left out here: the conversation does not fit into your context]\n"
        text = text[: chars // 2] + note + text[len(text) - chars // 2 :]
    return text + (f"\n[{pictures} pictures are left out]" if pictures else "")
