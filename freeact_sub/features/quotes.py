"""Quotes for many requests or children, made before most of them run (docs/budgets.md).

`FanOuts`: more than `models.quote_above` of one kind are quoted after a few. Three items of a list (`map`, `ask_many`),
chosen at random, run first. Calls that are known to be many are treated alike: the calls of one response of the model
(`task`, `delegate`), of code in a cell that begins them at once (`gather`), of a strategy that knows its steps, of
`run_parallel`. Calls that come one by one are not quoted: nobody knows how many follow.

`quote` estimates the rest from the items that have run: tokens, money, time, with a spread. The prompts of all items are
known, so the input of single requests follows from their sizes. Their output, and all amounts of children, who make several
requests, are known of the pilots only. Two readings are tried: the amount of an item has nothing to do with the size of its
prompt, or grows with it. Under each, the amounts are taken as lognormal, which skewed sizes are close to; the spread is that
of the mean of such a sample (Cox), with the variance of three pilots drawn towards `USUAL` and the quantiles of a t
distribution. The spread that is quoted covers both readings.

`Agreement`: a person agrees to the spending of one agent's run. It is an account below the run's, so it is exact. A later
fan-out whose quote fits into the remainder is not asked about; a larger one is, and gets an account of its own. Where nobody
is asked (mode `auto` or `full`, a rule, nobody there), the bounds of the run count, and a notice has the quote.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, Decimal
from functools import cached_property
from typing import Any, Final, Literal, TypeVar

from pydantic_ai.models import Model
from pydantic_ai.usage import RequestUsage

from freeact_sub.agents.feature import Asker, Feature, FeatureAgent, FeatureRoot, NewChild, Question, RunPart
from freeact_sub.agents.life import TreeAgent, tree_agent
from freeact_sub.agents.money import LEAST, NO_PAYER, OUTPUT_TOKENS, REPORT_TOKENS, Account, Payer, price_of
from freeact_sub.calls import FanOut
from freeact_sub.channel import Tap, hearing
from freeact_sub.config.budget import Budget
from freeact_sub.errors import ApprovalDeniedError, FreeactError
from freeact_sub.events import Notice, StrategyProgress
from freeact_sub.events.progress import StrategyStep
from freeact_sub.system.process import chance
from freeact_sub.text import dollars

USUAL: Final = 0.6
"""The standard deviation of the logarithm of outputs that is expected before anything is known."""
WEIGHT: Final = 3
"""The weight of the expectation, in degrees of freedom."""
QUANTILES: Final = {3: 2.35, 4: 2.13, 5: 2.02, 6: 1.94, 7: 1.89, 8: 1.86}
"""Quantiles of Student's t that leave 5 % on each side, by degrees of freedom."""
INPUT_SPREAD: Final = 0.05
ROOM: Final = Decimal("1.1")
"""The factor between the highest figure and the proposed bound."""
STEPS: Final = (
    Decimal(1),
    Decimal("1.5"),
    Decimal(2),
    Decimal(3),
    Decimal(4),
    Decimal(5),
    Decimal(6),
    Decimal(8),
    Decimal(10),
)
CAUTION: Final = 1.5
"""The multiple of its input that a request reserves, at most."""
T = TypeVar("T")
Kind = Literal["ask", "task"]

PILOTS: Final = 3
MOST_PILOTS: Final = 50
"""The number of latest pilots that the estimate uses."""


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """An item that has run."""

    size: int
    """The characters of the prompt."""
    input_tokens: int
    output_tokens: int
    seconds: float
    cost_usd: Decimal | None = None
    """The cost, if known."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A figure and the bounds around it."""

    about: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Quote:
    """The estimate for the rest of a fan-out."""

    more: int
    tokens: Spread
    cost_usd: Spread | None
    """The cost. None: the price is not known."""
    seconds: float


