"""`CodeActionsModel`: a model that acts by code, by tool calls or by blocks. The agent's loop sees tool calls only.

It is the only wrapper around a pydantic-ai model, and its `CodeActionsStream` the only class between a provider's stream and
the loop. A well-formed reply passes as it is, event by event. At the first piece that is not, or may not be, the repairs of
`repairs` begin, with all that came before. Only arguments that cannot be right are put right (`arguments`).

Replies break off: the connection breaks in their middle, they have no end (`wire`), or nothing comes for `stall_seconds`
(`Silence`). Nothing of a reply is acted on before its end, so the request is made again. The text of a broken reply that was
shown stays shown; only the last reply counts. `sending` decides when a request is sent.

The way a model acts is decided once for the model and never by a reply: `auto` is `block` with the small profile and
where a server refuses tools, else `tool`. In block mode a step is a fenced block, which becomes a call here (`blocks`).

The small profile gives models with a small context less to read. Tools are offered with required parameters and a short
description; those whose definition (`tools/NAME.json`) says so are left out. The setting `profile` chooses it, else the
server's word on the model's context: llama-server tells it with its list of models (`meta.n_ctx`), vLLM too
(`max_model_len`). Other servers do not; then the full profile counts.
"""

import copy
import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from freeact_sub.errors import ConfigError
from freeact_sub.models.arguments import Schemas, repaired
from freeact_sub.models.blocks import HeldBlocks, as_text, parts_from_text, without_text_after_calls, without_tools
from freeact_sub.models.borrowed_stream import (
    ADDED,
    UnhurriedModel,
    closed_after,
    copy_end,
    http_client_of,
    keep,
    without_tags,
)
from freeact_sub.models.failures import has_nothing, refuses_tools
from freeact_sub.models.observers import Attempt, Meter, current_bill, models_in
from freeact_sub.models.sending import Admission, Lane, Silence, raise_overflow, sent_settings
from freeact_sub.modes import CodeActions, Profile
from freeact_sub.text import whole_text, whole_value

if TYPE_CHECKING:
    from freeact_sub.models.repairs import OddReply

