"""`Ledger`: what all runs of one root may still spend; each run has an `Account` in it.

An amount is reserved before a model request, in the account of the agent that makes it and in those of all its ancestors,
and settled when the response is there. Between the look at what is left and the reservation there is no `await`, and all
agents of a root live in one event loop: that is the lock. A request that would fit if the requests in flight turned out
smaller than what they have reserved waits for them to end; it waits for nothing else, so nobody waits for ever.

A run's last report (the salvage) is paid from an amount that is held from its first request on; before that there is
nothing to report. What a request may use at most is estimated (`quote.py`) and, where a bound on tokens or money counts,
passed to the provider as `max_tokens`. A bound is exceeded only by what a provider spends past that.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final, TypeVar

from freeact_sub.budget import Budget
from freeact_sub.errors import FreeactError, LimitReachedError

_Number = TypeVar("_Number", int, Decimal)

MIN_OUTPUT_TOKENS: Final = 256
"""A request that could not even answer this much is not made."""
SALVAGE_OUTPUT_TOKENS: Final = 512
"""What is held for the text of a last report."""


@dataclass(frozen=True, kw_only=True)
class Amount:
    """What is bounded for a whole subtree and known only after a request."""

    tokens: int = 0
    cost_usd: Decimal = Decimal(0)

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(tokens=self.tokens + other.tokens, cost_usd=self.cost_usd + other.cost_usd)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(tokens=self.tokens - other.tokens, cost_usd=self.cost_usd - other.cost_usd)


NOTHING: Final = Amount()


@dataclass(frozen=True, kw_only=True)
class Quote:
    """What a request may use at most."""

    input_tokens: int
    output_tokens: int
    price: Callable[[int, int], Decimal | None] = field(default=lambda _input, _output: None)
    """Of input and output tokens. None: the price is not known."""
    held_output_tokens: int = 0
    """What to hold for a last report after this request; 0: there will be none."""

    def amount(self, output_tokens: int) -> Amount:
        """What the request takes with so much output."""
        return self._of(self.input_tokens, output_tokens)

    def held(self, output_tokens: int) -> Amount:
        """What the last report takes, after a response of so much output."""
        if not self.held_output_tokens:
            return NOTHING
        return self._of(self.input_tokens + output_tokens, self.held_output_tokens)

    def _of(self, input_tokens: int, output_tokens: int) -> Amount:
        return Amount(tokens=input_tokens + output_tokens, cost_usd=self.price(input_tokens, output_tokens) or Decimal(0))


class Reservation:
    """An amount set aside for one request."""

    def __init__(self, account: "Account", quote: Quote, output_tokens: int) -> None:
        self._account = account
        self._quote = quote
        self._amount = quote.amount(output_tokens)
        self.output_tokens = output_tokens
        """The request must not answer more."""

    def settle(self, tokens: int, cost_usd: Decimal | None) -> None:
        """The request has ended, and took this much; without a known price, what was reserved."""
        self._end(Amount(tokens=tokens, cost_usd=self._amount.cost_usd if cost_usd is None else cost_usd))

    def give_up(self) -> None:
        """The request was broken off: its input was sent, and nobody knows what the provider counts of its output."""
        self._end(self._quote.amount(0))

    def _end(self, spent: Amount) -> None:
        account = self._account
        if account.open_reservation is not self:
            return
        account.open_reservation = None
        for above in account.chain():
            above.in_flight -= self._amount
            above.spent += spent
        account.ledger.wake()


@dataclass(kw_only=True, eq=False)
class Account:
    """What one run may spend, and has spent, with all its descendants."""

    ledger: "Ledger"
    owner: str
    """The agent's id."""
    budget: Budget
    parent: "Account | None" = None
    turns: int = 0
    tool_calls: int = 0
    children: int = 0
    """Of the whole subtree."""
    spent: Amount = NOTHING
    in_flight: Amount = NOTHING
    """Reserved for requests that have not ended."""
    held: Amount = NOTHING
    """For last reports."""
    own_hold: Amount = NOTHING
    open_reservation: Reservation | None = None

    def chain(self) -> Iterator["Account"]:
        """This account, its parent's, and so on up to the root's."""
        account: Account | None = self
        while account is not None:
            yield account
            account = account.parent

    def left(self, *, seconds: float | None = None) -> Budget:
        """What a child may be given now. Args: seconds: what is left of the run's time."""
        chain = tuple(self.chain())
        return Budget(
            turns=_left(self.budget.turns, self.turns),
            tool_calls=_left(self.budget.tool_calls, self.tool_calls),
            tokens=_least(_left(account.budget.tokens, account.spent.tokens) for account in chain),
            cost_usd=_least(_left(account.budget.cost_usd, account.spent.cost_usd) for account in chain),
            seconds=None if seconds is None else max(0.0, seconds),
            children=_least(_left(account.budget.children, account.children) for account in chain),
            depth=_left(self.budget.depth, 1),
        )

    @property
    def counts_amounts(self) -> bool:
        """Whether tokens or money are bounded here or above."""
        return any(above.budget.tokens is not None or above.budget.cost_usd is not None for above in self.chain())

    def check_left(self) -> None:
        """Raise LimitReachedError if it is certain that not even a first request can be made."""
        self.check_turns()
        for above in self.chain():
            tokens, cost = above.budget.tokens, above.budget.cost_usd
            if tokens is not None and above.spent.tokens + MIN_OUTPUT_TOKENS > tokens:
                raise above.reached("tokens", above.spent.tokens, tokens)
            if cost is not None and above.spent.cost_usd >= cost:
                raise above.reached("cost_usd", above.spent.cost_usd, cost)

    def check_spawn(self) -> None:
        """Raise LimitReachedError if no child may be started any more, or if it would get no turn."""
        self.check_turns()
        for above in self.chain():
            if above.budget.children is not None and above.children >= above.budget.children:
                raise above.reached("children", above.children, above.budget.children)

    def check_turns(self) -> None:
        """Raise LimitReachedError if there is none left."""
        if self.budget.turns is not None and self.turns >= self.budget.turns:
            raise self.reached("turns", self.turns, self.budget.turns)

    def take_tool_call(self) -> None:
        """Count a tool call that is about to run.

        Raises:
            LimitReachedError: There is none left.
        """
        if self.budget.tool_calls is not None and self.tool_calls >= self.budget.tool_calls:
            raise self.reached("tool_calls", self.tool_calls, self.budget.tool_calls)
        self.tool_calls += 1

    def reached(self, limit: str, amount: float | Decimal, bound: float | Decimal) -> LimitReachedError:
        """The error that names the limit, and whose it is."""
        return LimitReachedError(limit, amount=float(amount), bound=float(bound), owner=self.owner)

    def reached_amount(self) -> LimitReachedError:
        """The error for tokens or money: for that of which a smaller part is left, here or above."""
        candidates = [
            (1 - above.spent.tokens / tokens if tokens else 0.0, above.reached("tokens", above.spent.tokens, tokens))
            for above in self.chain()
            if (tokens := above.budget.tokens) is not None
        ] + [
            (float(1 - above.spent.cost_usd / cost) if cost else 0.0, above.reached("cost_usd", above.spent.cost_usd, cost))
            for above in self.chain()
            if (cost := above.budget.cost_usd) is not None
        ]
        return min(candidates, key=lambda candidate: candidate[0])[1]

    def hold(self, amount: Amount) -> None:
        """Hold this much for a last report, instead of what is held for it now."""
        change, self.own_hold = amount - self.own_hold, amount
        for above in self.chain():
            above.held += change

    def close(self) -> None:
        """The run has ended: nothing stays reserved or held for it."""
        if self.open_reservation is not None:
            self.open_reservation.give_up()
        self.hold(NOTHING)
        self.ledger.wake()


