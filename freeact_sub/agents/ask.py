"""Questions to a model beside the conversation, without tools, from a tool, a program or a cell (`await agent.ask(...)`).

The asking agent pays for the request. It goes to the model directly, because creating a pydantic-ai agent and running its
graph takes several times as long as the host's own work for a question. pydantic-ai takes over, with the conversation so
far, where it is needed: if a response is not a complete answer (cut off, empty, of the wrong type, or the provider is not
ready), and for traced questions, so that the spans are pydantic-ai's own.

A typed answer is described by a JSON schema from the kernel, which becomes pydantic-ai's `output_type`, here and for a child
that returns a value. Its size is checked before pydantic-ai resolves its references, because a few lines can expand to
gigabytes. Answers are not validated here for a similar reason (a pattern can take for ever): that kernel does it.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from opentelemetry.trace import get_current_span
from pydantic import (
    Field,
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    field_validator,
)
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext, StructuredDict, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability, Instrumentation
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryInfo,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters
from pydantic_ai.settings import ModelSettings, merge_model_settings
from pydantic_core import to_json, to_jsonable_python

from freeact_sub.agents.answers import DESCRIPTION, NAME, AnswerCheck, check_output, output_tool
from freeact_sub.agents.feature import EndedCall, Maker, Question
from freeact_sub.agents.life import TreeAgent, traced_run
from freeact_sub.agents.money import Account
from freeact_sub.agents.requests import CodeCalls, Params, paused, validated
from freeact_sub.agents.results import reason, text_of
from freeact_sub.agents.turn import Turns
from freeact_sub.calls import ToolCall
from freeact_sub.config.budget import Budget
from freeact_sub.errors import FreeactError, InvalidRequestError, LimitReachedError
from freeact_sub.kernels import CellClock
from freeact_sub.system.closing import carry_out
from freeact_sub.text import unknown_name, wrong_fields
from freeact_sub.tools import is_harmless

RETRIES: Final = 2
"""Corrections that a model may make to an answer of the wrong type."""
MAX_NODES: Final = 10_000
"""Nodes of the largest schema, with references resolved."""
MAX_LEVELS: Final = 50
WRAPPED: Final = "value"
"""The only field of an object for answers of other types: tools take objects."""
REFERENCE: Final = "#/$defs/"


@dataclass(frozen=True, kw_only=True)
class TypedAnswer:
    """An answer given through a tool call: as pydantic-ai's output type, and as the tool that pydantic-ai makes of it."""

    output_type: Any
    tool: ToolDefinition
    value_of: Callable[[dict[str, Any]], Any]
    """A function that extracts the answer from the arguments of a call."""


@dataclass(frozen=True)
class SingleRequests:
    """The questions of one agent."""

    _agent: TreeAgent

    async def ask(
        self,
        prompt: str,
        *,
        model: str | None = None,
        typed: TypedAnswer | None = None,
        history: Sequence[str] = (),
        by: Maker = "model",
        together: int = 1,
        payer: Account | None = None,
    ) -> Any:
        """Return the model's answer, or the recorded one to an equal question before a crash.

        Args:
            prompt: The only text that the model reads besides the history.
            model: A name in `config.models`. None: the agent's own model.
            typed: The form of the answer. None: text.
            history: Earlier prompts and answers, alternating.
            by: The asker.
            together: The length of the list that holds the question.
            payer: The account that pays, below the run's. None: the run's.

        Raises:
            InvalidRequestError: The model does not exist.
            FreeactError: The request failed, no answer had the right type, or the answer was cut off twice.
        """
        agent, asked = self._agent, await self.model(model)
        question = Question(
            agent=agent,
            prompt=prompt,
            model=asked,
            history=tuple(history),
            schema=None if typed is None else typed.tool.parameters_json_schema,
            by=by,
            together=together,
            payer=payer,
        )
        return await agent.run.features.ask(question, partial(self._request, typed))

    async def _request(self, typed: TypedAnswer | None, asked: Question) -> Any:
        agent = self._agent
        payer = asked.payer or agent.run.account
        # its own account: several questions may be open at once, and an account holds one request
        account = Account(ledger=payer.ledger, owner=agent.agent_id, budget=Budget(), parent=payer)
        turns = Turns(agent=agent, account=account, is_question=True, answers=AnswerCheck(texts=typed is None))
        question = _OneRequest(
            turns=turns, model=asked.model, prompt=asked.prompt, typed=typed, before=[*_messages(asked.history)]
        )
        try:
            with turns.open():
                return await question.answer()
        except LimitReachedError as error:
            what = "the model gave no whole answer" if error.limit == "output" else "the model was not asked"
            raise FreeactError(f"{what}: {error}") from error
        except FreeactError:
            raise
        except Exception as error:  # border: a model's client may raise anything
            raise FreeactError(f"the model gave no answer: {reason(error, asked.model)}") from error
        finally:
            account.close()
            await carry_out(turns.inner_tasks.end())

    async def ask_by_name(self, prompt: str, model: str | None) -> str:
        """Return the answer as text."""
        return str(await self.ask(prompt, model=model))

    async def model(self, name: str | None) -> Model:
        """Return the model that is asked. Args: name: as for `ask`. Raises: InvalidRequestError: There is none."""
        if name is None:
            return self._agent.model
        known = self._agent.shared.config.models.names
        if name not in known:
            raise InvalidRequestError(f"{unknown_name('model', name, known)} (the setting `models`)")
        return await self._agent.shared.other_models.get(name)


