"""Turns the events of pydantic-ai's streams into those of a run."""

from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import (
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)

from freeact_sub.channel import Emitter
from freeact_sub.events import AgentEvent, Response, ResponseChunk, Thoughts, ThoughtsChunk
from freeact_sub.models.borrowed_stream import closed_after


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
