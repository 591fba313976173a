"""`CodeActionsModel`: a model that acts by code, however it writes its calls. The agent's loop sees tool calls only.

It stands around any pydantic-ai model. What the model sends goes through `replies.understood`; what it is sent goes through
`replies.told`, and in block mode through `blocks`. Where a server refuses tools altogether, `auto` goes on in block mode.

A reply is streamed on as long as it is words for certain (`reading.GrowingReply`); what may still become a call is held back
until the reply has ended. The first event is passed on at once, if need be without text: whoever waits for it knows that
the model answers.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from freeact_sub.models.arguments import Schemas
from freeact_sub.models.blocks import as_text, without_tools
from freeact_sub.models.reading import GrowingReply
from freeact_sub.models.replies import WRITTEN, Reading, situation_of, told, understood
from freeact_sub.models.servers import within
from freeact_sub.models.small import SMALL_CONTEXT_TOKENS, context_tokens, trimmed
from freeact_sub.models.steps import Situation, blocks_may_run
from freeact_sub.models.streams import WrappedStream
from freeact_sub.modes import CodeActions, Profile

_NO_TOOLS: Final = re.compile(
    r"(?i)does not support (?:tools|function)|tools? (?:param|use|calling)[^.]*(?:requires|not supported|--jinja)"
    r"|tool[ -]choice requires|enable-auto-tool-choice"
)
"""How Ollama, llama-server and vLLM word it."""


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A request as the inner model gets it, and what is needed to understand the reply."""

    messages: list[ModelMessage]
    parameters: ModelRequestParameters
    tools: Schemas
    situation: Situation
    written: bool

    def growing(self) -> GrowingReply:
        """For the reply's text as it comes."""
        return GrowingReply(self.tools, blocks_may_run=blocks_may_run(self.situation))

    def understood(self, response: ModelResponse) -> Reading:
        return understood(
            response.parts,
            self.tools,
            self.situation,
            written=self.written,
            complete=response.state == "complete" and response.finish_reason != "length",
        )


class CodeActionsModel(WrapperModel):
    """Makes tool calls of what a model writes."""

    def __init__(self, wrapped: Model, code_actions: CodeActions, profile: Profile | None = "full") -> None:
        """Args: code_actions, profile: see `Config`; a profile of None: the server is asked for the model's context."""
        super().__init__(wrapped)
        self.prompt_profile = profile
        """Chosen with the first request, where it was None."""
        self.context_tokens: int | None = None
        """Of the model, where the profile is not `full` and the server tells it."""
        self._asked_server = False
        self.code_actions: CodeActions = code_actions
        """Becomes `block` where `auto` found that the server refuses tools."""

    def acting_by(self, code_actions: CodeActions) -> "CodeActionsModel":
        """The same model, acting in another way."""
        model = CodeActionsModel(self.wrapped, code_actions, self.prompt_profile)
        model.context_tokens, model._asked_server = self.context_tokens, self._asked_server
        return model

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """See pydantic-ai."""
        await self._choose_profile()
        asked = self._asked(messages, model_request_parameters)
        try:
            response = await self.wrapped.request(asked.messages, model_settings, asked.parameters)
        except ModelHTTPError as error:
            if not self._goes_on_in_blocks(error):
                raise
            asked = self._asked(messages, model_request_parameters)
            response = await self.wrapped.request(asked.messages, model_settings, asked.parameters)
        return _with(response, asked.understood(response))

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncIterator[StreamedResponse]:
        """See pydantic-ai."""
        await self._choose_profile()
        asked = self._asked(messages, model_request_parameters)
        stream = self.wrapped.request_stream(asked.messages, model_settings, asked.parameters, run_context)
        try:
            inner = await stream.__aenter__()
        except ModelHTTPError as error:
            if not self._goes_on_in_blocks(error):
                raise
            asked = self._asked(messages, model_request_parameters)
            stream = self.wrapped.request_stream(asked.messages, model_settings, asked.parameters, run_context)
            inner = await stream.__aenter__()
        async with _entered(stream):
            yield CodeActionsStream(model_request_parameters=model_request_parameters, inner=inner, asked=asked)

    async def _choose_profile(self) -> None:
        if self.prompt_profile != "full" and not self._asked_server:
            self._asked_server = True
            size = self.context_tokens = await context_tokens(self.wrapped)
            if self.prompt_profile is None:
                self.prompt_profile = "small" if size is not None and size <= SMALL_CONTEXT_TOKENS else "full"

    def _asked(self, messages: list[ModelMessage], parameters: ModelRequestParameters) -> _Asked:
        block_mode = self.code_actions == "block"
        if self.prompt_profile == "small":
            parameters = trimmed(parameters)
        if self.context_tokens is not None:
            messages = within(messages, self.context_tokens)
        written = self.code_actions != "tool"
        offered = [*parameters.function_tools, *parameters.output_tools]
        return _Asked(
            messages=as_text(told(messages, notes=False)) if block_mode else told(messages, written=written),
            parameters=without_tools(parameters) if block_mode else parameters,
            tools={tool.name: tool.parameters_json_schema for tool in offered},
            situation=situation_of(messages, block_mode=block_mode),
            written=written,
        )

    def _goes_on_in_blocks(self, error: ModelHTTPError) -> bool:
        if self.code_actions != "auto" or not _NO_TOOLS.search(str(error)):
            return False
        self.code_actions = "block"
        return True


