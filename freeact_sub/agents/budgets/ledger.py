"""`Ledger`: what all runs of one root may still spend; each run has an `Account` in it.

An amount is reserved before a model request, in the account of the agent that makes it and in those of all its ancestors,
and settled when the response is there. Between the look at what is left and the reservation there is no `await`, and all
agents of a root live in one event loop: that is the lock. A request that would fit if the requests in flight turned out
smaller than what they have reserved waits for them to end; it waits for nothing else, so nobody waits for ever.

What was taken is booked as the `Usage` of the account and of all above it. What a run tells of its usage is read there, so
that there is one book. What is bounded and counted one by one, as `Budget.turns` is, stands in `Account.counts` by its name
in the budget: a new bound of this kind is a field of `Budget`, and a call of `take` where it counts.

A run's last report (the salvage) is paid from an amount that is reserved for it from its first request on; before that there
is nothing to report. What a request may use at most is estimated (`estimate.py`) and, where a bound on tokens or money
counts, passed to the provider as `max_tokens`. A bound is exceeded only by what a provider spends past that.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

from freeact_sub.agents.budgets.estimate import NOTHING, Amount, Estimate
from freeact_sub.config.budget import Budget, Usage
from freeact_sub.errors import FreeactError, LimitReachedError

MIN_OUTPUT_TOKENS: Final = 256
"""A request that could not even answer this much is not made."""
AMOUNTS: Final = ("tokens", "cost_usd")
"""Bounds on what is known only after a request: the fields of `Amount`."""


class Reservation:
    """An amount set aside for one request."""

    def __init__(self, account: "Account", estimate: Estimate, output_tokens: int) -> None:
        self._account = account
        self._amount = estimate.amount(output_tokens)
        self.output_tokens = output_tokens
        """The request must not answer more."""
        account.open_reservation = self
        for above in account.self_and_ancestors():
            above.in_flight += self._amount

    def settle(self, usage: Usage) -> None:
        """The request has ended, and took this much."""
        self._account.book(usage)
        self.give_up()

    def give_up(self) -> None:
        """The request has ended, and what it took is booked."""
        account = self._account
        if account.open_reservation is not self:
            return
        account.open_reservation = None
        for above in account.self_and_ancestors():
            above.in_flight -= self._amount
        account.ledger.wake()


@dataclass(kw_only=True, eq=False)
class Account:
    """What one run may spend, and has spent, with all its descendants."""

    ledger: "Ledger"
    owner: str
    """The agent's id."""
    budget: Budget
    parent: "Account | None" = None
    counts: Counter[str] = field(default_factory=Counter)
    """What was taken one by one, by its name in the budget; of the whole subtree, except for what is the agent's own
    (`Budget.OWN`). The requests are all that were made, failed ones included, and those reserved for last reports."""
    usage: Usage = Usage()
    """What the run and its descendants have spent."""
    in_flight: Amount = NOTHING
    """Reserved for requests that have not ended."""
    for_reports: Amount = NOTHING
    """Reserved for last reports in the whole subtree."""
    for_own_report: Amount = NOTHING
    has_report_request: bool = False
    """A request is reserved for its own last report."""
    open_reservation: Reservation | None = None

    def self_and_ancestors(self) -> Iterator["Account"]:
        """This account, its parent's, and so on up to the root's."""
        account: Account | None = self
        while account is not None:
            yield account
            account = account.parent

    @property
    def spent(self) -> Amount:
        """What of its usage is bounded."""
        return Amount(tokens=self.usage.tokens, cost_usd=self.usage.cost_usd or Decimal(0))

    @property
    def counts_amounts(self) -> bool:
        """Whether tokens or money are bounded here or above."""
        return any(account.amount_bounds() for account in self.self_and_ancestors())

    def amount_bounds(self) -> dict[str, Any]:
        """The bounds on amounts that there are, by name."""
        return {name: bound for name in AMOUNTS if (bound := getattr(self.budget, name)) is not None}

    def book(self, usage: Usage) -> None:
        """Count what was spent, here and in all accounts above."""
        self.ledger.spent += usage
        for above in self.self_and_ancestors():
            above.usage += usage

    def remaining(self, *, seconds: float | None = None) -> Budget:
        """What a child may be given now. Args: seconds: what is left of the run's time."""
        bounds: dict[str, Any] = {}
        for name in Budget.model_fields:
            limited = [account for account in self._counting(name) if account.bound(name) is not None]
            bounds[name] = min((max(0, account.bound(name) - account.taken(name)) for account in limited), default=None)
        bounds["seconds"] = None if seconds is None else max(0.0, seconds)
        bounds["depth"] = None if self.budget.depth is None else max(0, self.budget.depth - 1)
        return Budget(**bounds)

    def bound(self, name: str) -> Any:
        """By its name in the budget."""
        return getattr(self.budget, name)

    def taken(self, name: str) -> Any:
        """What counts against a bound, by its name in the budget; requests in flight are left out."""
        return getattr(self.spent, name) if name in AMOUNTS else self.counts[name]

    def check(self, name: str, wanted: int = 1) -> None:
        """Raise LimitReachedError if so many more of what is counted one by one cannot be taken."""
        for account in self._counting(name):
            bound = account.bound(name)
            if bound is not None and account.counts[name] + wanted > bound:
                raise account.limit_error(name, account.counts[name], bound)

    def count(self, name: str, number: int = 1) -> None:
        """Count what is taken, here and, where descendants count as well, above."""
        for account in self._counting(name):
            account.counts[name] += number

    def take(self, name: str) -> None:
        """Count one more.

        Raises:
            LimitReachedError: There is none left.
        """
        self.check(name)
        self.count(name)

    def _counting(self, name: str) -> Iterator["Account"]:
        return iter((self,)) if name in Budget.OWN else self.self_and_ancestors()

    def check_request(self) -> None:
        """Raise LimitReachedError if it is certain that not even a first request can be made."""
        self.check("turns")
        self.check("requests", 1 - self.has_report_request)
        for above in self.self_and_ancestors():
            least = {"tokens": MIN_OUTPUT_TOKENS, "cost_usd": 0}
            for name, bound in above.amount_bounds().items():
                taken = above.taken(name)
                if taken + least[name] > bound or taken >= bound:
                    raise above.limit_error(name, taken, bound)

    def check_spawn(self) -> None:
        """Raise LimitReachedError if no child may be started any more, or if it would get no turn."""
        self.check("turns")
        self.check("requests")
        self.check("children")

    def take_request(self, *, report_follows: bool) -> None:
        """Count a model request that is about to be made. Args: report_follows: one is reserved for a last report.

        Raises:
            LimitReachedError: There is none left.
        """
        try:
            self.check("requests", 1 + report_follows - self.has_report_request)
        except LimitReachedError:
            if not report_follows or self.counts["turns"]:
                raise
            # a first request that leaves none for a last report is better than none: it may well be the answer
            report_follows = False
            self.check("requests", 1 - self.has_report_request)
        self._reserve_request(reserve=report_follows)
        self.count("requests")

    def _reserve_request(self, *, reserve: bool) -> None:
        self.count("requests", reserve - self.has_report_request)
        self.has_report_request = reserve

    def limit_error(
        self, limit: str, amount: float | Decimal, bound: float | Decimal, needed: float | Decimal | None = None
    ) -> LimitReachedError:
        """The error that names the limit, and whose it is. Args: needed: what one more request takes, if that is known."""
        of_child = f"`subagents.budget.{limit}`, or what it was given"
        return LimitReachedError(
            limit,
            amount=float(amount),
            bound=float(bound),
            owner=self.owner,
            setting=f"`budget.{limit}`" if self.parent is None else of_child,
            needed=None if needed is None else float(needed),
        )

    def shortage(self, needed: Amount) -> LimitReachedError | None:
        """The error for a request that needs more than this account has left. None: it has enough."""
        taken = self.spent + self.in_flight + needed
        for name, bound in self.amount_bounds().items():
            if getattr(taken, name) > bound or not bound:
                return self.limit_error(name, self.taken(name), bound, getattr(needed, name))
        return None

    def check_again(self) -> None:
        """Raise LimitReachedError if the request in flight, which was cut off and is booked, cannot be made once more."""
        for above in self.self_and_ancestors():
            if (error := above.shortage(NOTHING)) is not None:
                raise error

    def amount_error(self) -> LimitReachedError:
        """The error for tokens or money: for that of which the smallest part is left, here or above."""
        candidates = [
            (1 - float(above.taken(name) / bound) if bound else 0.0, above.limit_error(name, above.taken(name), bound))
            for above in self.self_and_ancestors()
            for name, bound in above.amount_bounds().items()
        ]
        return min(candidates, key=lambda candidate: candidate[0])[1]

    def reserve_for_report(self, amount: Amount) -> None:
        """Reserve this much for a last report, instead of what is reserved for it now."""
        change, self.for_own_report = amount - self.for_own_report, amount
        for above in self.self_and_ancestors():
            above.for_reports += change

    def withdraw(self) -> None:
        """The run will never begin: nothing was spent, its start included."""
        self.close()
        if self.parent is not None:
            self.parent.count("children", -1)

    def close(self) -> None:
        """The run has ended: nothing stays reserved for it."""
        if self.open_reservation is not None:
            self.open_reservation.give_up()
        self.reserve_for_report(NOTHING)
        self._reserve_request(reserve=False)
        self.ledger.wake()


