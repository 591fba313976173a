"""`PlainTurns`: makes the turns of a run as pydantic-ai does, in half the time, while nothing unusual happens.

pydantic-ai's graph takes most of a turn for what a run of ours rarely has: tools that are revealed later, instructions that
change, capabilities of a user, retries. So a run whose answer is a text begins here, with the same hooks, and pydantic-ai
takes over, with the conversation so far, as soon as a response needs it: a call of an unknown tool or with wrong arguments,
or a provider that is not ready.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from opentelemetry.trace import get_current_span
from pydantic import ValidationError
from pydantic_ai import RunContext, ToolDenied
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import ModelRetry, RetryModelRequest, UnexpectedModelBehavior, UserError
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    NativeToolCallPart,
    RetryFeedbackPart,
    RetryInfo,
    TextPart,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    repair_messages,
)
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters
from pydantic_ai.result import FinalResult
from pydantic_ai.settings import ModelSettings, merge_model_settings
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_ai.usage import RunUsage
from pydantic_graph import End

from freeact_sub.agents.turn.borrowed_spans import is_instrumented_everywhere
from freeact_sub.agents.turn.hooks import RunHooks
from freeact_sub.agents.turn.turns import COUNTED_HERE, Turns


def is_traced() -> bool:
    """Somebody looks at pydantic-ai's spans, which only its graph makes."""
    return is_instrumented_everywhere() or get_current_span().is_recording()


@dataclass(repr=False, kw_only=True)
class _Context(RunContext[Any]):
    """The context for hooks and tools; what is enqueued waits in `Turns.steering`."""

    turns: Turns
    over: list[bool] = field(default_factory=list)
    """Not empty: the run has made its last request. A list, because copies share it."""

    def enqueue(self, *content: Any, priority: Any = "asap") -> None:
        """See pydantic-ai. Args: content: one text."""
        del priority
        if self.over:
            raise UserError("the run has made its last request")
        self.turns.steering.append(content[0])


_Call: TypeAlias = tuple[ToolCallPart, ToolsetTool[Any], dict[str, Any]]
"""A call, and its arguments, which are valid."""