USUAL_TAGS: Final = (("<think>", "</think>"),)
"""Tags of thoughts that any model may write."""
SMALL_CONTEXT_TOKENS: Final = 16_384
"""Largest number of tokens in a small context."""
DESCRIPTION_SENTENCES: Final = 2
ASK_SECONDS: Final = 5.0
"""Seconds that a server may take to list its models."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """A request as the model gets it, with the means to read the reply."""

    messages: list[ModelMessage]
    parameters: ModelRequestParameters
    tools: Schemas
    blocks: bool
    """Whether the model acts by blocks; else text is text."""


class CodeActionsModel(UnhurriedModel):
    """A model that acts by code: its text becomes tool calls."""

    def __init__(
        self,
        model: Model,
        *,
        lane: Lane,
        patience_seconds: float,
        stall_seconds: float,
        code_actions: CodeActions,
        profile: Profile | None = "full",
    ) -> None:
        """Wrap a model.

        Args:
            model: The model.
            lane: The lane of its provider.
            patience_seconds: For how long a request may pause.
            stall_seconds: As in `Config`.
            code_actions: As in `Config`.
            profile: As in `Config`. None: chosen by the context that the server tells.
        """
        super().__init__(model)
        self.lane, self.patience_seconds, self.stall_seconds = lane, patience_seconds, stall_seconds
        self.prompt_profile = profile
        """The profile; the first request chooses it, where it was None."""
        self.context_tokens: int | None = None
        """The model's context, where the profile is not `full` and the server tells it."""
        self._asked_server = False
        self._asking_server = anyio.Lock()
        self.code_actions: CodeActions = code_actions
        """The way to act; becomes `block` where `auto` found that the server refuses tools."""

    @property
    def acts_by_blocks(self) -> bool:
        """Whether the model acts by blocks; for `auto`, known after the first request."""
        return self.code_actions == "block" or (self.code_actions == "auto" and self.prompt_profile == "small")

    @property
    def context_window(self) -> int | None:
        """The model's context. The server's word counts more than known names of models."""
        return self.context_tokens or super().context_window

    def acting_by(self, code_actions: CodeActions) -> "CodeActionsModel":
        """Return the model with another way to act."""
        other = copy.copy(self)
        other.code_actions = code_actions
        return other

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        await self._choose_profile()
        while True:
            prepared = self._prepare(messages, model_request_parameters)
            try:
                response = await self._answer(prepared, sent_settings(model_settings, self.wrapped))
                break
            except ModelHTTPError as error:
                if not self._goes_on_in_blocks(prepared, error):
                    raise
        begun: list[ModelResponsePart] = []
        if not all(is_well_formed(PartStartEvent(index=n, part=part), begun) for n, part in enumerate(response.parts)):
            from freeact_sub.models.repairs import in_order  # noqa: PLC0415  # most answers need none

            response = in_order(response)
        return _with_parts(response, _read(response, prepared))

    async def _answer(self, prepared: _Prepared, settings: ModelSettings | None) -> ModelResponse:
        meter, bill = Meter(self.model_name), current_bill()
        admission = Admission(self.lane, meter, self.patience_seconds)
        while True:
            attempt = Attempt(model=self.wrapped, messages=prepared.messages, parameters=prepared.parameters)
            async with admission.granted():
                bill.sent(attempt)
                try:
                    attempt.response = await self.wrapped.request(prepared.messages, settings, prepared.parameters)
                except Exception as error:  # noqa: BLE001  # border: of clients; what is not mended is raised
                    bill.failed(error)
                    raise_overflow(error)
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
        await self._choose_profile()
        async with AsyncExitStack() as connection:
            while True:
                prepared = self._prepare(messages, model_request_parameters)
                answer = CodeActionsStream(
                    model_request_parameters=model_request_parameters,
                    acting=self,
                    connection=connection,
                    prepared=prepared,
                    settings=model_settings,
                    run_context=run_context,
                )
                try:
                    await answer.begin()
                    break
                except ModelHTTPError as error:
                    if not self._goes_on_in_blocks(prepared, error):
                        raise
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

    def _prepare(self, messages: list[ModelMessage], parameters: ModelRequestParameters) -> _Prepared:
        if self.prompt_profile == "small":
            parameters = trimmed(parameters)
        blocks = self.acts_by_blocks
        offered = [*parameters.function_tools, *parameters.output_tools]
        return _Prepared(
            messages=as_text(without_text_after_calls(messages)) if blocks else messages,
            parameters=without_tools(parameters) if blocks else parameters,
            tools={tool.name: tool.parameters_json_schema for tool in offered},
            blocks=blocks,
        )

    def _goes_on_in_blocks(self, prepared: _Prepared, error: ModelHTTPError) -> bool:
        if prepared.blocks or not refuses_tools(error):
            return False
        if self.code_actions == "auto":
            self.code_actions = "block"
        return self.acts_by_blocks  # another request may have found it out since this one was sent