@asynccontextmanager
async def _entered(stream: Any) -> AsyncIterator[None]:
    """Leave an async context manager that was entered by hand."""
    try:
        yield
    except BaseException as error:
        if not await stream.__aexit__(type(error), error, error.__traceback__):
            raise
    else:
        await stream.__aexit__(None, None, None)


def _with(response: ModelResponse, reading: Reading) -> ModelResponse:
    return response if list(reading.parts) == list(response.parts) else replace(response, parts=list(reading.parts))


@dataclass(kw_only=True)
class CodeActionsStream(WrappedStream):
    """The stream of a reply that is understood at its end."""

    asked: _Asked
    _reading: Reading | None = field(default=None, init=False)
    _growing: GrowingReply = field(init=False)
    _text_index: int | None = field(default=None, init=False)
    """Index of the text part that is passed on; None: the newest part is no text."""
    _following: int = field(default=0, init=False)
    """Index of the next new part."""
    _begins: int = field(default=0, init=False)
    """`SteadyStream.first_index`, as it was last seen."""

    def __post_init__(self) -> None:
        """Begin with nothing."""
        self._growing = self.asked.growing()

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        async for event in self.inner_events():
            self._begin_again()
            for passed in self._passed_on(event):
                yield self.keep(passed)
        response = self.inner.get()
        self._reading = self.asked.understood(response)
        for event in self._at_end(self._reading):
            yield self.keep(event)

    def get(self) -> ModelResponse:
        """See pydantic-ai."""
        response = self.inner.get()
        return response if self._reading is None else _with(response, self._reading)

    def _begin_again(self) -> None:
        """The connection broke and the reply begins anew: what was held back of the first one is dropped."""
        begins = getattr(self.inner, "first_index", 0)
        if begins != self._begins:
            self._begins = begins
            self._growing, self._text_index = self.asked.growing(), None

    def _passed_on(self, event: ModelResponseStreamEvent) -> list[ModelResponseStreamEvent]:
        match event:
            case PartStartEvent(part=TextPart(content=text) as part):
                self._text_index = event.index
                self._following = max(self._following, event.index + 1)
                return [replace(event, part=replace(part, content=self._release(text)))]
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text) as delta) if event.index == self._text_index:
                released = self._release(text)
                return [replace(event, delta=replace(delta, content_delta=released))] if released else []
            case PartStartEvent(part=ToolCallPart()):
                held = self._rest()  # a call of the model's own: then its text is text
                self._text_index = None
                self._following = max(self._following, event.index + 1)
                return [*held, event]
            case PartStartEvent():
                self._text_index = None
                self._following = max(self._following, event.index + 1)
        return [event]

    def _release(self, text: str) -> str:
        """More text has come; what of it may be passed on now."""
        return self._growing.add(text) if self.asked.written else text

    def _rest(self) -> list[ModelResponseStreamEvent]:
        return self._said(self._growing.rest())

    def _said(self, text: str) -> list[ModelResponseStreamEvent]:
        """More text, where the text part that it belongs to is the newest; else as a part of its own."""
        if not text:
            return []
        if self._text_index is not None:
            return [PartDeltaEvent(index=self._text_index, delta=TextPartDelta(text))]
        return [self._started(TextPart(text))]

    def _started(self, part: TextPart | ToolCallPart) -> PartStartEvent:
        self._following += 1
        return PartStartEvent(index=self._following - 1, part=part)

    def _at_end(self, reading: Reading) -> list[ModelResponseStreamEvent]:
        """What was held back, now that it is understood."""
        if not any(isinstance(part, ToolCallPart) and part.tool_call_id.startswith(WRITTEN) for part in reading.parts):
            return self._rest()
        events: list[ModelResponseStreamEvent] = []
        before = self._growing.text[: self._growing.passed]
        for part in reading.parts:
            if isinstance(part, ToolCallPart):
                events.append(self._started(part))
                before, self._text_index = "", None
            elif isinstance(part, TextPart):
                events += self._said(part.content.removeprefix(before))
                before = ""
        return events
