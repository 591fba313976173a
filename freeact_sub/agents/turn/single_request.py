"""`Asker`: one model request without tools, kernel or history, counted as usage of the agent that asks."""

from typing import Any, Final

from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.capabilities import AbstractCapability, Instrumentation
from pydantic_ai.models import Model

from freeact_sub.agents.budgets.ledger import Account
from freeact_sub.agents.runs.endings import reason
from freeact_sub.agents.tree import AgentNode
from freeact_sub.agents.turn.answer_check import AnswerCheck
from freeact_sub.agents.turn.answer_hooks import AnswerHooks
from freeact_sub.agents.turn.budget_hooks import PaidRequests
from freeact_sub.agents.turn.turns import Turns
from freeact_sub.agents.types.files import unknown_name
from freeact_sub.config.budget import Budget
from freeact_sub.errors import FreeactError, InvalidRequestError, LimitReachedError
from freeact_sub.system.closing import carry_out

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
            FreeactError: The request fails, no answer is of the type, or the answer was cut off twice.
        """
        node = self._node
        # an account of its own: several may be asked at once, and an account holds one request
        account = Account(ledger=node.run.account.ledger, owner=node.agent_id, budget=Budget(), parent=node.run.account)
        turns = Turns(node=node, account=account, only_pauses=True, answers=AnswerCheck(texts=output_type is str))
        asked = await self._model(model)
        agent: PydanticAgent[Any, Any] = PydanticAgent(
            asked,
            name=node.agent_id,
            output_type=output_type,
            capabilities=[
                *_tracing(node),
                AnswerHooks(turns=turns),
                turns.inner_tasks,
                PaidRequests(booking=turns.booking),
            ],
            model_settings=node.shared.model_settings or None,  # type: ignore[arg-type]  # a TypedDict that config leaves open
            retries=RETRIES,
        )
        try:
            with turns.open():
                return turns.whole_answer((await agent.run(prompt, infer_name=False)).output)
        except LimitReachedError as error:
            what = "the model gave no whole answer" if error.limit == "output" else "the model was not asked"
            raise FreeactError(f"{what}: {error}") from error
        except FreeactError:
            raise
        except Exception as error:  # border: the client of a model may raise anything
            raise FreeactError(f"the model gave no answer: {reason(error, asked)}") from error
        finally:
            account.close()
            await carry_out(turns.inner_tasks.end())

    async def ask_by_name(self, prompt: str, model: str | None) -> str:
        """The answer as text."""
        return str(await self.ask(prompt, model=model))

    async def _model(self, name: str | None) -> Model:
        if name is None:
            return self._node.model
        known = self._node.shared.config.models.names
        if name not in known:
            raise InvalidRequestError(f"{unknown_name('model', name, known)} (the setting `models`)")
        return await self._node.shared.other_models.get(name)


def _tracing(node: AgentNode) -> list[AbstractCapability[Any]]:
    """Of what a user has given to agents, what makes spans; all else is not for a question."""
    return [capability for capability in node.shared.capabilities if isinstance(capability, Instrumentation)]
