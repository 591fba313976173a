"""`Asker`: one model request without tools, kernel or history, counted as usage of the agent that asks."""

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import AgentRunError, UserError
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model, ModelRequestContext

from freeact_sub.agents.definitions import unknown_name
from freeact_sub.agents.host import usage_of
from freeact_sub.agents.ledger import Account, Reservation
from freeact_sub.agents.quote import quote_for, with_max_tokens
from freeact_sub.agents.tree import AgentNode
from freeact_sub.budget import Budget
from freeact_sub.errors import FreeactError, InvalidRequestError, LimitReachedError
from freeact_sub.events import UsageUpdated

RETRIES: Final = 2
"""How often a model is asked again whose answer is not of the type that is wanted."""


class Asker:
    """Makes the requests of one agent."""

    def __init__(self, node: AgentNode) -> None:
        self._node = node

    async def ask(self, prompt: str, *, model: str | None = None, output_type: Any = str) -> Any:
        """The model's answer, of the type that is wanted.

        Args:
            prompt: All that the model reads.
            model: A name of `config.models`. None: the agent's own model.
            output_type: As pydantic-ai's `output_type`.

        Raises:
            InvalidRequestError: There is no such model.
            FreeactError: The request fails, or no answer is of the type.
        """
        node = self._node
        # an account of its own: several may be asked at once, and an account holds one request
        account = Account(ledger=node.account.ledger, owner=node.agent_id, budget=Budget(), parent=node.account)
        agent: PydanticAgent[Any, Any] = PydanticAgent(
            await self._model(model),
            name=node.agent_id,
            output_type=output_type,
            capabilities=[_Paid(node=node, account=account)],
            model_settings=node.tree.model_settings or None,  # type: ignore[arg-type]  # a TypedDict that config leaves open
            retries=RETRIES,
        )
        try:
            return (await agent.run(prompt, infer_name=False)).output
        except LimitReachedError as error:
            raise FreeactError(f"the model was not asked: {error}") from error
        except FreeactError:
            raise
        except Exception as error:  # border: the client of a model may raise anything
            what = str(error) if isinstance(error, AgentRunError | UserError) else f"{type(error).__name__}: {error}"
            raise FreeactError(f"the model gave no answer: {what}") from error
        finally:
            account.close()

    async def ask_by_name(self, prompt: str, model: str | None) -> str:
        """The answer as text."""
        return str(await self.ask(prompt, model=model))

    async def _model(self, name: str | None) -> Model:
        if name is None:
            return self._node.model
        known = self._node.tree.config.models
        if name not in known:
            raise InvalidRequestError(f"{unknown_name('model', name, known)} (the setting `models`)")
        return await self._node.tree.other_models.get(name)


@dataclass(kw_only=True)
class _Paid(AbstractCapability[Any]):
    """Reserves what a request may take, and counts what it has taken."""

    node: AgentNode
    account: Account
    reservation: Reservation | None = None

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        """See pydantic-ai."""
        del ctx
        account = self.account
        quote = quote_for(account, request_context, salvage=False)
        self.reservation = await account.ledger.reserve(account, quote)
        if not account.counts_amounts:
            return request_context
        return replace(request_context, model_settings=with_max_tokens(request_context, self.reservation.output_tokens))

    async def wrap_model_request(self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Any) -> Any:
        """See pydantic-ai."""
        del ctx
        try:
            return await handler(request_context)
        except Exception:
            if self.reservation is not None:
                self.reservation.settle(0, Decimal(0))  # a request that fails is not billed
            raise

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """See pydantic-ai."""
        del ctx, request_context
        usage = usage_of(response)
        self.node.spend(usage)
        if self.reservation is not None:
            self.reservation.settle(usage.tokens, usage.cost_usd)
        await self.node.emitter.emit(UsageUpdated(usage=self.node.usage, tree_usage=self.node.tree_usage))
        return response