@dataclass(kw_only=True)
class CodeActionsStream(StreamedResponse):
    """One request whose answer is streamed, and sent until an answer has come whole.

    A well-formed reply passes as it is, others repaired. Its blocks become calls once it has ended.
    """

    acting: CodeActionsModel
    connection: AsyncExitStack
    """Holds the connection of the answer; closing it ends the request."""
    prepared: _Prepared
    settings: ModelSettings | None
    run_context: RunContext[Any] | None

    def __post_init__(self) -> None:
        self._meter, self._bill = Meter(self.acting.model_name), current_bill()
        self._admission = Admission(self.acting.lane, self._meter, self.acting.patience_seconds)
        self._first_event_seconds = (self.settings or {}).get("first_event_timeout")
        self._parts: list[ModelResponsePart] | None = None
        """The final parts of the reply. None: it has not ended."""
        self._following = 0
        """Index of the next new part."""

    async def begin(self) -> None:
        """Send the request until an answer begins. The parts of broken replies stay in front of it."""
        while True:
            try:
                self._stream = await self._send()
                break
            except Exception as error:  # noqa: BLE001  # border: as above
                await self._failed(error)
        self._attempt.stream = self._stream
        tags, self._drops_blanks = without_tags(self._stream)
        self._tags = USUAL_TAGS if tags is None else (tags, *USUAL_TAGS)
        self._first_index = self._following
        self._seen: list[ModelResponseStreamEvent] = []
        """All events so far, for repairs that begin in the middle of the reply. Empty: they have begun."""
        self._begun: list[ModelResponsePart] = []
        """The parts, as they began, while the reply is well-formed."""
        self._odd: OddReply | None = None
        """Repairs of the reply. None: it is well-formed so far."""
        self._held = HeldBlocks() if self.prepared.blocks else None

    async def _send(self) -> StreamedResponse:
        model, messages, parameters = self.acting.wrapped, self.prepared.messages, self.prepared.parameters
        if any(map(http_client_of, models_in(model))):
            from freeact_sub.models.wire import read_streams  # noqa: PLC0415  # for HTTP clients that we know

            read_streams(model)
        await self.connection.enter_async_context(self._admission.granted())
        self._attempt = Attempt(model=model, messages=messages, parameters=parameters)
        self._silence = Silence(
            model.model_name, first_event_seconds=self._first_event_seconds, stall_seconds=self.acting.stall_seconds
        )
        self._bill.sent(self._attempt)
        began, settings = datetime.now(UTC), sent_settings(self.settings, model)
        with self._silence.before_answer():
            try:
                stream = model.request_stream(messages, settings, parameters, self.run_context)
                return await self.connection.enter_async_context(stream)
            except UnexpectedModelBehavior as error:
                if not has_nothing(error):
                    raise
        nothing = ModelResponse(
            parts=[],
            model_name=model.model_name,
            timestamp=began,
            provider_name=model.system,
            provider_url=model.base_url,
            finish_reason="stop",
        )
        empty = CompletedStreamedResponse(nothing, model_request_parameters=parameters)
        empty.finish_reason = "stop"
        return empty

    async def _failed(self, error: Exception) -> None:
        """Return if the request should be made again."""
        self._bill.failed(error)
        if self.cancelled:
            raise error
        await self.connection.aclose()
        raise_overflow(error)
        self._admission.failed(error)

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        try:
            while True:
                try:
                    async with closed_after(self._silence.watched(self._stream)) as events:
                        async for event in events:
                            if isinstance(event, ADDED):
                                continue
                            self._meter.piece()
                            for passed in self._passed(event):
                                is_piece = isinstance(passed, PartDeltaEvent) and not self._first_index
                                yield keep(self, passed if is_piece else self._placed(passed))
                    break
                except ModelAPIError as error:
                    await self._failed(error)
                    self._meter.again()
                    await self.begin()
        finally:
            copy_end(self, self._stream)
        self._attempt.response = self._stream.get()
        self._admission.answered()
        rest = [] if self._odd is None else self._odd.rest()
        response = self._whole()
        self._parts = _read(response, self.prepared)
        if self._held is not None:
            rest = [held for event in rest for held in self._held.passed(event)]
            rest += self._held.rest(text_of(response.parts), self._parts)
        for event in rest:
            yield keep(self, self._placed(event))

    def _passed(self, event: ModelResponseStreamEvent) -> Sequence[ModelResponseStreamEvent]:
        """Return the events to pass on for one of the model's stream."""
        passed: Sequence[ModelResponseStreamEvent] = (event,)
        if self._odd is None and is_well_formed(event, self._begun, self._tags, drops_blanks=self._drops_blanks):
            self._seen.append(event)
        else:
            passed = self._repairs().passed(event)
        return passed if self._held is None else [held for each in passed for held in self._held.passed(each)]

    def _repairs(self) -> "OddReply":
        if self._odd is None:
            from freeact_sub.models.repairs import OddReply  # noqa: PLC0415  # most replies need none

            self._odd = OddReply(self._seen, self._tags, drops_blanks=self._drops_blanks)
            self._seen = []
        return self._odd

    def _placed(self, event: ModelResponseStreamEvent) -> ModelResponseStreamEvent:
        """Return the event with its index behind the parts of broken replies."""
        if self._first_index and isinstance(event, PartStartEvent | PartDeltaEvent):
            event = replace(event, index=event.index + self._first_index)
        if isinstance(event, PartStartEvent):
            self._following = max(self._following, event.index + 1)
        return event

    def _whole(self) -> ModelResponse:
        response = self._stream.get()
        return response if self._odd is None else self._odd.whole(response)

    def get(self) -> ModelResponse:
        response = self._whole()
        return response if self._parts is None else _with_parts(response, self._parts)

    async def close_stream(self) -> None:
        await self._stream.cancel()

    def get_stream_cancel_errors(self) -> tuple[type[BaseException], ...]:
        return self._stream.get_stream_cancel_errors()

    @property
    def usage(self) -> RequestUsage:
        return self._stream.usage

    @property
    def model_name(self) -> str:
        return self._stream.model_name

    @property
    def provider_name(self) -> str | None:
        return self._stream.provider_name

    @property
    def provider_url(self) -> str | None:
        return self._stream.provider_url

    @property
    def timestamp(self) -> datetime:
        return self._stream.timestamp


