"""Agreements with a person on spending for the fan-outs of one agent's run (`Agreement`).

An agreement is an account below the run's, so it is exact. A later fan-out whose quote fits into the remainder is not asked
about; a larger one is, and gets an account of its own. Where nobody is asked (mode `auto` or `full`, a rule, nobody there),
the bounds of the run count, and a notice has the quote.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from pydantic_ai.usage import RequestUsage

from freeact_sub.agents.feature import Asker
from freeact_sub.agents.life import TreeAgent
from freeact_sub.agents.money import LEAST, NO_PAYER, OUTPUT_TOKENS, REPORT_TOKENS, Account, Payer, price_of
from freeact_sub.calls import FanOut
from freeact_sub.config.budget import Budget
from freeact_sub.errors import ApprovalDeniedError, FreeactError
from freeact_sub.events import Notice
from freeact_sub.features.quotes.figures import Pilot, Quote, Spread, bound_for, quote
from freeact_sub.text import dollars

CAUTION: Final = 1.5
"""The multiple of its input that a request reserves, at most."""


@dataclass(frozen=True, kw_only=True)
class Rest:
    """The rest of a fan-out, of which some items have run."""

    what: str
    """The fan-out's name for people."""
    pilots: Sequence[Pilot]
    sizes: Sequence[int]
    """The characters of the prompts that are left."""
    price: Callable[[RequestUsage], Decimal | None]
    at_once: int
    single: bool = True
    """Whether each is one request."""

    def quote(self, price: Callable[[RequestUsage], Decimal | None] | None = None) -> Quote:
        """Return the quote. Args: price: of another model."""
        return quote(self.pilots, self.sizes, price=price or self.price, at_once=self.at_once, single=self.single)


class Agreement:
    """The agreement of one agent."""

    def __init__(self, agent: TreeAgent) -> None:
        self._agent = agent
        self._account: Account | None = None

    async def on(self, rest: Rest) -> Payer:
        """Return the payer of the rest of a fan-out; without an account nobody is asked.

        Raises:
            ApprovalDeniedError: A person or a rule does not want the rest.
        """
        agent, run, told = self._agent, self._agent.run.account, rest.quote()
        if self._account is not None and self._account.parent is run and _covers(self._account, told):
            agent.run.fan_out = _call(rest, told)
            return Payer(account=self._account)
        budget = self._bound(rest, told)
        bounded = replace(rest, at_once=self._at_once(rest, budget))
        bound = dollars(float(budget.cost_usd)) if budget.cost_usd is not None else f"{budget.tokens:,} tokens"
        call = replace(_call(rest, bounded.quote()), bound=bound, cheaper=await self._cheaper(rest, told))
        agent.run.fan_out = call
        decision = None
        if agent.shared.config.headless is None:
            decision = await agent.shared.gate.check(call, Asker(agent=agent))
        elif (ruling := await agent.shared.gate.ruling(call, agent.policy)).verdict == "deny":
            raise ApprovalDeniedError(ruling.reason)
        if decision is None or decision.nobody:
            self.tell(rest)
            return NO_PAYER
        if budget.cost_usd is not None and run.root.usual_cost_usd is not None:
            run.root.usual_cost_usd += budget.cost_usd
        self._account = Account(ledger=run.ledger, owner=agent.agent_id, budget=budget, parent=run)
        return Payer(account=self._account, model=decision.model)

    async def asks_nobody(self) -> bool:
        """Return whether settings and rules let all fan-outs run within the bounds of the run, and no hook has a say."""
        agent = self._agent
        call = FanOut(what="all")
        ruling = await agent.shared.gate.ruling(call, agent.policy)
        if agent.shared.config.headless is not None:
            return ruling.verdict != "deny"
        return ruling.verdict == "allow" and not any(adviser.hears(call) for adviser in Asker(agent=agent).advisers)

    def tell(self, rest: Rest) -> None:
        """Emit a notice with the quote for the rest of a fan-out."""
        call = self._agent.run.fan_out = _call(rest, rest.quote())
        self._agent.emitter.put(Notice(content=call.summary))

    def _bound(self, rest: Rest, told: Quote) -> Budget:
        """Return the quote's highest figure, plus the reservations of the last requests: of children several."""
        given = round(max(pilot.input_tokens for pilot in rest.pilots) * CAUTION)
        last = RequestUsage(input_tokens=given, output_tokens=LEAST.tokens + (0 if rest.single else REPORT_TOKENS))
        many = 1 if rest.single else min(rest.at_once, told.more)
        if told.cost_usd is not None and told.cost_usd.high > 0:
            prices = (price(last) or Decimal(0) for price in (rest.price, price_of(self._agent.model)))
            return Budget(cost_usd=bound_for(told.cost_usd.high + many * float(max(prices))))
        return Budget(tokens=int(bound_for(told.tokens.high + many * last.total_tokens)))

    def _at_once(self, rest: Rest, budget: Budget) -> int:
        """Return the number of requests at once: each reserves its bound, and the budget must hold them all."""
        given = round(max(pilot.input_tokens for pilot in rest.pilots) * CAUTION)
        largest = RequestUsage(input_tokens=given, output_tokens=OUTPUT_TOKENS)
        if budget.cost_usd is None:
            fitting = (budget.tokens or 0) // largest.total_tokens
        else:
            fitting = int(budget.cost_usd / max(rest.price(largest) or Decimal(0), Decimal("0.000001")))
        return max(1, min(rest.at_once, fitting))

    async def _cheaper(self, rest: Rest, told: Quote) -> dict[str, tuple[float, float, float]]:
        shared, found = self._agent.shared, dict[str, tuple[float, float, float]]()
        for name in shared.config.models.names if told.cost_usd is not None else ():
            try:
                price = price_of(await shared.other_models.get(name))
            except FreeactError:  # its key is missing, for example
                continue
            other = rest.quote(price).cost_usd
            if other is not None and told.cost_usd is not None and other.about < told.cost_usd.about:
                found[name] = _three(other)
        return found


def price_paid(pilots: Sequence[Pilot]) -> Callable[[RequestUsage], Decimal | None]:
    """Return the mean price of a token of the pilots, who may have asked any models and read from a provider's cache."""
    known = [pilot.cost_usd for pilot in pilots if pilot.cost_usd is not None]
    if len(known) < len(pilots):
        return lambda _: None
    a_token = sum(known, Decimal(0)) / sum(pilot.input_tokens + pilot.output_tokens for pilot in pilots)
    return lambda usage: a_token * (usage.input_tokens + usage.output_tokens)


def _covers(account: Account, told: Quote) -> bool:
    bound, spent = account.budget, account.spent
    if bound.cost_usd is not None:
        return told.cost_usd is not None and told.cost_usd.high <= float(bound.cost_usd - spent.cost_usd)
    return bound.tokens is not None and told.tokens.high <= bound.tokens - spent.tokens


def _call(rest: Rest, told: Quote) -> FanOut:
    return FanOut(
        what=rest.what,
        more=told.more,
        tokens=_three(told.tokens),
        cost_usd=None if told.cost_usd is None else _three(told.cost_usd),
        seconds=told.seconds,
    )


def _three(spread: Spread) -> tuple[float, float, float]:
    return spread.about, spread.low, spread.high
