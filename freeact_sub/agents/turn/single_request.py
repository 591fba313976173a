"""`SingleRequests`: makes one model request without tools or kernel, paid by the asking agent.

The request goes to the model directly, because creating a pydantic-ai agent and running its graph takes several times as
long as the host's own work for a question. pydantic-ai takes over, with the conversation so far, where it is needed: if a
response is not a complete answer (cut off, empty, of the wrong type, or the provider is not ready), and for traced
questions, so that the spans are pydantic-ai's own.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from opentelemetry.trace import get_current_span
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext, ToolDefinition
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

from freeact_sub.agents.budgets.ledger import Account
from freeact_sub.agents.requested_call import Maker, Question
from freeact_sub.agents.runs.endings import reason
from freeact_sub.agents.traces import traced_run
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.agents.turn.answer_check import AnswerCheck
from freeact_sub.agents.turn.turns import Turns
from freeact_sub.config.budget import Budget
from freeact_sub.errors import FreeactError, InvalidRequestError, LimitReachedError
from freeact_sub.system.closing import carry_out
from freeact_sub.text import unknown_name

RETRIES: Final = 2
"""Corrections that a model may make to an answer of the wrong type."""


@dataclass(frozen=True, kw_only=True)
class TypedAnswer:
    """An answer given through a tool call: as pydantic-ai's output type, and as the tool that pydantic-ai makes of it."""

    output_type: Any
    tool: ToolDefinition
    value_of: Callable[[dict[str, Any]], Any]
    """Extracts the answer from the arguments of a call."""


@dataclass(frozen=True)
class SingleRequests:
    """Makes the requests of one agent."""

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
        """Return the model's answer, or the recorded one if the same was asked before a crash.

        Args:
            prompt: The only text that the model reads besides the history.
            model: A name in `config.models`. None: the agent's own model.
            typed: The form of the answer. None: text.
            history: Earlier prompts and answers, alternating.
            by: Who asks.
            together: The length of the list that it is part of.
            payer: An account below that of the agent's run, which pays. None: the run's.

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
        """Return the model that is asked. Args: name: see `ask`. Raises: InvalidRequestError: it does not exist."""
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
        """The settings of every request. The provider does not cache a single question, which no later request reads."""
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
    """Pays for the requests that pydantic-ai makes for a question, and checks their responses."""

    turns: Turns

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> Any:
        """See pydantic-ai."""
        del ctx
        with traced_run(self.turns.agent):
            return await handler()

    async def wrap_model_request(self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Any) -> Any:
        """See pydantic-ai."""
        del ctx
        with self.turns.inner_tasks.noted(), self.turns.booking.paid():
            return await handler(request_context)

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        """See pydantic-ai."""
        del ctx
        return await self.turns.booking.reserve(request_context, salvage=False)

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """See pydantic-ai."""
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