class PlainTurns:
    """The turns of one run."""

    def __init__(
        self,
        turns: Turns,
        model: Model,
        *,
        hooks: RunHooks,
        before: AbstractCapability[Any],
        toolsets: Sequence[AbstractToolset[Any]],
        instructions: str,
        settings: ModelSettings | None,
        history: Sequence[ModelMessage],
    ) -> None:
        """Nothing is requested yet.

        Args:
            turns: The run's.
            model: Makes the requests.
            hooks: All our hooks.
            before: Comes before them.
            toolsets: All tools; of two with one name the first counts.
            instructions: The system prompt.
            settings: Of the model, over its own.
            history: The conversation so far.
        """
        self._turns, self._model, self._hooks, self._before, self._toolsets = turns, model, hooks, before, toolsets
        self._instructions = instructions
        self._settings = merge_model_settings(model.settings, settings)
        self.messages = list(history)
        """The conversation, with which pydantic-ai goes on."""
        self._retries = 0
        """Of the whole run, as pydantic-ai counts them; `Turns` bounds those in a row."""
        self._tools: dict[str, ToolsetTool[Any]] = {}
        conversation = next((message.conversation_id for message in reversed(history) if message.conversation_id), None)
        self._context = _Context(
            deps=None,
            model=model,
            usage=RunUsage(),
            messages=self.messages,
            run_id=str(uuid.uuid4()),
            conversation_id=conversation or str(uuid.uuid4()),
            turns=turns,
        )

    async def run(self, prompt: str | Sequence[UserContent]) -> str | None:
        """Make turns to the end of the run. Returns the answer. None: pydantic-ai must go on."""
        try:
            return await self._turns_from([UserPromptPart(prompt)])
        except BaseException:
            self._context.over.append(True)  # nobody reads a message any more
            raise

    async def _turns_from(self, parts: list[ModelRequestPart]) -> str | None:
        while True:
            response, advice = await self._respond(parts)
            if advice is not None:
                parts = [self._retry(advice)]
            elif response.state == "suspended":  # the provider is not ready
                return None
            elif response.tool_calls:
                calls = [self._call(part) for part in response.tool_calls]
                if None in calls:
                    return None
                parts = await self._answers([call for call in calls if call is not None])
            else:
                answer = await self._end(_answer_of(response))
                if answer is not None:
                    return answer
                parts = []

    async def _respond(self, parts: list[ModelRequestPart]) -> tuple[ModelResponse, ModelRetry | None]:
        """Make a request. Returns its response, and what the model must do better."""
        turns, hooks = self._turns, self._hooks
        parts += [UserPromptPart(text) for text in turns.taken_steering()]
        message = self._message(parts)
        self.messages.append(message)
        self._context.run_step += 1
        tools: dict[str, ToolsetTool[Any]] = {}
        for toolset in self._toolsets:
            tools |= {name: tool for name, tool in (await toolset.get_tools(self._context)).items() if name not in tools}
        offered = await hooks.prepare_tools(self._context, [tool.tool_def for tool in tools.values()])
        self._tools = {tool.name: tools[tool.name] for tool in offered}
        request = ModelRequestContext(
            model=self._model,
            messages=list(self.messages),
            model_settings=self._settings,
            model_request_parameters=ModelRequestParameters(
                function_tools=offered, instruction_parts=[InstructionPart(self._instructions)]
            ),
        )
        request = await self._before.before_model_request(self._context, request)
        request = await hooks.before_model_request(self._context, request)
        message.instructions = InstructionPart.join(request.model_request_parameters.instruction_parts or [])
        response = await hooks.wrap_model_request(self._context, request_context=request, handler=self._requested)
        advice: ModelRetry | None = None
        try:
            if response.state != "suspended":
                response = await hooks.after_model_request(self._context, request_context=request, response=response)
        except ModelRetry as retry:
            advice = retry
        response.run_id, response.conversation_id = self._context.run_id, self._context.conversation_id
        response.model_id = response.model_id or self._model.model_id
        self.messages.append(response)
        return response, advice

    async def _requested(self, request: ModelRequestContext) -> ModelResponse:
        """Make a request, and make it again where the conversation was too long and is shorter now."""
        while True:
            request = await self._before.prepare_model_request(self._context, request)
            try:
                return await _requested(request)
            except Exception as error:  # noqa: BLE001  # the hook raises what it cannot mend
                with contextlib.suppress(RetryModelRequest):
                    return await self._before.on_model_request_error(self._context, request_context=request, error=error)

    def _message(
        self, parts: list[ModelRequestPart], *, state: Literal["complete", "interrupted"] = "complete"
    ) -> ModelRequest:
        return ModelRequest(
            parts=parts,
            instructions=self._instructions,
            timestamp=datetime.now(UTC),
            run_id=self._context.run_id,
            conversation_id=self._context.conversation_id,
            state=state,
        )

    def _retry(self, advice: ModelRetry) -> RetryFeedbackPart:
        self._retries += 1
        return RetryFeedbackPart(
            advice.message, retry=RetryInfo("model_retry", attempt=self._retries, max_retries=COUNTED_HERE)
        )

    async def _end(self, text: str) -> str | None:
        """End the run with an answer. Returns None if it goes on, because somebody has sent a message."""
        if not text:  # only of a last report: all others have been checked
            raise self._turns.ended or UnexpectedModelBehavior("the model sent nothing")
        await asyncio.sleep(0)  # who reads the events of the last response can still say something to it
        end = await self._hooks.after_node_run(self._context, node=None, result=End(FinalResult(text)))
        if self._turns.steering:
            return None
        self._context.over.append(True)
        answer: str = end.data.output
        return answer

    def _call(self, part: ToolCallPart) -> _Call | None:
        """Validate a call. None: the model has to be told what is wrong with it."""
        tool = self._tools.get(part.tool_name)
        if tool is None:
            return None
        try:
            if isinstance(part.args, str):
                args = tool.args_validator.validate_json(part.args or "{}")
            else:
                args = tool.args_validator.validate_python(part.args or {})
        except ValidationError:
            return None
        return part, tool, args

    async def _answers(self, calls: list[_Call]) -> list[ModelRequestPart]:
        """Make the calls side by side. If one ends the run, the answers of those that have ended stay in the history."""
        answers: dict[int, ModelRequestPart] = {}

        async def make(index: int, call: _Call) -> None:
            answers[index] = await self._answer(*call)

        try:
            if len(calls) == 1:
                await make(0, calls[0])
            else:
                async with asyncio.TaskGroup() as group:
                    for index, call in enumerate(calls):
                        group.create_task(make(index, call), name=call[0].tool_name)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors.exceptions[0].__cause__
        finally:
            parts = [answers[index] for index in sorted(answers)]
            if len(parts) < len(calls):
                self.messages.append(self._message(parts, state="interrupted"))
        return parts

    async def _answer(self, part: ToolCallPart, tool: ToolsetTool[Any], valid: dict[str, Any]) -> ToolReturnPart:
        context = replace(self._context, tool_call_id=part.tool_call_id, tool_name=part.tool_name)
        what: dict[str, Any] = {"call": part, "tool_def": tool.tool_def}

        async def run(args: dict[str, Any]) -> Any:
            try:
                return await tool.toolset.call_tool(part.tool_name, args, context, tool)
            except Exception as error:  # noqa: BLE001  # border: any error of a tool is a result, or ends the run
                return await self._hooks.on_tool_execute_error(context, **what, args=args, error=error)

        result = await self._hooks.wrap_tool_execute(context, **what, args=valid, handler=run)
        if isinstance(result, ToolDenied):
            return ToolReturnPart(part.tool_name, result.message, part.tool_call_id, outcome="denied")
        if not isinstance(result, ToolReturn):
            result = ToolReturn(result)
        return ToolReturnPart(part.tool_name, result.return_value, part.tool_call_id, metadata=result.metadata)


def _answer_of(response: ModelResponse) -> str:
    """The text after the last call that the provider has made, for example a search; before it, if none follows."""
    before, text = "", ""
    for part in response.parts:
        if isinstance(part, TextPart):
            text += part.content
        elif isinstance(part, NativeToolCallPart):
            before, text = text or before, ""
    return text or before


async def _requested(request: ModelRequestContext) -> ModelResponse:
    """Make a request in the form that its model can read: a text instead of pictures, for example."""
    model, parameters, messages = request.model, request.model_request_parameters, repair_messages(request.messages)
    prepared = model.prepare_messages(messages, parameters)
    return await model_request(
        model,
        messages if prepared is messages else repair_messages(prepared),
        model_settings=request.model_settings,
        model_request_parameters=parameters,
    )