@dataclass(frozen=True, kw_only=True)
class _OneRequest:
    """One question to one model."""

    turns: Turns
    model: Model
    prompt: str
    typed: TypedAnswer | None
    before: list[ModelMessage]
    """The conversation so far."""

    async def answer(self) -> Any:
        if _tracing(self.turns.agent) or get_current_span().is_recording():
            return await self._by_agent(self.prompt, self.before)
        request = ModelRequest(parts=[UserPromptPart(self.prompt)])
        response = await self._request(request)
        if response.state == "suspended":  # the provider is not ready
            return await self._by_agent(None, [*self.before, request, response])
        await self.turns.booking.settle(response)
        try:
            problem = self.turns.answers.check(response)
        except ModelRetry as retry:
            advice = RetryFeedbackPart(str(retry), retry=RetryInfo("model_retry"))
            history = [*self.before, request, response, ModelRequest(parts=[advice])]
            return await self._by_agent(None, history, retries=RETRIES - 1)
        if problem is not None:
            raise problem
        try:
            return self._read(response)
        except ValueError:
            return await self._by_agent(None, [*self.before, request, response])

    async def _request(self, request: ModelRequest) -> ModelResponse:
        parameters = ModelRequestParameters()
        if self.typed is not None:
            parameters = ModelRequestParameters(output_mode="tool", output_tools=[self.typed.tool], allow_text_output=False)
        context = ModelRequestContext(
            model=self.model,
            messages=[*self.before, request],
            model_settings=merge_model_settings(self.model.settings, self._settings),
            model_request_parameters=parameters,
        )
        context = await self.turns.booking.reserve(context, salvage=False)
        return await model_request(
            context.model,
            context.messages,
            model_settings=context.model_settings,
            model_request_parameters=context.model_request_parameters,
        )

    @property
    def _settings(self) -> ModelSettings | None:
        """The settings of every request, without caching: no later request reads a single question."""
        settings = self.turns.agent.shared.request_settings(self.model)
        if self.before or "cache" in (self.model.settings or {}):
            return settings
        return {"cache": False, **(settings or {})}

    def _read(self, response: ModelResponse) -> Any:
        """Return the answer in a response. Raises ValueError if pydantic-ai must take over."""
        wanted = TextPart if self.typed is None else ToolCallPart
        parts = [part for part in response.parts if not isinstance(part, ThinkingPart)]
        calls = [part for part in parts if isinstance(part, ToolCallPart)]
        if not all(isinstance(part, TextPart | wanted) for part in parts) or not any(
            isinstance(part, wanted) for part in parts
        ):
            raise ValueError("the response holds more than an answer, or none")
        if self.typed is None:
            return self.turns.whole_answer("".join(part.content for part in parts if isinstance(part, TextPart)))
        if len(calls) != 1 or calls[0].tool_name != self.typed.tool.name:
            raise ValueError("the answer is not handed over by one call")
        try:
            return self.typed.value_of(calls[0].args_as_dict(raise_if_invalid=True))
        except AssertionError as error:
            raise ValueError("the arguments are not an object") from error

    async def _by_agent(self, prompt: str | None, history: list[ModelMessage], *, retries: int = RETRIES) -> Any:
        turns = self.turns
        turn_loop: PydanticAgent[Any, Any] = PydanticAgent(
            self.model,
            name="ask",
            output_type=str if self.typed is None else self.typed.output_type,
            capabilities=[*_tracing(turns.agent), _QuestionHooks(turns=turns)],
            model_settings=self._settings,
            retries=retries,
        )
        result = await turn_loop.run(prompt, message_history=history or None, infer_name=False)
        return turns.whole_answer(result.output)