def quote(
    pilots: Sequence[Pilot],
    sizes: Sequence[int],
    *,
    price: Callable[[RequestUsage], Decimal | None],
    at_once: int,
    single: bool = True,
) -> Quote:
    """Return a quote.

    Args:
        pilots: Items that have run, chosen at random; at least one.
        sizes: The characters of the prompts of the other items.
        price: The price of a request.
        at_once: The number of requests at once.
        single: Whether each is one request, whose input is its prompt.
    """
    n = len(sizes)
    output = _of_pilots(pilots, [pilot.output_tokens for pilot in pilots], sizes)
    if single:
        fixed, a_char = _line(pilots)
        mean = max(1.0, fixed + a_char * mean_of(sizes))
        given = Spread(about=mean, low=mean * (1 - INPUT_SPREAD), high=mean * (1 + INPUT_SPREAD))
    else:
        given = _of_pilots(pilots, [pilot.input_tokens for pilot in pilots], sizes)

    def spread(of: Callable[[float, float], float]) -> Spread:
        return Spread(
            about=of(given.about, output.about) * n,
            low=of(given.low, output.low) * n,
            high=of(given.high, output.high) * n,
        )

    def cost(given: float, answered: float) -> float:
        """Return the price of one request; tokens are whole."""
        found = price(RequestUsage(input_tokens=round(given), output_tokens=max(1, round(answered))))
        return math.nan if found is None else float(found)

    money = spread(cost)
    rounds = math.ceil(n / at_once)
    return Quote(
        more=n,
        tokens=spread(lambda given, answered: given + answered),
        cost_usd=None if math.isnan(money.about) else money,
        seconds=mean_of(pilot.seconds for pilot in pilots) * max(1.0, rounds),
    )


def _of_pilots(pilots: Sequence[Pilot], values: Sequence[int], sizes: Sequence[int]) -> Spread:
    """Return the mean of the rest's values, estimated from the pilots'."""
    free = _mean(values, [1.0] * len(sizes))
    scale = [max(1, pilot.size) for pilot in pilots]
    growing = _mean(
        [value / size for value, size in zip(values, scale, strict=True)], [float(max(1, size)) for size in sizes]
    )
    about = math.sqrt(max(1.0, free.about) * max(1.0, growing.about))
    return Spread(about=about, low=min(free.low, growing.low), high=max(free.high, growing.high))


def bound_for(high: float) -> Decimal:
    """Return a round figure with some room above the highest of a quote."""
    wanted = Decimal(repr(high)) * ROOM
    if wanted <= 0:
        return Decimal(1)
    unit = Decimal(10) ** wanted.adjusted()
    factor = (wanted / unit).quantize(Decimal("0.0001"), rounding=ROUND_CEILING)
    return next(step for step in STEPS if step >= min(factor, STEPS[-1])) * unit


def _line(pilots: Sequence[Pilot]) -> tuple[float, float]:
    """Return the input of a request without text, and the input of a character."""
    x, y = mean_of(pilot.size for pilot in pilots), mean_of(pilot.input_tokens for pilot in pilots)
    spread = sum((pilot.size - x) ** 2 for pilot in pilots)
    slope = sum((pilot.size - x) * (pilot.input_tokens - y) for pilot in pilots) / spread if spread else 0.0
    if not 0 < slope <= (y / x if x else 0.0):  # all prompts are of one size, or the counts are odd
        slope = y / x if x else 0.0
    return max(0.0, y - slope * x), slope


def _mean(values: Sequence[float], weights: Sequence[float]) -> Spread:
    """Return the mean output of the rest, where an output is a lognormal value times the item's weight."""
    logs = [math.log(max(value, 1e-9)) for value in values]
    m, middle = len(logs), mean_of(logs)
    freedom = m - 1 + WEIGHT
    variance = (sum((log - middle) ** 2 for log in logs) + WEIGHT * USUAL**2) / freedom
    weight = mean_of(weights)
    rest = sum(one**2 for one in weights) / sum(weights) ** 2  # of one: how few of the rest make up the sum
    wide = QUANTILES.get(freedom, 1.8) * math.sqrt(
        variance / m + variance**2 / (2 * freedom) + (math.exp(variance) - 1) * rest
    )
    centre = middle + variance / 2
    return Spread(
        about=math.exp(centre) * weight, low=math.exp(centre - wide) * weight, high=math.exp(centre + wide) * weight
    )


def mean_of(values: Iterable[float]) -> float:
    """Return the mean; the module `statistics` takes longer to import than an agent without maps should wait."""
    found = [*values]
    return math.fsum(found) / len(found)


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


class QuotesFeature(Feature):
    """Quotes for many requests or children."""

    def attach(self, root: FeatureRoot) -> Sequence[Tap]:
        """Follow the progress of strategies."""

        def hear(event: StrategyProgress) -> None:
            if (agent := root.find(event.agent_id)) is not None:
                for part in tree_agent(agent).run.features.all(FanOuts):
                    part.report(event)

        return (hearing(hear, StrategyProgress),)

    def run(self, agent: FeatureAgent) -> "FanOuts":
        """Make the part for a run."""
        return FanOuts(tree_agent(agent))


