"""`FanOuts`: many requests of one kind. More than `models.quote_above` of them are quoted after three, chosen at random.

What a person agrees to is an account of its own below that of the run, so it is exact, and it holds for the rest of the run.
Where nobody is asked (mode `auto` or `full`, a rule, nobody there), the bounds of the run count, and a notice has the quote.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from decimal import Decimal
from typing import Final, TypeVar

from pydantic_ai.models import Model
from pydantic_ai.usage import RequestUsage

from freeact_sub.agents.budgets.estimate import price_of
from freeact_sub.agents.budgets.ledger import Account
from freeact_sub.agents.hooks import hooks_of_call
from freeact_sub.agents.maps.quotes import Pilot, Quote, Spread, bound_for, quote
from freeact_sub.agents.runs.loop import AgentLoop
from freeact_sub.calls import FanOut
from freeact_sub.config.budget import Budget
from freeact_sub.errors import ApprovalDeniedError, FreeactError
from freeact_sub.events import Notice
from freeact_sub.text import dollars

T = TypeVar("T")

PILOTS: Final = 3


class FanOuts:
    """Runs the fan-outs of one agent, within what a person has agreed to."""

    def __init__(self) -> None:
        self._agreed: Account | None = None
        """What a person has agreed to in the latest run. None: nothing."""

    async def run(
        self,
        loop: AgentLoop,
        what: str,
        model: Model,
        items: Sequence[T],
        size: Callable[[T], int],
        work: Callable[[T, Account | None], Awaitable[None]],
    ) -> None:
        """Do work that does not raise on each item.

        Args:
            loop: Of the agent that pays.
            what: Names the fan-out for people.
            model: Is asked.
            items: One request each.
            size: Returns the characters of an item's prompt.
            work: Makes the request; the account pays for it.

        Raises:
            ApprovalDeniedError: A person or a rule does not want the rest.
        """
        payer = self._agreed if self._agreed is not None and self._agreed.parent is loop.agent.run.account else None
        if payer is None and len(items) > loop.agent.shared.config.models.quote_above:
            chosen = {*random.sample(range(len(items)), PILOTS)}
            async with asyncio.TaskGroup() as group:
                measured = [group.create_task(_measured(loop, items[at], size, work)) for at in chosen]
            pilots = [pilot for task in measured if (pilot := task.result()).input_tokens]
            items = [item for at, item in enumerate(items) if at not in chosen]
            payer = await self._agree(loop, what, model, pilots, [*map(size, items)])
        await side_by_side(loop, items, lambda item: work(item, payer))

    async def _agree(
        self, loop: AgentLoop, what: str, model: Model, pilots: Sequence[Pilot], sizes: Sequence[int]
    ) -> Account | None:
        """Return the account of what a person agrees to. None: nobody is asked."""
        if not pilots:  # nothing is known; what fails costs nothing
            return None
        agent, at_once = loop.agent, loop.agent.shared.config.models.max_concurrent
        told = quote(pilots, sizes, price=price_of(model), at_once=at_once)
        budget = _bound(told)
        bound = dollars(float(budget.cost_usd)) if budget.cost_usd is not None else f"{budget.tokens:,} tokens"
        call = FanOut(
            what=what,
            more=told.more,
            tokens=_three(told.tokens),
            cost_usd=None if told.cost_usd is None else _three(told.cost_usd),
            seconds=told.seconds,
            bound=bound,
            others=await _cheaper(loop, pilots, sizes, told),
        )
        decision = None
        if agent.shared.config.headless is None:
            decision = await agent.shared.gate.decision(
                call,
                agent.present_policy,
                agent.emitter,
                path=agent.path,
                pause=agent.run.clocks_paused(),
                hooks=hooks_of_call(agent, None),
            )
        elif (ruling := await agent.shared.gate.ruling(call, agent.present_policy)).verdict == "deny":
            raise ApprovalDeniedError(ruling.reason)
        if decision is None or decision.nobody:
            agent.emitter.put(Notice(content=f"{what}: {call.figures}"))
            return None
        run = agent.run.account
        self._agreed = Account(ledger=run.ledger, owner=agent.agent_id, budget=budget, parent=run)
        return self._agreed


async def _measured(
    loop: AgentLoop, item: T, size: Callable[[T], int], work: Callable[[T, Account | None], Awaitable[None]]
) -> Pilot:
    run, began = loop.agent.run.account, time.monotonic()
    account = Account(ledger=run.ledger, owner=loop.agent.agent_id, budget=Budget(), parent=run)
    await work(item, account)
    usage = account.usage
    return Pilot(
        size=size(item),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        seconds=time.monotonic() - began,
    )


def _bound(told: Quote) -> Budget:
    if told.cost_usd is not None and told.cost_usd.high > 0:
        return Budget(cost_usd=bound_for(told.cost_usd.high))
    return Budget(tokens=int(bound_for(told.tokens.high)))


async def _cheaper(loop: AgentLoop, pilots: Sequence[Pilot], sizes: Sequence[int], told: Quote) -> tuple[str, ...]:
    """What cheaper models of the settings would take for the same tokens."""
    shared, found = loop.agent.shared, []
    for name in shared.config.models.names if told.cost_usd is not None else ():
        try:
            price: Callable[[RequestUsage], Decimal | None] = price_of(await shared.other_models.get(name))
        except FreeactError:  # its key is missing, for example
            continue
        other = quote(pilots, sizes, price=price, at_once=shared.config.models.max_concurrent).cost_usd
        if other is not None and told.cost_usd is not None and other.about < told.cost_usd.about:
            found.append(f'with model="{name}": {dollars(other.about)} ({dollars(other.low)} to {dollars(other.high)})')
    return tuple(found)


def _three(spread: Spread) -> tuple[float, float, float]:
    return spread.about, spread.low, spread.high


async def side_by_side(loop: AgentLoop, items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Do work that does not raise on each item, on so many at once as models may be asked; each is taken as it is needed."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(loop.agent.shared.config.models.max_concurrent):
            group.create_task(worker())
