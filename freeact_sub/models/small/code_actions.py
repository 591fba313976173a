"""`CodeActionsModel`: a model that acts by code, by tool calls or by blocks. The agent's loop sees tool calls only.

It stands around any pydantic-ai model. How a model acts is decided once for the model and never by what a reply says: `auto`
is `block` with the small profile and where a server refuses tools, else `tool`. What the model sends goes through
`read_reply`; what it is sent in block mode goes through `block_mode`.

In block mode a reply is streamed on as long as it is words for certain (`GrowingReply`); from the first block of
Python on it is held back until it has ended. The first event is passed on at once, if need be without text: whoever waits
for it knows that the model answers.

The small profile gives models with a small context less to read. Tools are offered with required parameters and a short
description; those whose definition (`tools/NAME.json`) says so are left out. It is chosen by the setting `profile`, else by
what the server says of the model's context: llama-server tells it with its list of models (`meta.n_ctx`), vLLM too
(`max_model_len`). Other servers do not; then the full profile counts.
"""

import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import anyio
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
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

from freeact_sub.models.borrowed_stream import ADDED, WrappedStream, closed_after
from freeact_sub.models.refusals import refuses_tools
from freeact_sub.models.small.arguments import Schemas
from freeact_sub.models.small.block_mode import as_text, without_tools
from freeact_sub.models.small.replies import WRITTEN, GrowingReply, read_reply, text_of, without_text_after_calls
from freeact_sub.modes import CodeActions, Profile