class FanOuts(RunPart):
    """The fan-outs of one run."""

    def __init__(self, agent: TreeAgent) -> None:
        self._agent = agent
        self._calls: dict[tuple[Kind, bool], _Calls] = {}
        self._strategy: StrategyStep | None = None
        """The strategy that reported last, until its end."""

    @cached_property
    def _agreement(self) -> Agreement:
        return Agreement(self._agent)

    async def ask(self, question: Question, proceed: Callable[[Question], Awaitable[Any]]) -> Any:
        """Let code or a program ask, once it may."""
        if question.by not in ("code", "program") or question.payer is not None:
            return await proceed(question)
        of_program = question.by == "program"
        async with self._call("ask", len(question.prompt), of_program=of_program, together=question.together) as payer:
            other = None if payer.model is None else await self._agent.shared.other_models.get(payer.model)
            return await proceed(replace(question, model=other or question.model, payer=payer.account))

    async def child(self, child: NewChild, proceed: Callable[[NewChild], Awaitable[T]]) -> T:
        """Let a child be started, once it may."""
        if not child.waits:
            return await proceed(child)
        request, of_program = child.request, child.by == "program"
        async with self._call("task", len(request.prompt), of_program=of_program, together=child.together) as payer:
            if payer.model is not None and request.resume is None:  # a child that is resumed keeps its own
                request = request.replace(model=payer.model)
            return await proceed(replace(child, request=request, payer=payer.account))

    async def run(
        self,
        what: str,
        model: Model,
        items: Sequence[T],
        size: Callable[[T], int],
        work: Callable[[T, Payer], Awaitable[None]],
    ) -> None:
        """Do work that does not raise on each item of a list.

        Args:
            what: The fan-out's name for people.
            model: The model to ask.
            items: The items, one request each.
            size: Returns the characters of an item's prompt.
            work: Makes the request.

        Raises:
            ApprovalDeniedError: A person or a rule does not want the rest.
        """
        models, payer = self._agent.shared.config.models, Payer()
        if len(items) > models.quote_above:
            chosen, pilots = {*chance.sample(range(len(items)), PILOTS)}, list[Pilot]()

            async def pilot(item: T) -> None:
                with _measured(self._agent, size(item), None, pilots) as account:
                    await work(item, Payer(account=account))

            async with asyncio.TaskGroup() as group:
                for at in chosen:
                    group.create_task(pilot(items[at]))
            items = [item for at, item in enumerate(items) if at not in chosen]
            if pilots:  # else nothing is known; what fails costs nothing
                rest = Rest(
                    what=what,
                    pilots=pilots,
                    sizes=[*map(size, items)],
                    price=price_of(model),
                    at_once=models.max_concurrent,
                )
                payer = await self._agreement.on(rest)
        await side_by_side(self._agent, items, lambda item: work(item, payer))

    def report(self, step: StrategyStep) -> None:
        """Note the progress of a strategy."""
        if self._strategy is None or self._strategy.strategy_id != step.strategy_id:
            for calls in self._calls.values():
                calls.before = calls.begun
        self._strategy = None if step.done else step

    @asynccontextmanager
    async def _call(self, kind: Kind, size: int, *, of_program: bool = False, together: int = 1) -> AsyncIterator[Payer]:
        """Let one call be made in the block, once it may be; yield its payer.

        Args:
            kind: The kind; `task` starts a child.
            size: The characters of the prompt.
            of_program: Whether a program makes the call.
            together: The length of the list that holds the call; 1 if none is known.

        Raises:
            ApprovalDeniedError: A person or a rule does not want so many.
        """
        if not self.is_long(together) and not (self._strategy is not None and self.is_long(self._strategy.of)):
            yield Payer()
            return
        calls = self._calls_of(kind, of_program)
        payer = await self._admitted(calls, size, together)
        calls.at_work.append(size)
        try:
            with _measured(self._agent, size, payer.account, calls.pilots) as account:
                yield replace(payer, account=account)
        finally:
            calls.at_work.remove(size)
            calls.changed.set()
            if calls.is_free and calls.at_work and len(calls.pilots) >= PILOTS and not calls.is_told:
                calls.is_told = True
                self._agreement.tell(self._rest(calls, calls.at_work))

    def is_long(self, length: int | None) -> bool:
        """Return whether a list is quoted. Args: length: None: not known."""
        return length is not None and length > self._agent.shared.config.models.quote_above

    async def _admitted(self, calls: "_Calls", size: int, together: int) -> Payer:
        """Wait until a call may be made, and return its payer."""
        if self.is_long(together) and calls.begun >= calls.listed:
            calls.listed = calls.begun + together
        calls.begun += 1
        if len(calls.pilots) + len(calls.at_work) < PILOTS:
            return Payer()
        if await self._agreement.asks_nobody():  # so it need not wait for a quote
            calls.is_free = True
            return Payer()
        calls.waiting.append(size)
        try:
            async with calls.deciding:
                if not calls.admitted:
                    await self._decide(calls)
                calls.admitted -= 1
                return calls.payer
        finally:
            calls.waiting.remove(size)

    async def _decide(self, calls: "_Calls") -> None:
        if calls.denied is not None:
            raise ApprovalDeniedError(calls.denied)
        await calls.until_known()
        more = self._left(calls, calls.waiting)
        if calls.pilots:  # else nothing is known, see `run`
            try:
                payer = await self._agreement.on(self._rest(calls, calls.waiting))
                calls.payer = replace(payer, model=payer.model or calls.payer.model)
            except ApprovalDeniedError as error:
                calls.denied = error.reason
                raise
        calls.admitted = more

    def _left(self, calls: "_Calls", present: Sequence[int]) -> int:
        """Return the number of calls that are left. Args: present: the sizes of the calls that have come."""
        made, step = calls.begun - len(present), self._strategy
        if step is None or step.of is None:
            return max(len(present), calls.listed - made)
        return max(len(present), step.of - max(made - calls.before, step.step))

    def _rest(self, calls: "_Calls", present: Sequence[int]) -> Rest:
        """Return the rest. Args: present: the sizes of the calls that have come."""
        pilots, config = calls.pilots[-MOST_PILOTS:], self._agent.shared.config
        usual = round(mean_of(pilot.size for pilot in calls.pilots))
        sizes = [*present, *[usual] * (self._left(calls, present) - len(present))]
        return Rest(
            what=calls.kind if self._strategy is None else self._strategy.strategy,
            pilots=pilots,
            sizes=sizes,
            price=price_paid(pilots),
            at_once=(config.models if calls.kind == "ask" else config.subagents).max_concurrent,
            single=calls.kind == "ask",
        )

    def _calls_of(self, kind: Kind, of_program: bool) -> "_Calls":
        strategy = self._strategy.strategy_id if of_program and self._strategy is not None else ""
        unit = (self._agent.run.account.taken("turns"), strategy)
        found = self._calls.get((kind, of_program))
        if found is None or found.unit != unit:
            found = self._calls[kind, of_program] = _Calls(kind=kind, unit=unit)
        return found