@dataclass(kw_only=True)
class _QuestionHooks(AbstractCapability[Any]):
    """Hooks that pay for the requests that pydantic-ai makes for a question, and check their responses."""

    turns: Turns

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> Any:
        del ctx
        with traced_run(self.turns.agent):
            return await handler()

    async def wrap_model_request(self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Any) -> Any:
        del ctx
        with self.turns.inner_tasks.noted(), self.turns.booking.paid():
            return await handler(request_context)

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        del ctx
        return await self.turns.booking.reserve(request_context, salvage=False)

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        del ctx, request_context
        await self.turns.booking.settle(response)
        self.turns.check(response)
        return response


def _messages(history: Sequence[str]) -> Iterator[ModelMessage]:
    for index, text in enumerate(history):
        if index % 2:
            yield ModelResponse(parts=[TextPart(text)])
        else:
            yield ModelRequest(parts=[UserPromptPart(text)])


def _tracing(agent: TreeAgent) -> list[AbstractCapability[Any]]:
    """Return the user's capabilities that make spans; others do not apply to a question."""
    return [capability for capability in agent.shared.capabilities if isinstance(capability, Instrumentation)]


def output_type_of(schema: Mapping[str, Any], check: Callable[[Any], Awaitable[str]]) -> Any:
    """Return the output type of a child.

    Args:
        schema: The schema of the answer.
        check: Returns what is wrong with an answer, empty if nothing is. The model must correct a wrong answer.

    Raises:
        InvalidRequestError: The schema is too large, or refers to itself.
    """
    return output_tool(_structured(schema), check, lambda answer: _unwrapped(schema, answer))


def typed_answer_of(schema: Mapping[str, Any]) -> TypedAnswer:
    """Return the answer expected of `ask`; the requesting kernel validates it against its type.

    Raises:
        InvalidRequestError: The schema is too large, or refers to itself.
    """

    async def nothing_wrong(_: Any) -> str:
        return ""

    parameters = TypeAdapter(_structured(schema)).json_schema()
    described = parameters.pop("description", None)
    tool = ToolDefinition(
        name=NAME,
        description=DESCRIPTION if described is None else f"{DESCRIPTION}. {described}",  # pydantic-ai's form
        parameters_json_schema=parameters,
        kind="output",
    )
    return TypedAnswer(
        output_type=output_type_of(schema, nothing_wrong), tool=tool, value_of=lambda answer: _unwrapped(schema, answer)
    )


def _structured(schema: Mapping[str, Any]) -> Any:
    check_size(schema)
    try:
        return StructuredDict(_wrap(schema) if _is_wrapped(schema) else dict(schema))
    except Exception as error:  # border: pydantic-ai may fail in any way on a foreign schema
        raise InvalidRequestError(f"output: its JSON schema cannot be used: {error}") from error


