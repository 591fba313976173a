"""Turns a model's stream into events.

pydantic-ai makes plain requests, and `EmittingModel` streams them and emits what comes. Streams through pydantic-ai's graph
take two more tasks and a dozen more layers for each response; they are for a user's capability that reads its events.
"""

from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from freeact_sub.channel import Emitter
from freeact_sub.events import AgentEvent, Response, ResponseChunk, Thoughts, ThoughtsChunk
from freeact_sub.models.borrowed_stream import closed_after


class EmittingModel(WrapperModel):
    """A model whose plain requests are streamed, and emitted as they come."""

    def __init__(self, wrapped: Model, emitter: Emitter) -> None:
        """Args: emitter: of the agent that makes the requests."""
        super().__init__(wrapped)
        self._emitter = emitter
        self.cut_off: ModelResponse | None = None
        """The part of a response that arrived before an error or a cancel. None: no response is under way."""

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """See pydantic-ai."""
        # as pydantic-ai's streams, also before the first piece: a prompt without an answer must not run into the next one
        self.cut_off = ModelResponse(parts=[], model_name=self.model_name, state="interrupted")
        async with self.wrapped.request_stream(messages, model_settings, model_request_parameters) as stream:
            try:
                await emit_events(stream, self._emitter)
            finally:
                response = stream.get()
                self.cut_off = replace(response, state="interrupted")  # also while the stream is closed
        self.cut_off = None
        return response


def reads_events(capabilities: Sequence[AbstractCapability[Any]]) -> bool:
    """One of a user's capabilities reads pydantic-ai's events, so that pydantic-ai must stream."""
    return any(capability.has_wrap_run_event_stream or capability.has_on_event for capability in capabilities)


def event_stream_handler_of(emitter: Emitter) -> Callable[[RunContext[Any], AsyncIterable[Any]], Awaitable[None]]:
    """The `event_stream_handler` of pydantic-ai."""

    async def handle(_: RunContext[Any], events: AsyncIterable[Any]) -> None:
        await emit_events(events, emitter)

    return handle


async def emit_events(events: AsyncIterable[Any], emitter: Emitter) -> None:
    """Emit chunks and whole blocks of text and thinking."""
    blocks = _Blocks()
    async with closed_after(events) as following:
        await _emit_each(following, blocks, emitter)
    if (whole := blocks.ended()) is not None:
        await emitter.emit(whole)


async def _emit_each(events: AsyncIterable[Any], blocks: "_Blocks", emitter: Emitter) -> None:
    async for event in events:
        if isinstance(event, PartDeltaEvent):
            translated = blocks.continued(event)
        else:
            if isinstance(event, PartStartEvent) and (whole := blocks.ended()) is not None:
                await emitter.emit(whole)
            translated = blocks.begun(event) if isinstance(event, PartStartEvent) else None
        if translated is not None and not emitter.offer(translated):
            await emitter.emit(translated)


class _Blocks:
    """Makes events of the texts of a response; our streams do not tell of the end of a part."""

    def __init__(self) -> None:
        self._index = -1
        """Of the newest part, if that is text or thinking."""
        self._texts: list[str] = []
        """Of that part."""
        self._whole: type[Response | Thoughts] = Response

    def begun(self, event: PartStartEvent) -> AgentEvent | None:
        """The newest part has begun. Returns its first chunk, if it has text already."""
        part = event.part
        if not isinstance(part, TextPart | ThinkingPart):
            self._index = -1
            return None
        self._index, self._whole = event.index, Response if isinstance(part, TextPart) else Thoughts
        return self._chunk(event.index, ResponseChunk if self._whole is Response else ThoughtsChunk, part.content)

    def continued(self, event: PartDeltaEvent) -> AgentEvent | None:
        """A part has grown. Returns the chunk, if it is text."""
        delta = event.delta
        if isinstance(delta, TextPartDelta):
            return self._chunk(event.index, ResponseChunk, delta.content_delta)
        if isinstance(delta, ThinkingPartDelta):
            return self._chunk(event.index, ThoughtsChunk, delta.content_delta)
        return None

    def ended(self) -> AgentEvent | None:
        """The newest part is whole, or there is none. Returns its block, if it has text."""
        text, self._texts = "".join(self._texts), []
        return self._whole(content=text) if text else None

    def _chunk(self, index: int, kind: type[ResponseChunk | ThoughtsChunk], text: str | None) -> AgentEvent | None:
        if not text:
            return None
        if index == self._index:
            self._texts.append(text)
        return kind(content=text)