def is_well_formed(
    event: ModelResponseStreamEvent,
    begun: list[ModelResponsePart],
    tags: Sequence[tuple[str, str]] = (),
    *,
    drops_blanks: bool = False,
) -> bool:
    """Whether `OddReply` would pass an event on as it is, after others that are well-formed.

    Args:
        event: The newest of a reply.
        begun: The parts that have begun; one that begins now is added.
        tags: The tags of thoughts that a text may begin with.
        drops_blanks: Blanks before the first word of a text are dropped.
    """
    match event:
        case PartStartEvent(index=index, part=part):
            is_next = index == len(begun)
            begun.append(part)
            return is_next and _begins_well(part, begun[:-1], tags, drops_blanks=drops_blanks)
        case PartDeltaEvent(index=index, delta=delta) if index < len(begun):
            part = begun[index]
            match delta:
                case TextPartDelta(content_delta=text):
                    return isinstance(part, TextPart) and _is_whole(text)
                case ThinkingPartDelta(content_delta=text):
                    return _is_whole(text)
                case ToolCallPartDelta(tool_name_delta=name, args_delta=args, tool_call_id=call_id):
                    is_more = name is None and isinstance(part, ToolCallPart) and call_id == part.tool_call_id
                    return is_more and not isinstance(args, dict) and _is_whole(args)
    return False


def _begins_well(
    part: ModelResponsePart, before: Sequence[ModelResponsePart], tags: Sequence[tuple[str, str]], *, drops_blanks: bool
) -> bool:
    match part:
        case TextPart(content=text):
            start = text.lstrip()
            may_be_tag = any(opening.startswith(start) or start.startswith(opening) for opening, _ in tags)
            return _is_whole(text) and not may_be_tag and not (drops_blanks and start != text)
        case ThinkingPart(content=text):
            return _is_whole(text)
        case ToolCallPart(tool_name=name, args=args, tool_call_id=call_id):
            is_new = not any(isinstance(one, ToolCallPart) and one.tool_call_id == call_id for one in before)
            return is_new and isinstance(call_id, str) and all(map(_is_whole, (name, call_id, args)))
    return True


def _is_whole(value: Any) -> bool:
    return (
        value.isascii() or bool(whole_text(value) == value) if isinstance(value, str) else bool(whole_value(value) == value)
    )


def _read(response: ModelResponse, prepared: _Prepared) -> list[ModelResponsePart]:
    complete = response.state == "complete" and response.finish_reason != "length"
    return read_reply(response.parts, prepared.tools, blocks=prepared.blocks, complete=complete)


