"""`CodeActionsModel`: a model that acts by code, by tool calls or by blocks. The agent's loop sees tool calls only.

It stands around any pydantic-ai model. How a model acts is decided once for the model and never by what a reply says: `auto`
is `block` with the small profile and where a server refuses tools, else `tool`. What the model sends goes through
`read_reply`.

In block mode (`code_actions = "block"`: for models without tool calls) a step is a fenced Python block; an answer has none.
No tool is offered as a tool. What the system prompt says instead stands here, and so does the history as such a model reads
it: its own calls as the blocks that it wrote, their results as text from the user. Tools other than the cell are called like
Python functions, alone in a block; `replies` finds them there. Only a block that is marked as Python is run.

There a reply is streamed on as long as it is words for certain (`GrowingReply`); from the first block of Python on it is
held back until it has ended. The first event is passed on at once, if need be without text: whoever waits for it knows that
the model answers.

The small profile gives models with a small context less to read. Tools are offered with required parameters and a short
description; those whose definition (`tools/NAME.json`) says so are left out. It is chosen by the setting `profile`, else by
what the server says of the model's context: llama-server tells it with its list of models (`meta.n_ctx`), vLLM too
(`max_model_len`). Other servers do not; then the full profile counts.
"""

import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import anyio
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    CompactionPart,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from freeact_sub.cells import CELL_TOOL
from freeact_sub.models.arguments import Schemas
from freeact_sub.models.borrowed_stream import ADDED, WrappedStream, closed_after
from freeact_sub.models.refusals import refuses_tools
from freeact_sub.models.replies import WRITTEN, GrowingReply, read_reply, text_of, without_text_after_calls
from freeact_sub.modes import CodeActions, Profile

SMALL_CONTEXT_TOKENS: Final = 16_384
"""A context of at most this many tokens is small."""
DESCRIPTION_SENTENCES: Final = 2
ASK_SECONDS: Final = 5.0
"""A server that takes longer to list its models is not waited for."""
logger = logging.getLogger(__name__)
PROMPT: Final = """\
You act by writing Python code. To take a step, write one sentence and one fenced block, and nothing behind the block. For \
example:

I read the file.
```python
print(open("data.csv").read())
```

The block is run in your IPython kernel, and the next message shows you what it printed. Everything is done this way: \
looking at files, computing, counting, writing and correcting files. Never tell the user how to do it and never say \
what the code would print: write the block, and wait for its result. When the results that you have been shown answer \
the user, write the answer as plain text without such a block.
A block that is marked ```python is run, always; it is the only way to run code or to call a tool. Code that is only to be \
shown to the user, mark ```text."""

SUMMARISED: Final = "What came after that is summarised here:"

FUNCTIONS_PROMPT: Final = """
Tools are called like functions, each alone in a block. For example:

I use the tool {name}.
```python
{call}
```

These are the tools; use one where the user asks for it, or where it helps:"""


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


def without_tools(parameters: ModelRequestParameters) -> ModelRequestParameters:
    """The parameters without tools; the instructions say in words how to act."""
    tools = [*parameters.function_tools, *parameters.output_tools]
    others = [tool for tool in tools if tool.name != CELL_TOOL]
    prompt = PROMPT if len(others) < len(tools) else ""
    if others:
        example = next((tool for tool in others if _required(tool)), others[0])
        arguments = ", ".join(f'{name}="…"' for name in _required(example))
        prompt += FUNCTIONS_PROMPT.format(name=example.name, call=f"{example.name}({arguments})")
        prompt += "".join(f"\n- {_signature(tool)}: {tool.description or ''}" for tool in others)
    instructions = [*(parameters.instruction_parts or []), *([InstructionPart(content=prompt)] if prompt else [])]
    return replace(
        parameters,
        function_tools=[],
        output_tools=[],
        output_mode="text",
        allow_text_output=True,
        instruction_parts=instructions or None,
    )


def _signature(tool: ToolDefinition) -> str:
    required = _required(tool)
    names = [name if name in required else f"{name}=…" for name in tool.parameters_json_schema.get("properties", {})]
    return f"{tool.name}({', '.join(names)})"


def _required(tool: ToolDefinition) -> Sequence[str]:
    return tuple(tool.parameters_json_schema.get("required", ()))


def as_text(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The history as text, for a model that knows no tool messages."""
    return [_request(message) if isinstance(message, ModelRequest) else _response(message) for message in messages]


def _response(message: ModelResponse) -> ModelResponse:
    if not message.tool_calls:
        return message
    kept: list[ModelResponsePart] = []
    for part in message.parts:
        if not isinstance(part, ToolCallPart):
            kept.append(part)
        elif kept and isinstance(kept[-1], TextPart):
            kept[-1] = replace(kept[-1], content=f"{kept[-1].content.rstrip()}\n{_block(part)}")
        else:
            kept.append(TextPart(_block(part)))
    return replace(message, parts=kept)


def _block(call: ToolCallPart) -> str:
    args = call.args_as_dict()
    code = args.get("code")
    if call.tool_name != CELL_TOOL or not isinstance(code, str):
        code = f"{call.tool_name}({', '.join(f'{name}={value!r}' for name, value in args.items())})"
    return f"```python\n{code.strip()}\n```"


def _request(message: ModelRequest) -> ModelRequest:
    if not any(isinstance(part, ToolReturnPart | CompactionPart) for part in message.parts):
        return message
    parts: list[ModelRequestPart] = []
    said: list[UserContent] = []
    for part in message.parts:
        if isinstance(part, ToolReturnPart):
            said += _result(part)
        elif isinstance(part, UserPromptPart):
            said += [part.content] if isinstance(part.content, str) else part.content
        elif isinstance(part, CompactionPart):
            said.append(f"{SUMMARISED}\n{part.content}")
        else:
            parts.append(part)
    # one message: chat templates of small models often insist that user and assistant take turns
    texts = [item for item in said if isinstance(item, str)]
    others = [item for item in said if not isinstance(item, str)]
    text = "\n\n".join(texts)
    parts.append(UserPromptPart([text, *others] if others else text))
    return replace(message, parts=parts)


def _result(part: ToolReturnPart[Any]) -> list[UserContent]:
    what = "Your block was run" if part.tool_name == CELL_TOOL else f"{part.tool_name} was called"
    if part.outcome == "denied":
        what = "Your block was not run" if part.tool_name == CELL_TOOL else f"{part.tool_name} was not called"
    elif part.outcome == "retried":
        what = "Your block could not be read" if part.tool_name == CELL_TOOL else f"{part.tool_name} was not called"
    items = part.content_items(mode="str")
    texts = [item for item in items if isinstance(item, str)]
    files = [item for item in items if not isinstance(item, str)]
    return [f"{what}. The result:\n" + "\n".join(texts), *files]