def _is_wrapped(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") != "object"


def typed_for_program(output: Any) -> tuple[TypeAdapter[Any], TypedAnswer]:
    """Return the adapter of a type and the answer asked of the model; an invalid answer goes back to it.

    Raises:
        InvalidRequestError: The type has no JSON schema.
    """
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(check_output(output, "agent.ask"))
        schema = adapter.json_schema()
    except (PydanticUserError, PydanticSchemaGenerationError, TypeError, NameError) as error:
        raise InvalidRequestError(f"agent.ask: output: {output!r} has no JSON schema: {error}") from error
    plain = typed_answer_of(schema)

    async def check(value: Any) -> str:
        try:
            adapter.validate_json(to_json(value))
        except ValidationError as error:
            return wrong_fields(error.errors())
        return ""

    def value_of(arguments: dict[str, Any]) -> Any:
        value = plain.value_of(arguments)
        adapter.validate_json(to_json(value))  # a ValueError: pydantic-ai asks again
        return value

    return adapter, replace(plain, output_type=output_type_of(schema, check), value_of=value_of)


def _unwrapped(schema: Mapping[str, Any], answer: dict[str, Any]) -> Any:
    return answer[WRAPPED] if _is_wrapped(schema) and WRAPPED in answer else answer


def _wrap(schema: Mapping[str, Any]) -> dict[str, Any]:
    inner = {name: value for name, value in schema.items() if name != "$defs"}
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {"type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED], **definitions}


def check_size(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that would be too large with its references resolved.

    Raises:
        InvalidRequestError: The schema is too large or too deep, refers to itself, or has a dangling reference.
    """
    definitions = schema.get("$defs")
    definitions = definitions if isinstance(definitions, Mapping) else {}
    known: dict[str, int] = {}

    def size(node: Any, above: tuple[str, ...], level: int) -> int:
        if level > MAX_LEVELS:
            raise InvalidRequestError(f"output: its JSON schema is more than {MAX_LEVELS} levels deep")
        if isinstance(node, Mapping):
            reference = node.get("$ref")
            own = definition(str(reference), above, level) if reference is not None else 0
            total = 1 + own + sum(size(value, above, level + 1) for key, value in node.items() if key != "$defs")
        else:
            total = 1 + sum(size(value, above, level + 1) for value in node) if isinstance(node, list) else 1
        if total > MAX_NODES:
            raise InvalidRequestError(f"output: its JSON schema has more than {MAX_NODES:,} parts")
        return total

    def definition(reference: str, above: tuple[str, ...], level: int) -> int:
        name = reference.removeprefix(REFERENCE)
        if not reference.startswith(REFERENCE) or name not in definitions:
            raise InvalidRequestError(f"output: its JSON schema refers to {reference!r}, which is not in its $defs")
        if name in above:
            raise InvalidRequestError(f"output: {name} contains itself, which models do not support: use a list")
        if name not in known:
            known[name] = size(definitions[name], (*above, name), level + 1)
        return known[name]

    size(schema, (), 0)


class AskParams(Params):
    """Parameters of `agent.ask`."""

    prompt: str = Field(min_length=1)
    model: str | None = None
    output: dict[str, Any] | None = None
    """The answer's JSON schema. None: text."""
    history: list[str] = Field(default_factory=list)
    """Earlier prompts and answers, alternating."""
    label: str = ""
    """The name for people."""
    together: int = Field(default=1, ge=1)
    """Requests that code makes at once, this one included."""

    @field_validator("history")
    @classmethod
    def _ends_with_an_answer(cls, history: list[str]) -> list[str]:
        if len(history) % 2:
            raise ValueError("prompts and answers must alternate, and the last one must be an answer")
        return history


class AskRequests:
    """Handler of `ask`."""

    def __init__(self, calls: CodeCalls, single_requests: SingleRequests) -> None:
        self._calls, self._single_requests = calls, single_requests
        self.handlers = {"ask": self._ask}

    async def _ask(self, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        asked = validated(AskParams.model_validate, params, "agent.ask")
        typed = None if asked.output is None else typed_answer_of(asked.output)
        return to_jsonable_python(await self.ask(asked, typed, clock))

    async def ask(
        self,
        asked: AskParams,
        typed: TypedAnswer | None,
        clock: CellClock | None = None,
        *,
        of_program: bool = False,
        payer: Account | None = None,
    ) -> Any:
        """Make the request as a call of the agent, with events, counting and rules, and return the model's answer.

        Args:
            asked: The request.
            typed: The form of the answer. None: text.
            clock: The clock of the requesting cell. None: a program asks.
            of_program: A program asks, not code in a cell.
            payer: The account that pays, below the run's. None: the run's.

        Raises:
            FreeactError: The request is denied or fails.
        """

        async def work() -> EndedCall[Any]:
            with paused(clock):
                answer = await self._single_requests.ask(
                    asked.prompt,
                    model=asked.model,
                    typed=typed,
                    history=asked.history,
                    by="program" if of_program else "code",
                    together=asked.together,
                    payer=payer,
                )
            return EndedCall(value=answer, text=text_of(answer), outcome="success")

        args = asked.model_dump(exclude={"together"}, exclude_none=True, exclude_defaults=True)
        call = ToolCall(tool_name="ask", args=args, harmless=is_harmless("ask"))
        return await self._calls.carry_out("ask", call, args, clock, work)
