"""Servers as they are: `SteadyModel` makes a request again where that mends it, and gives up with a clear error.

What it adds to what the clients do. Those of OpenAI and Anthropic repeat by themselves what has not begun to answer: refused
and lost connections, 408, 409, 429 and 5xx, each time after what `Retry-After` says, or after a growing pause
(`model_settings.max_retries`). Left to us:

- The connection breaks in the middle of a stream. Nothing of a reply is acted on before its end, so the request is made
  once more. What was shown of the first reply stays shown; only the second one counts.
- The conversation does not fit into the model's context. The outputs of older calls are shortened in this request, then
  those of the newest; the history keeps them whole. Then it is a `ContextOverflowError`.

A slow first token is a matter of `first_event_timeout_seconds`, which pydantic-ai watches over; `progress` tells of it.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from pydantic_ai import RunContext
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelTimeoutError,
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
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from freeact_sub.errors import ContextOverflowError
from freeact_sub.models.progress import Meter
from freeact_sub.models.streams import WrappedStream

CHARS_PER_TOKEN: Final = 3
"""Of code, tables and English there are more in a token; a little room stays."""
OLDER_CHARS: Final = 400
"""What is left of older outputs when the context is full."""
NEWEST_CHARS: Final = 1200
"""What is left of the newest outputs when that was not enough."""

_OVERFLOW: Final = re.compile(
    r"""(?ix)
    exceed_context_size | exceeds?\s(?:the\s)?(?:available\s|model'?s?\s)?(?:maximum\s)?context | maximum\scontext
    | context\s(?:size|length|window)\s(?:exceeded|of|is) | prompt\sis\stoo\slong | input\sis\stoo\slong
    | too\smany\s(?:input\s)?tokens
    """
)
"""How servers word it that pydantic-ai does not know: llama-server, Ollama, LM Studio, TGI."""


_Answer = TypeVar("_Answer")


class SteadyModel(WrapperModel):
    """A model whose requests outlive one broken connection and a full context."""

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """See pydantic-ai."""
        return await _fitting(
            messages, lambda fitting: self.wrapped.request(fitting, model_settings, model_request_parameters)
        )

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncIterator[StreamedResponse]:
        """See pydantic-ai."""
        meter = Meter()
        async with AsyncExitStack() as stack:

            async def opened(fitting: list[ModelMessage]) -> StreamedResponse:
                return await stack.enter_async_context(
                    self.wrapped.request_stream(fitting, model_settings, model_request_parameters, run_context)
                )

            async def open_again() -> StreamedResponse:
                await stack.aclose()
                meter.again()
                return await _fitting(messages, opened)

            yield SteadyStream(
                model_request_parameters=model_request_parameters,
                inner=await _fitting(messages, opened),
                open_again=open_again,
                meter=meter,
            )


@dataclass(kw_only=True)
class SteadyStream(WrappedStream):
    """A stream that begins once more when its connection breaks."""

    open_again: Callable[[], Awaitable[StreamedResponse]]
    meter: Meter
    first_index: int = field(default=0, init=False)
    """Index of the first part that counts: those before it are of a reply that broke off."""

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        following = 0
        for attempt in (1, 2):
            try:
                async for event in self.inner_events():
                    self.meter.piece()
                    if isinstance(event, PartStartEvent | PartDeltaEvent):
                        event = replace(event, index=event.index + self.first_index)  # noqa: PLW2901  # the same, elsewhere
                        following = max(following, event.index + 1)
                    yield self.keep(event)
            except ModelConnectionError as error:
                if attempt == 2 or self.cancelled or isinstance(error, ModelTimeoutError):
                    raise
                self.first_index = following
                self.inner = await self.open_again()
            else:
                return


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
    """The messages with the outputs of tools cut to the room that a context leaves, before a server has to refuse them.

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
    """Characters of what is sent, nearly."""
    return sum(len(_text_of(part)) for message in messages for part in message.parts)


def _text_of(part: ModelRequestPart | ModelResponsePart) -> str:
    if isinstance(part, ToolReturnPart):
        return part.model_response_str()
    return str(getattr(part, "args", None) or getattr(part, "content", ""))


def shortened(messages: Sequence[ModelMessage], *, keep_newest: bool, chars: int) -> list[ModelMessage]:
    """The messages with what tools have returned cut in the middle.

    Args:
        messages: A history.
        keep_newest: What the newest message has stays whole.
        chars: What is left of each text.
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
    """Pictures go as well: they take more room than most texts."""
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