class Ledger:
    """All accounts of one root."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Event] = []

    def open(self, owner: str, budget: Budget, parent: Account | None = None) -> Account:
        """Open the account of a run. A child's budget is cut, and `check_spawn` has passed, in this very step."""
        account = Account(ledger=self, owner=owner, budget=budget, parent=parent)
        for above in () if parent is None else parent.chain():
            above.children += 1
        return account

    async def reserve(self, account: Account, quote: Quote, *, last: bool = False) -> Reservation:
        """Set aside what a request may take, in its account and all above; wait while requests in flight may leave enough.

        Args:
            account: Of the agent that makes the request.
            quote: What the request may use.
            last: It is a last report: what is held for it may be used, and nothing is held after it.

        Raises:
            LimitReachedError: There is not enough left.
            FreeactError: Money is bounded, and the model's price is not known.
        """
        while True:
            granted = self._try(account, quote, last=last)
            if granted is not None:
                return granted
            settled = asyncio.Event()
            self._waiting.append(settled)
            try:
                await settled.wait()
            finally:
                if settled in self._waiting:
                    self._waiting.remove(settled)

    def wake(self) -> None:
        """Something was given back: all who wait look again, in order."""
        waiting, self._waiting = self._waiting, []
        for settled in waiting:
            settled.set()

    def _try(self, account: Account, quote: Quote, *, last: bool) -> Reservation | None:
        """One look and, if it fits, the reservation, without an `await` between; None: there is something to wait for."""
        output_tokens = quote.output_tokens
        while account.counts_amounts and (short := _short_of(account, quote, output_tokens, last=last)) is not None:
            if short.in_flight != NOTHING:
                return None
            if output_tokens > MIN_OUTPUT_TOKENS:
                output_tokens = max(MIN_OUTPUT_TOKENS, output_tokens // 2)
            elif account.turns == 0 and quote.held_output_tokens:
                # a first request that leaves nothing for a last report is better than none: it may well be the answer
                quote = replace(quote, held_output_tokens=0)
                output_tokens = quote.output_tokens
            else:
                raise account.reached_amount()
        account.hold(NOTHING if last else quote.held(output_tokens))
        reservation = Reservation(account, quote, output_tokens)
        account.open_reservation = reservation
        for above in account.chain():
            above.in_flight += quote.amount(output_tokens)
        return reservation


def _short_of(account: Account, quote: Quote, output_tokens: int, *, last: bool) -> Account | None:
    """The account that has too little left, if there is one."""
    needed = quote.amount(output_tokens) - account.own_hold
    if not last:
        needed += quote.held(output_tokens)
    for above in account.chain():
        if above.budget.cost_usd and quote.price(quote.input_tokens, output_tokens) is None:
            raise FreeactError(
                "a budget of cost_usd cannot be kept: the price of the model is not known; give a budget of tokens instead"
            )
        taken = above.spent + above.in_flight + above.held + needed
        if above.budget.tokens is not None and taken.tokens > above.budget.tokens:
            return above
        bound = above.budget.cost_usd
        if bound is not None and (taken.cost_usd > bound or bound == 0):
            return above
    return None


def _left(bound: _Number | None, amount: _Number) -> _Number | None:
    return None if bound is None else max(type(bound)(0), bound - amount)


def _least(bounds: Iterable[_Number | None]) -> _Number | None:
    return min((bound for bound in bounds if bound is not None), default=None)
