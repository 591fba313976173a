"""Many requests or children of one kind (`FanOuts`). More than `models.quote_above` of them are quoted after a few.

Three items of a list (`map`, `ask_many`), chosen at random, run first. Calls that are known to be many are treated alike:
the calls of one response of the model (`task`, `delegate`), of code in a cell that begins them at once (`gather`), of a
strategy that knows its steps, of `run_parallel`. Calls that come one by one are not quoted: nobody knows how many follow.
`agreement.py` has the question.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, TypeVar

from pydantic_ai.models import Model

from freeact_sub.agents.feature import Feature, FeatureAgent, FeatureRoot, NewChild, Question, RunPart
from freeact_sub.agents.life import TreeAgent, tree_agent
from freeact_sub.agents.money import Account, Payer, price_of
from freeact_sub.channel import Tap, hearing
from freeact_sub.config.budget import Budget
from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.events import StrategyProgress
from freeact_sub.events.progress import StrategyStep
from freeact_sub.features.quotes.agreement import Agreement, Rest, price_paid
from freeact_sub.features.quotes.figures import Pilot, mean_of
from freeact_sub.system.process import chance

T = TypeVar("T")
Kind = Literal["ask", "task"]

PILOTS: Final = 3
MOST_PILOTS: Final = 50
"""The number of latest pilots that the estimate uses."""


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
