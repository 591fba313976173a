"""A model with a context window: it counts what it is sent, as a provider does, and refuses what is too long."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolCallPart, ToolReturnPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.usage import RequestUsage

from freeact_sub.testing import Script, ScriptedModel

CHARS_PER_TOKEN = 4


def text_of(messages: Sequence[ModelMessage]) -> str:
    """All that the messages say."""
    return "\n".join(_text(part) for message in messages for part in message.parts)


def is_summary_request(messages: Sequence[ModelMessage]) -> bool:
    """Whether a conversation is to be summarised."""
    return "<conversation>" in text_of(messages)


class WindowedModel(ScriptedModel):
    """A scripted model that fails where a real one would refuse the request."""

    def __init__(self, script: Script, *, window_tokens: int) -> None:
        super().__init__(script, chunk_chars=2_000)
        self.window_tokens = window_tokens
        self.largest = 0
        """Tokens of the largest request."""
        self.summaries = 0
        """Requests for a summary."""

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> Any:
        """See pydantic-ai."""
        size = self._check(messages, model_request_parameters)
        response = await super().request(messages, model_settings, model_request_parameters)
        response.usage = RequestUsage(input_tokens=size, output_tokens=response.usage.output_tokens)
        return response

    @asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
    ) -> AsyncIterator[Any]:
        """See pydantic-ai."""
        size = self._check(messages, model_request_parameters)
        async with super().request_stream(messages, model_settings, model_request_parameters, run_context) as stream:
            stream._usage = RequestUsage(input_tokens=size)  # noqa: SLF001  # pydantic-ai's: a model of one's own sets it
            yield stream

    def _check(self, messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
        check_pairs(messages)
        told = "".join(part.content for part in parameters.instruction_parts or [])
        tools = "".join(f"{tool.name}{tool.description}{tool.parameters_json_schema}" for tool in parameters.function_tools)
        size = len(text_of(messages) + told + tools) // CHARS_PER_TOKEN
        self.largest = max(self.largest, size)
        self.summaries += is_summary_request(messages)
        if size > self.window_tokens:
            raise ModelHTTPError(400, self.model_name, "prompt is too long: maximum context length exceeded")
        return size


def check_pairs(messages: Sequence[ModelMessage]) -> None:
    """Each result follows its call, and each call has its result in the next message."""
    open_calls: set[str] = set()
    for message in messages:
        if isinstance(message, ModelRequest):
            results = {part.tool_call_id for part in message.parts if isinstance(part, ToolReturnPart)}
            assert results == open_calls
            open_calls = set()
        else:
            assert not open_calls
            open_calls = {part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)}
    assert not open_calls


def _text(part: Any) -> str:
    if isinstance(part, ToolReturnPart):
        return part.model_response_str()
    if isinstance(part, ToolCallPart):
        return part.args_as_json_str()
    return str(getattr(part, "content", ""))