@contextmanager
def _measured(agent: TreeAgent, size: int, payer: Account | None, pilots: list[Pilot]) -> Iterator[Account]:
    """Yield an account for one item, which becomes a pilot, unless it fails or its answer was known.

    Args:
        agent: The payer.
        size: The characters of the item's prompt.
        payer: The account above it. None: that of the agent's run.
        pilots: The list for the pilot.
    """
    above, began = payer or agent.run.account, time.monotonic()
    account = Account(ledger=above.ledger, owner=agent.agent_id, budget=Budget(), parent=above)
    try:
        yield account
    finally:
        usage = account.usage
        if usage.input_tokens:
            pilot = Pilot(
                size=size,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cost_usd=usage.cost_usd,
                seconds=time.monotonic() - began,
            )
            pilots.append(pilot)


@dataclass(kw_only=True, eq=False)
class _Calls:
    """The calls of one kind in one turn."""

    kind: Kind
    unit: tuple[int, str]
    begun: int = 0
    """Calls that have begun, including those that wait."""
    listed: int = 0
    """The number that will have begun once the latest long list has."""
    before: int = 0
    """Calls that are older than the present strategy."""
    at_work: list[int] = field(default_factory=list)
    """Sizes of the prompts of calls at work."""
    waiting: list[int] = field(default_factory=list)
    """Sizes of the prompts of calls that may not begin yet."""
    is_free: bool = False
    """Whether no call has to wait, because nobody is asked."""
    is_told: bool = False
    """Whether a notice has told the quote."""
    admitted: int = 0
    """Calls that may begin before the next quote."""
    payer: Payer = field(default_factory=Payer)
    denied: str | None = None
    """The reason why no more may begin."""
    pilots: list[Pilot] = field(default_factory=list)
    deciding: asyncio.Lock = field(default_factory=asyncio.Lock)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def until_known(self) -> None:
        """Wait until enough have ended to estimate the rest, or all have."""
        while len(self.pilots) < PILOTS and self.at_work:
            self.changed.clear()
            await self.changed.wait()


async def side_by_side(agent: TreeAgent, items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Do work that does not raise on each item, as many at once as models may be asked; items are taken as needed."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(worker()) for _ in range(agent.shared.config.models.max_concurrent)]
    if any(worker.cancelled() for worker in workers):
        raise asyncio.CancelledError  # the end of the run has ended them, and not all is done
