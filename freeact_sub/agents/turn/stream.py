"""Turns a model's stream, and answers to calls that never ran, into events.

pydantic-ai makes plain requests, and `EmittingModel` streams them and emits what comes. Streams through pydantic-ai's graph
take two more tasks and a dozen more layers for each response; they are for a user's capability that reads its events.
"""

from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    FunctionToolResultEvent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolReturnPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from freeact_sub.channel import Emitter
from freeact_sub.events import AgentEvent, Response, ResponseChunk, Thoughts, ThoughtsChunk, ToolOutput


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
    """Emit chunks and whole blocks of text and thinking, and the answers to calls that never ran."""
    async for event in events:
        translated = _translate(event)
        if translated is not None and not emitter.offer(translated):
            await emitter.emit(translated)


async def emit_retried(ctx: RunContext[Any], outputs: Sequence[str], emitter: Emitter) -> None:
    """Emit the answers to calls of the latest response that never ran; their pydantic-ai events nobody has read.

    Args:
        ctx: The context of the next request.
        outputs: Names of the tools that hand over answers, of which no event tells.
        emitter: The emitter of the agent.
    """
    latest = ctx.messages[-1] if ctx.messages else None
    if not isinstance(latest, ModelRequest) or latest.run_id != ctx.run_id:
        return
    for part in latest.parts:
        if isinstance(part, ToolReturnPart) and part.outcome == "retried" and part.tool_name not in outputs:
            await emitter.emit(_retried(part))


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
            return _retried(part)
        case _:
            return None
    return translated if text else None


def _retried(part: ToolReturnPart[Any]) -> ToolOutput:
    """Arguments that did not validate, or a tool that does not exist: nothing was run, nothing else tells of it."""
    text = part.model_response_str(wrap_if_error=False)
    return ToolOutput(tool_name=part.tool_name, content=text, outcome="retried", tool_call_id=part.tool_call_id)