def _with_parts(response: ModelResponse, parts: list[ModelResponsePart]) -> ModelResponse:
    return response if parts == list(response.parts) else replace(response, parts=parts)


def read_reply(
    parts: Sequence[ModelResponsePart], tools: Schemas, *, blocks: bool, complete: bool = True
) -> list[ModelResponsePart]:
    """Turn a reply into the parts that the agent acts on: text, and tool calls.

    Args:
        parts: The reply.
        tools: The tools that are offered.
        blocks: Blocks of Python are calls. False: all text stays text.
        complete: False: the reply was cut off, so that the part at its end is not run.
    """
    if not complete:
        parts = [part for part in parts if not _is_cut(part, at_end=part is parts[-1])]
    if not blocks or any(isinstance(part, ToolCallPart) for part in parts):
        return [_repair_arguments(part, tools) for part in parts]
    made = parts_from_text(text_of(parts), tools, complete=complete)
    if not any(isinstance(part, ToolCallPart) for part in made):
        return list(parts)
    return [*(part for part in parts if not isinstance(part, TextPart)), *made]


def text_of(parts: Iterable[Any]) -> str:
    """Return the text of a reply."""
    return "".join(part.content for part in parts if isinstance(part, TextPart))


def _is_cut(part: ModelResponsePart, *, at_end: bool) -> bool:
    """Whether the arguments of a call are cut off. Args: at_end: the call comes last, so no arguments are cut off too."""
    if not isinstance(part, ToolCallPart) or isinstance(part.args, dict) or not (part.args or at_end):
        return False
    try:
        return not isinstance(json.loads(part.args or ""), dict)
    except (ValueError, RecursionError):
        return True


def _repair_arguments(part: ModelResponsePart, tools: Schemas) -> ModelResponsePart:
    if not isinstance(part, ToolCallPart) or part.tool_name not in tools:
        return part
    args = repaired(part.args, tools[part.tool_name])
    return part if args is part.args else replace(part, args=args)


async def context_tokens(model: Model) -> int | None:
    """Return the size of the model's context, if the server tells it."""
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
    """Return the parameters of a request with shorter tools. Tools for structured output stay as they are."""
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


def acting_by(model: Model, code_actions: CodeActions) -> Model:
    """Return a model from `usable_model` with another way to act."""
    if isinstance(model, FallbackModel):
        other = copy.copy(model)
        other.models = [acting_by(inner, code_actions) for inner in model.models]
        return other
    return model.acting_by(code_actions) if isinstance(model, CodeActionsModel) else model


def profile_of(model: Model) -> Profile:
    """Return the profile of a model from `usable_model`; `full` before the first request, while it is not known."""
    acting = _acting(model)
    return (acting.prompt_profile if acting is not None else None) or "full"


def acts_by_blocks(model: Model) -> bool:
    """Whether a model from `usable_model` acts by blocks; with `auto` this is known after the first request."""
    acting = _acting(model)
    return acting is not None and acting.acts_by_blocks


def _acting(model: Model) -> CodeActionsModel | None:
    """Return the wrapper that decides how a model, or the first of a fallback chain, acts."""
    first = model.models[0] if isinstance(model, FallbackModel) else model
    return first if isinstance(first, CodeActionsModel) else None


NO_MODEL: Final = "this agent has no model: only its kernel can be used"


class NoModel(Model[Any]):
    """A model for agents that need none: `Agent(model=NoModel())` runs code, and branches and compares kernels.

    Each request to it raises ConfigError.
    """

    @property
    def model_name(self) -> str:
        return "none"

    @property
    def system(self) -> str:
        return "no model"

    async def request(self, *_: Any, **__: Any) -> Any:
        raise ConfigError(NO_MODEL)

    @asynccontextmanager
    async def request_stream(self, *_: Any, **__: Any) -> AsyncGenerator[StreamedResponse]:
        raise ConfigError(NO_MODEL)
        yield