class Ledger:
    """All accounts of one root."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Event] = []
        self.spent = Usage()
        """By all runs of the root."""

    @property
    def waiting(self) -> int:
        """How many requests wait for others to end."""
        return len(self._waiting)

    def open(self, owner: str, budget: Budget, parent: Account | None = None) -> Account:
        """Open the account of a run. A child's budget is cut, and `check_spawn` has passed, in this very step."""
        account = Account(ledger=self, owner=owner, budget=budget, parent=parent)
        if parent is not None:
            parent.count("children")
        return account

    async def reserve(self, account: Account, estimate: Estimate, *, last: bool = False, wait: bool = True) -> Reservation:
        """Set aside what a request may take, in its account and all above; wait while requests in flight may leave enough.

        Args:
            account: Of the agent that makes the request.
            estimate: What the request may use.
            last: It is a last report: what is reserved for it may be used, and nothing is after it.
            wait: False: what does not fit at this moment is refused.

        Raises:
            LimitReachedError: There is not enough left.
            FreeactError: Money is bounded, and the model's price is not known.
        """
        while True:
            granted = self._try(account, estimate, last=last)
            if granted is not None:
                return granted
            if not wait:
                raise account.amount_error()
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

    def _try(self, account: Account, estimate: Estimate, *, last: bool) -> Reservation | None:
        """One look and, if it fits, the reservation, without an `await` between; None: there is something to wait for."""
        output_tokens = estimate.output_tokens
        while account.counts_amounts and (short := _short_of(account, estimate, output_tokens, last=last)) is not None:
            above, error = short
            if above.in_flight != NOTHING:
                return None
            if output_tokens > MIN_OUTPUT_TOKENS:
                output_tokens = max(MIN_OUTPUT_TOKENS, output_tokens // 2)
            elif not account.counts["turns"] and estimate.report_tokens:
                # a first request that leaves nothing for a last report is better than none: it may well be the answer
                estimate = replace(estimate, report_tokens=0)
                output_tokens = estimate.output_tokens
            else:
                raise error
        account.take_request(report_follows=bool(estimate.report_tokens))
        account.reserve_for_report(NOTHING if last else estimate.report_amount(output_tokens))
        return Reservation(account, estimate, output_tokens)


def _short_of(
    account: Account, estimate: Estimate, output_tokens: int, *, last: bool
) -> tuple[Account, LimitReachedError] | None:
    """The account that has too little left, if there is one, and the error that says so."""
    needed = estimate.amount(output_tokens) - account.for_own_report
    if not last:
        needed += estimate.report_amount(output_tokens)
    for above in account.self_and_ancestors():
        if above.budget.cost_usd and estimate.price(estimate.input_tokens, output_tokens) is None:
            raise FreeactError(
                "a budget of cost_usd cannot be kept: the price of the model is not known; give a budget of tokens instead"
            )
        if (error := above.shortage(needed + above.for_reports)) is not None:
            return above, error
    return None
