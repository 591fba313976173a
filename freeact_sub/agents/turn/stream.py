"""Translates pydantic-ai's stream of one model response into our events."""

from collections.abc import AsyncIterable
from typing import Any

from pydantic_ai.messages import (
    FunctionToolResultEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolReturnPart,
)

from freeact_sub.channel import Emitter
from freeact_sub.events import AgentEvent, Response, ResponseChunk, Thoughts, ThoughtsChunk, ToolOutput


async def relay_events(events: AsyncIterable[Any], emitter: Emitter) -> None:
    """Emit chunks and whole blocks of text and thinking, and the answers to calls that never ran."""
    async for event in events:
        translated = _translate(event)
        if translated is not None:
            await emitter.emit(translated)


def _translate(event: Any) -> AgentEvent | None:
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            translated: AgentEvent = ResponseChunk(content=text)
        case PartStartEvent(part=ThinkingPart(content=text)):
            translated = ThoughtsChunk(content=text)
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))):
            translated = ThoughtsChunk(content=text)
        case PartEndEvent(part=TextPart(content=text)):
            translated = Response(content=text)
        case PartEndEvent(part=ThinkingPart(content=text)):
            translated = Thoughts(content=text)
        case FunctionToolResultEvent(part=ToolReturnPart(outcome="retried") as part):
            # invalid arguments or an unknown tool: nothing ran, and no other event reports it
            text, call_id = part.model_response_str(wrap_if_error=False), part.tool_call_id
            translated = ToolOutput(tool_name=part.tool_name, content=text, outcome="retried", tool_call_id=call_id)
        case _:
            return None
    return translated if text else None
