"""`Booking`: reserves, makes and counts the model requests of one run, or of one ask, one after another.

Every request is booked exactly once. A request that was cut off is booked with an estimate.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal

from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.usage import RequestUsage

from freeact_sub.agents.budgets.estimate import (
    BYTES_PER_TOKEN,
    REPORT_TOKENS,
    Estimate,
    estimate_input,
    estimate_request,
    price_of,
    size_of,
    with_max_tokens,
)
from freeact_sub.agents.budgets.ledger import Account, Reservation
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.config.budget import Usage
from freeact_sub.events import UsageUpdated
from freeact_sub.models.observers import Attempt, Bill, charge_to


class Booking:
    """Pays for the requests of one agent."""

    def __init__(self, agent: TreeAgent, account: Account, *, of_conversation: bool = True) -> None:
        """Begin.

        Args:
            agent: The agent.
            account: Pays for the requests: the agent's, or a descendant's.
            of_conversation: The requests carry the agent's conversation. False: they are questions beside it.
        """
        self._agent = agent
        self._account = account
        self._of_conversation = of_conversation
        self._reservation: Reservation | None = None
        self._bill = Bill(book=self._book_cut_off, check_again=account.check_again)
        self.shortened = False
        """The request's output is bounded by the budget."""

    @contextmanager
    def open(self) -> Iterator[None]:
        """Requests are made inside this block; leaving it ends an open one."""
        try:
            with charge_to(self._bill):
                yield
        finally:
            self.give_up()

    async def reserve(
        self, request: ModelRequestContext, *, salvage: bool, last: bool = False, wait: bool = True
    ) -> ModelRequestContext:
        """Reserve what a request may take, and return the request to send.

        Args:
            request: The request as prepared.
            salvage: A last report may follow at a limit.
            last: This is the last report.
            wait: Wait for other requests that may leave enough.

        Raises:
            LimitReachedError: There is not enough left.
            FreeactError: Money is bounded, and the model's price is unknown.
        """
        account = self._account
        self._give_back()  # of a request that this one continues
        priced = any(above.bound("cost_usd") is not None for above in account.self_and_ancestors())
        estimate = estimate_request(request, priced=priced, last=last) if account.counts_amounts else Estimate()
        if salvage and not last:
            estimate = replace(estimate, report_tokens=REPORT_TOKENS)
        self._reservation = await account.ledger.reserve(account, estimate, last=last, wait=wait)
        if not account.counts_amounts:
            return request
        self.shortened = self._reservation.output_tokens < estimate.output_tokens
        return replace(request, model_settings=with_max_tokens(request, self._reservation.output_tokens))

    @property
    def is_open(self) -> bool:
        """Whether a request is being made."""
        return self._reservation is not None

    @contextmanager
    def paid(self) -> Iterator[None]:
        """A request is made inside the block; one that brings no response is given up."""
        try:
            yield
        except BaseException:
            self.give_up()
            raise

    async def settle(self, response: ModelResponse) -> None:
        """Book an answered request."""
        attempt, self._bill.attempt = self._bill.attempt, None
        usage = usage_of(response, attempt)
        self._book(usage)
        self.give_up()
        context_tokens = usage.input_tokens + usage.output_tokens if self._of_conversation else None
        await self._agent.emitter.emit(self._updated(context_tokens))

    def give_up(self) -> None:
        """End the request; one without an answer is booked as far as it got. Can be called again."""
        if self._bill.attempt is not None:
            self._bill.close()
        self._give_back()

    def _give_back(self) -> None:
        if self._reservation is not None:
            self._reservation.give_up()
            self._reservation = None

    def _book_cut_off(self, attempt: Attempt) -> None:
        self._book(usage_of_cut_off(attempt))
        self._agent.emitter.put(self._updated())

    def _book(self, usage: Usage) -> None:
        self._account.book(usage)

    def _updated(self, context_tokens: int | None = None) -> UsageUpdated:
        account = self._agent.run.account
        return UsageUpdated(
            usage=account.own_usage,
            tree_usage=account.usage,
            context_tokens=context_tokens,
            window_tokens=self._agent.window_tokens,
        )


def usage_of(response: ModelResponse, attempt: Attempt | None) -> Usage:
    """Return the usage of a response. Args: attempt: produced it. None: nothing was sent."""
    tokens, cost = response.usage, _cost_of(response)
    # some servers count the one and not the other
    estimated = attempt is not None and not (tokens.input_tokens and (tokens.output_tokens or not response.parts))
    if attempt is not None and estimated:
        tokens, cost = _estimated(attempt, response), None
    if attempt is not None and cost is None:
        cost = price_of(attempt.model)(tokens)
    return _usage(tokens, cost, turns=1, estimated=estimated)


def usage_of_cut_off(attempt: Attempt) -> Usage:
    """Return the usage of an attempt whose answer nobody received: an estimate, unless the answer had arrived."""
    if attempt.response is not None:
        return usage_of(attempt.response, attempt)
    tokens = _estimated(attempt, attempt.received)
    return _usage(tokens, price_of(attempt.model)(tokens), turns=0, estimated=True)


def _usage(tokens: RequestUsage, cost: Decimal | None, *, turns: int, estimated: bool) -> Usage:
    return Usage(
        turns=turns,
        input_tokens=tokens.input_tokens,
        output_tokens=tokens.output_tokens,
        cache_read_tokens=tokens.cache_read_tokens,
        cache_write_tokens=tokens.cache_write_tokens,
        cost_usd=cost,
        unpriced_turns=int(cost is None),
        estimated_requests=int(estimated),
    )


def _estimated(attempt: Attempt, response: ModelResponse | None) -> RequestUsage:
    """Return the tokens sent and received, counted by the provider where it has counted."""
    counted = RequestUsage() if response is None else response.usage
    received = 0 if response is None else sum(size_of(part) for part in response.parts) // BYTES_PER_TOKEN
    return replace(
        counted,
        input_tokens=counted.input_tokens or estimate_input(attempt.messages, attempt.parameters),
        output_tokens=max(counted.output_tokens, received),
    )


def _cost_of(response: ModelResponse) -> Decimal | None:
    try:
        return response.cost().total_price
    except (LookupError, ValueError):
        return None