SMALL_CONTEXT_TOKENS: Final = 16_384
"""A context of at most this many tokens is small."""
DESCRIPTION_SENTENCES: Final = 2
ASK_SECONDS: Final = 5.0
"""A server that takes longer to list its models is not waited for."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _SentRequest:
    """A request as the wrapped model gets it, with what reading the reply needs."""

    messages: list[ModelMessage]
    parameters: ModelRequestParameters
    tools: Schemas
    blocks: bool
    """The model acts by blocks; else text is text."""

    def parts_of(self, response: ModelResponse) -> list[ModelResponsePart]:
        complete = response.state == "complete" and response.finish_reason != "length"
        return read_reply(response.parts, self.tools, blocks=self.blocks, complete=complete)


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
        self._asking_server = anyio.Lock()
        self.code_actions: CodeActions = code_actions
        """Becomes `block` where `auto` found that the server refuses tools."""

    @property
    def acts_by_blocks(self) -> bool:
        """How the model submits code; for `auto`, known after the first request."""
        return self.code_actions == "block" or (self.code_actions == "auto" and self.prompt_profile == "small")

    @property
    def context_window(self) -> int | None:
        """See pydantic-ai. What the server says counts more than what is known of models by their names."""
        return self.context_tokens or super().context_window

    def acting_by(self, code_actions: CodeActions) -> "CodeActionsModel":
        """The same model with another way to act."""
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
        sent = self._prepare(messages, model_request_parameters)
        try:
            response = await self.wrapped.request(sent.messages, model_settings, sent.parameters)
        except ModelHTTPError as error:
            if not self._goes_on_in_blocks(sent, error):
                raise
            sent = self._prepare(messages, model_request_parameters)
            response = await self.wrapped.request(sent.messages, model_settings, sent.parameters)
        return _with_parts(response, sent.parts_of(response))

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
        sent = self._prepare(messages, model_request_parameters)
        stream = self.wrapped.request_stream(sent.messages, model_settings, sent.parameters, run_context)
        try:
            inner = await stream.__aenter__()
        except ModelHTTPError as error:
            if not self._goes_on_in_blocks(sent, error):
                raise
            sent = self._prepare(messages, model_request_parameters)
            stream = self.wrapped.request_stream(sent.messages, model_settings, sent.parameters, run_context)
            inner = await stream.__aenter__()
        async with _entered(stream):
            answer = CodeActionsStream(model_request_parameters=model_request_parameters, inner=inner, sent=sent)
            try:
                yield answer
            finally:  # one that a cancelled reader has left would keep its timers until it is collected
                await cast("AsyncGenerator[Any, None]", aiter(answer)).aclose()

    async def _choose_profile(self) -> None:
        if self.prompt_profile == "full" or self._asked_server:
            return
        async with self._asking_server:  # several agents may make their first request at once; all of them act alike
            if self._asked_server:
                return
            size = self.context_tokens = await context_tokens(self.wrapped)
            if self.prompt_profile is None:
                self.prompt_profile = "small" if size is not None and size <= SMALL_CONTEXT_TOKENS else "full"
            self._asked_server = True

    def _prepare(self, messages: list[ModelMessage], parameters: ModelRequestParameters) -> _SentRequest:
        if self.prompt_profile == "small":
            parameters = trimmed(parameters)
        blocks = self.acts_by_blocks
        offered = [*parameters.function_tools, *parameters.output_tools]
        return _SentRequest(
            messages=as_text(without_text_after_calls(messages)) if blocks else messages,
            parameters=without_tools(parameters) if blocks else parameters,
            tools={tool.name: tool.parameters_json_schema for tool in offered},
            blocks=blocks,
        )

    def _goes_on_in_blocks(self, sent: _SentRequest, error: ModelHTTPError) -> bool:
        if sent.blocks or not refuses_tools(error):
            return False
        if self.code_actions == "auto":
            self.code_actions = "block"
        return self.acts_by_blocks  # another request may have found it out since this one was sent


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


def _with_parts(response: ModelResponse, parts: list[ModelResponsePart]) -> ModelResponse:
    return response if parts == list(response.parts) else replace(response, parts=parts)


@dataclass(kw_only=True)
class CodeActionsStream(WrappedStream):
    """Streams a reply, and turns its blocks into calls once it has ended."""

    sent: _SentRequest
    _parts: list[ModelResponsePart] | None = field(default=None, init=False)
    """The final parts of the reply. None: it has not ended."""
    _growing: GrowingReply = field(default_factory=GrowingReply, init=False)
    _text_index: int | None = field(default=None, init=False)
    """Index of the text part that is passed on; None: the newest part is no text."""
    _following: int = field(default=0, init=False)
    """Index of the next new part."""
    _begins: int = field(default=0, init=False)
    """`SteadyStream.first_index`, as it was last seen."""

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        try:
            async with closed_after(self.inner) as events:
                async for event in events:
                    if not isinstance(event, ADDED):
                        self._begin_again()
                        for passed in self._pass_on(event):
                            yield self.keep(passed)
        finally:
            self.copy_end()
        response = self.inner.get()
        self._parts = self.sent.parts_of(response)
        for event in self._at_end(text_of(response.parts), self._parts):
            yield self.keep(event)

    def get(self) -> ModelResponse:
        """See pydantic-ai."""
        response = self.inner.get()
        return response if self._parts is None else _with_parts(response, self._parts)

    def _begin_again(self) -> None:
        """Drops the text held back of a reply whose connection broke: the reply starts anew."""
        begins = getattr(self.inner, "first_index", 0)
        if begins != self._begins:
            self._begins = begins
            self._growing, self._text_index = GrowingReply(), None

    def _pass_on(self, event: ModelResponseStreamEvent) -> list[ModelResponseStreamEvent]:
        match event:
            case PartStartEvent(part=TextPart(content=text) as part):
                self._text_index = event.index
                self._following = max(self._following, event.index + 1)
                return [replace(event, part=replace(part, content=self._release(text)))]
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text) as delta) if event.index == self._text_index:
                released = self._release(text)
                if released == text:
                    return [event]
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
        """Returns the part of new text that may be passed on now."""
        return self._growing.add(text) if self.sent.blocks else text

    def _rest(self) -> list[ModelResponseStreamEvent]:
        return self._pass_text(self._growing.rest())

    def _pass_text(self, text: str) -> list[ModelResponseStreamEvent]:
        """Passes text on: as a delta if its part is the newest, else as a new part."""
        if not text:
            return []
        if self._text_index is not None:
            return [PartDeltaEvent(index=self._text_index, delta=TextPartDelta(text))]
        return [self._started(TextPart(text))]

    def _started(self, part: TextPart | ToolCallPart) -> PartStartEvent:
        self._following += 1
        return PartStartEvent(index=self._following - 1, part=part)

    def _at_end(self, text: str, parts: list[ModelResponsePart]) -> list[ModelResponseStreamEvent]:
        """Passes on the text and the calls that were held back."""
        if not any(isinstance(part, ToolCallPart) and part.tool_call_id.startswith(WRITTEN) for part in parts):
            return self._rest()
        events: list[ModelResponseStreamEvent] = []
        before = text[: self._growing.passed]
        for part in parts:
            if isinstance(part, ToolCallPart):
                events.append(self._started(part))
                before, self._text_index = "", None
            elif isinstance(part, TextPart):
                events += self._pass_text(part.content.removeprefix(before))
                before = ""
        return events


async def context_tokens(model: Model) -> int | None:
    """The size of the model's context, asked of the server. None: the server does not tell it."""
    client: Any = getattr(model, "client", None)
    if not hasattr(client, "models"):
        return None
    try:
        listed = (await client.with_options(max_retries=0, timeout=ASK_SECONDS).models.list()).data
    except Exception:  # border: foreign servers fail here in any way, and nothing depends on the answer
        logger.debug("the server of %s does not list its models", model.model_name, exc_info=True)
        return None
    named = [item for item in listed or () if getattr(item, "id", None) == model.model_name] or list(listed or ())[:1]
    for item in named:
        meta = getattr(item, "meta", None)
        size = meta.get("n_ctx") if isinstance(meta, dict) else getattr(item, "max_model_len", None)
        if isinstance(size, int):
            return size
    return None


def trimmed(parameters: ModelRequestParameters) -> ModelRequestParameters:
    """The parameters of a request with shorter tools. Tools for structured output stay as they are."""
    offered = (tool for tool in parameters.function_tools if (tool.metadata or {}).get("small_profile", True))
    return replace(parameters, function_tools=[_trimmed(tool) for tool in offered])


def _trimmed(tool: ToolDefinition) -> ToolDefinition:
    schema = tool.parameters_json_schema
    required = schema.get("required", [])
    kept = {name: value for name, value in schema.get("properties", {}).items() if name in required}
    sentences = re.split(r"(?<=[.:;]) ", tool.description or "")
    return replace(
        tool,
        description=" ".join(sentences[:DESCRIPTION_SENTENCES]),
        parameters_json_schema={**schema, "properties": kept},
    )
