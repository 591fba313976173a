"""Money, tokens and other amounts: bounds of a request (`Estimate`), and of all runs of a root (`Ledger`).

Each run has an `Account` in the ledger.

Before a model request an amount is reserved, in the account of its agent and those of all ancestors; the response settles
it. No `await` separates the check from the reservation, and all agents of a root share one event loop: that is the lock. A
request that would fit if requests in flight used less than they reserved waits for them to end; it waits for nothing else,
so nobody waits for ever.

Spending is booked as the `Usage` of the account and of its ancestors; a run reports its usage from there, and the bounds in
`Budget.OWN` count it, so there is one book. Requests and children, which count before they are spent, stand in
`Account.counts` under their name in the budget.

A run's last report (the salvage) is paid from an amount reserved since its first request; before that there is nothing to
report. `estimate_request` makes an upper bound for a request; under a bound on tokens or money the provider gets it as
`max_tokens`. Only a provider that spends more exceeds a bound.

Without a bound on money a prompt has the usual one, which reserves nothing: a run that passes it ends after the booking.

Estimated input is the provider's count of the conversation so far plus one token for three bytes of everything new, which is
more than tokenizers produce for text or code. A picture counts as `IMAGE_TOKENS`. Output is bounded by `max_tokens`, which
the request carries to the provider.
"""

import asyncio
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, Self, cast

from pydantic_ai.messages import BinaryContent, ModelMessage, ModelResponse, ToolReturnPart
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from freeact_sub.config.budget import USUAL_COST_USD, Budget, Usage
from freeact_sub.errors import FreeactError, LimitReachedError
from freeact_sub.models.observers import models_in

OUTPUT_TOKENS: Final = 4_096
"""`max_tokens` of a request under a budget if the settings name none; current models can answer that much."""
REPORT_TOKENS: Final = 512
"""Tokens reserved for the text of a last report."""
IMAGE_TOKENS: Final = 1_600
OVERHEAD_TOKENS: Final = 64
"""Tokens for roles and separators, which providers do not report."""
BYTES_PER_TOKEN: Final = 3
OUTDATED: Final = "freeact_sub_outdated_count"
"""A mark in the metadata of responses (`outdated`)."""
LEAST_COUNT: Final = 0.6
"""The least share of our estimate that a provider's count must reach; a lower one, such as new tokens only, is ignored."""


@dataclass(frozen=True, kw_only=True)
class Amount:
    """Quantities that are bounded for a whole subtree and known only after a request; `Budget` and `Usage` have them too."""

    tokens: int = 0
    cost_usd: Decimal = Decimal(0)

    @classmethod
    def of(cls, usage: Usage) -> Self:
        """Return the bounded part of a usage; unknown amounts count as nothing."""
        return cls(**{name: known for name in AMOUNTS if (known := getattr(usage, name)) is not None})

    def __add__(self, other: Self) -> Self:
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in AMOUNTS})

    def __sub__(self, other: Self) -> Self:
        return replace(self, **{name: getattr(self, name) - getattr(other, name) for name in AMOUNTS})


AMOUNTS: Final = tuple(amount.name for amount in fields(Amount))
"""Bounds whose use is known only after a request."""
NOTHING: Final = Amount()
LEAST: Final = Amount(tokens=256)
"""The least output worth a request."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An upper bound on the usage of a request."""

    input_tokens: int = 0
    output_tokens: int = 0
    price: Callable[[int, int], Decimal | None] = field(default=lambda _input, _output: None)
    """A function that returns the price of input and output tokens. None: unknown."""
    report_tokens: int = 0
    """Output tokens reserved for a last report that may follow at a limit. 0: none follows."""

    def amount(self, output_tokens: int) -> Amount:
        """Return the bound for the request with this much output."""
        return self._of(self.input_tokens, output_tokens)

    def report_amount(self, output_tokens: int) -> Amount:
        """Return the bound for a last report after a response with this much output."""
        return self._of(self.input_tokens + output_tokens, self.report_tokens) if self.report_tokens else NOTHING

    def _of(self, input_tokens: int, output_tokens: int) -> Amount:
        return Amount(tokens=input_tokens + output_tokens, cost_usd=self.price(input_tokens, output_tokens) or Decimal(0))


def estimate_request(request: ModelRequestContext, *, priced: bool, last: bool = False) -> Estimate:
    """Estimate a request.

    Args:
        request: The request as prepared.
        priced: Whether money is bounded.
        last: Whether this is a last report.
    """
    settings: Any = request.model_settings or {}
    wanted = int(settings.get("max_tokens") or OUTPUT_TOKENS)
    return Estimate(
        input_tokens=estimate_input(request.messages, request.model_request_parameters),
        output_tokens=min(wanted, REPORT_TOKENS * 2) if last else wanted,
        price=highest_price_of(request.model) if priced else lambda _input, _output: None,
    )


def with_max_tokens(request: ModelRequestContext, output_tokens: int) -> ModelSettings:
    """Return the request's settings with a bound on its output."""
    return cast("ModelSettings", {**(request.model_settings or {}), "max_tokens": output_tokens})


def estimate_input(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
    """Return an upper estimate of the tokens that a request sends."""
    known, new = _counted(messages)
    return known + _tokens(new) if known else estimate_uncounted(messages, parameters)


def estimate_uncounted(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
    """Return the estimate without the provider's counts."""
    return _tokens(messages, more=instructions_size(parameters) + tools_size(parameters))


def instructions_size(parameters: ModelRequestParameters) -> int:
    """Return the bytes of the instructions."""
    return sum(len(part.content.encode()) for part in parameters.instruction_parts or [])


def tools_size(parameters: ModelRequestParameters) -> int:
    """Return the bytes of the tool definitions."""
    return sum(
        len(json.dumps(tool.parameters_json_schema)) + len(tool.name) + len(tool.description or "")
        for tool in (*parameters.function_tools, *parameters.output_tools)
    )


def outdated(messages: Iterable[ModelMessage]) -> Iterator[ModelMessage]:
    """Yield the messages, marked as counted by the provider in a longer conversation."""
    for message in messages:
        if isinstance(message, ModelResponse) and message.usage.input_tokens:
            yield replace(message, metadata={**(message.metadata or {}), OUTDATED: True})
        else:
            yield message


def _tokens(messages: Sequence[ModelMessage], *, more: int = 0) -> int:
    size = more + sum(size_of(part) for message in messages for part in message.parts)
    return size // BYTES_PER_TOKEN + OVERHEAD_TOKENS * (1 + len(messages))


def highest_price_of(model: Model) -> Callable[[int, int], Decimal | None]:
    """Return the highest price of input and output tokens of a model: all the input may be written to the cache."""
    price = price_of(model)

    @lru_cache(maxsize=16)  # a request asks for the same few prices once for each agent above it
    def highest(input_tokens: int, output_tokens: int) -> Decimal | None:
        plain = RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens)
        prices = [price(plain), price(replace(plain, cache_write_tokens=input_tokens))]
        return max((known for known in prices if known is not None), default=None)

    return highest


def price_of(model: Model) -> Callable[[RequestUsage], Decimal | None]:
    """Return the price function of a model; for fallback models the highest price counts."""
    models = models_in(model)

    def price(usage: RequestUsage) -> Decimal | None:
        prices = [_price(inner, usage) for inner in models]
        known = [one for one in prices if one is not None]
        return max(known) if len(known) == len(prices) else None

    return price


def _price(model: Model, usage: RequestUsage) -> Decimal | None:
    """Look the price up by provider and name, or by name alone for a wrapped model."""
    for provider in (model.system, None):
        response = ModelResponse(parts=[], usage=usage, model_name=model.model_name, provider_name=provider)
        response.provider_url = model.base_url
        try:
            return response.cost().total_price
        except (LookupError, ValueError):
            continue
    return None


def _counted(messages: Sequence[ModelMessage]) -> tuple[int, Sequence[ModelMessage]]:
    """Return the provider's count of the conversation and the messages added since."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, ModelResponse) and message.usage.input_tokens and OUTDATED not in (message.metadata or {}):
            return message.usage.input_tokens + message.usage.output_tokens, messages[index + 1 :]
    return 0, messages


def size_of(part: Any) -> int:
    """Return the bytes of a part as text; a picture counts as the bytes of `IMAGE_TOKENS`."""
    if hasattr(part, "args_as_json_str"):
        return len(part.args_as_json_str().encode()) + len(part.tool_name)
    content = getattr(part, "content", "")
    items = content if isinstance(content, list | tuple) else [content]
    return sum(_item_size(item) for item in items)


def _item_size(item: Any) -> int:
    if isinstance(item, BinaryContent):
        return IMAGE_TOKENS * BYTES_PER_TOKEN
    return len((item if isinstance(item, str) else str(item)).encode(errors="replace"))


@dataclass(frozen=True, kw_only=True)
class ContextUse:
    """Estimates, in tokens. If the provider has counted the conversation, they add up to its count."""

    window_tokens: int | None
    """The size of the window. None: unknown (setting `context.window_tokens`)."""
    instructions: int
    tools: int
    """Tool definitions; 0 before the first request."""
    messages: int
    """Prompts, the model's replies and the code in them."""
    outputs: int
    """Outputs of cells and results of other tools."""

    @property
    def tokens(self) -> int:
        """The sum."""
        return self.instructions + self.tools + self.messages + self.outputs


def request_tokens(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
    """Return a request's tokens: the provider's count plus an upper estimate of the rest."""
    return max(estimate_input(messages, parameters), round(estimate_uncounted(messages, parameters) * LEAST_COUNT))


def context_use(
    messages: Sequence[ModelMessage], parameters: ModelRequestParameters, window_tokens: int | None
) -> ContextUse:
    """Return the use of the window. Args: parameters: those of the last request."""
    uncounted = estimate_uncounted(messages, parameters)
    factor = request_tokens(messages, parameters) / uncounted / BYTES_PER_TOKEN
    parts = [part for message in messages for part in message.parts]
    outputs = sum(size_of(part) for part in parts if isinstance(part, ToolReturnPart))
    instructions, tools = instructions_size(parameters), tools_size(parameters)
    others = uncounted * BYTES_PER_TOKEN - outputs - instructions - tools
    return ContextUse(
        window_tokens=window_tokens,
        instructions=round(instructions * factor),
        tools=round(tools * factor),
        messages=round(others * factor),
        outputs=round(outputs * factor),
    )


class Reservation:
    """An amount set aside for one request."""

    def __init__(self, account: "Account", estimate: Estimate, output_tokens: int) -> None:
        self._account = account
        self._amount = estimate.amount(output_tokens)
        self.output_tokens = output_tokens
        """The bound on the request's output."""
        account.open_reservation = self
        for above in account.self_and_ancestors():
            above.in_flight += self._amount

    def give_up(self) -> None:
        """Release the reservation of a request that is booked."""
        account = self._account
        if account.open_reservation is not self:
            return
        account.open_reservation = None
        for above in account.self_and_ancestors():
            above.in_flight -= self._amount
        account.ledger.wake()


@dataclass(kw_only=True, eq=False)
class Account:
    """The budget and the spending of one run with all its descendants."""

    ledger: "Ledger"
    owner: str
    """The agent's id."""
    budget: Budget
    parent: "Account | None" = None
    counts: Counter[str] = field(default_factory=Counter)
    """Requests and children of the whole subtree, by their name in the budget. Requests include failed ones and those
    reserved for last reports."""
    usage: Usage = Usage()
    """The spending of the run and its descendants."""
    own_usage: Usage = Usage()
    """The spending of the agent itself, `ask` and compaction included."""
    turns_of_asks: int = 0
    """The responses to `ask` and compaction in `own_usage`, which are no turns of the run."""
    in_flight: Amount = NOTHING
    """The reservations of requests in flight."""
    for_reports: Amount = NOTHING
    """The reservations for last reports in the whole subtree."""
    for_own_report: Amount = NOTHING
    has_report_request: bool = False
    """Whether a request is reserved for the run's own last report."""
    open_reservation: Reservation | None = None
    usual_cost_usd: Decimal | None = None
    """The money after which only last reports are made, plus the amounts that a person agrees to for fan-outs. None: a bound
    was given, or the run is no root's."""
    raising: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A lock of the one who asks whether a bound may be raised."""
    final: set[str] = field(default_factory=set)
    """The bounds that stay as they are, by their name in the budget: a person has said so, or none was there."""
    raised: set[str] = field(default_factory=set)
    """The bounds that a person has raised."""
    rests: dict[str, Any] = field(default_factory=dict)
    """The bounds that are what an account above had left when this one was opened, and which it keeps itself: the bound that
    this account was to have instead, by name."""

    @property
    def root(self) -> "Account":
        """The root's account of the same prompt."""
        *_, root = self.self_and_ancestors()
        return root

    def self_and_ancestors(self) -> Iterator["Account"]:
        """Yield this account, its parent's, and so on up to the root's."""
        account: Account | None = self
        while account is not None:
            yield account
            account = account.parent

    @property
    def spent(self) -> Amount:
        """The bounded part of the usage."""
        return Amount.of(self.usage)

    @property
    def counts_amounts(self) -> bool:
        """Whether tokens or money are bounded, here or in an ancestor."""
        return any(account.amount_bounds() for account in self.self_and_ancestors())

    def amount_bounds(self) -> dict[str, Any]:
        """Return the bounds on amounts that are set, by name."""
        return {name: bound for name in AMOUNTS if (bound := getattr(self.budget, name)) is not None}

    def book(self, usage: Usage) -> None:
        """Book spending, here and in all ancestors."""
        self.ledger.spent += usage
        for above in self.self_and_ancestors():
            above.usage += usage
            if above.owner == self.owner:
                above.own_usage += usage
                above.turns_of_asks += usage.turns * (above is not self)

    def remaining(self, *, seconds: float | None = None) -> Budget:
        """Return the budget that a child may be given now. Args: seconds: the run's remaining time."""
        bounds: dict[str, Any] = {}
        for name in Budget.model_fields:
            limited = [account for account in self._counting(name) if account.bound(name) is not None]
            bounds[name] = min((max(0, account.bound(name) - account.taken(name)) for account in limited), default=None)
        bounds["seconds"] = None if seconds is None else max(0.0, seconds)
        bounds["depth"] = None if self.budget.depth is None else max(0, self.budget.depth - 1)
        return Budget(**bounds)

    def bound(self, name: str) -> Any:
        """Return a bound by its name in the budget."""
        return getattr(self.budget, name)

    def taken(self, name: str) -> Any:
        """Return the amount that counts against a bound, by its name in the budget, without requests in flight."""
        if name in AMOUNTS:
            return getattr(self.spent, name)
        if name in Budget.OWN:
            return getattr(self.own_usage, name) - (self.turns_of_asks if name == "turns" else 0)
        return self.counts[name]

    def bounded_by(self, reached: LimitReachedError) -> "Account | None":
        """Return the account, this one or one above it, whose bound is that of the error. None: it has another one now."""
        for account in self.self_and_ancestors():
            bound = getattr(account.budget, reached.limit, None)
            bound = account.usual_cost_usd if bound is None and reached.limit == "cost_usd" else bound
            if account.owner == reached.owner and bound and float(bound) == reached.bound:
                return account
        return None

    def giver_of(self, name: str) -> "Account":
        """Return the account whose bound this one's is: its own, or the one above of which it is the rest."""
        return self.parent.giver_of(name) if name in self.rests and self.parent is not None else self

    def lift(self, name: str) -> None:
        """Leave a bound to the account above that keeps it; what this one was to have bounds it still."""
        asked = self.rests.pop(name)
        self.budget = self.budget.model_copy(update={name: None if asked == math.inf else asked})

    def raise_bound(self, name: str, more: float) -> None:
        """Raise a bound by its name in the budget."""
        self.raised.add(name)
        if name == "cost_usd" and self.usual_cost_usd is not None:
            self.usual_cost_usd += Decimal(str(more))
        else:
            raised = self.bound(name) + (Decimal(str(more)) if name == "cost_usd" else math.ceil(more))
            self.budget = self.budget.model_copy(update={name: raised})
        self.ledger.wake()

    def check(self, name: str, wanted: int = 1) -> None:
        """Raise LimitReachedError if so many more of a counted quantity cannot be taken."""
        for account in self._counting(name):
            bound = account.bound(name)
            if bound is not None and account.taken(name) + wanted > bound:
                raise account.limit_error(name, account.taken(name), bound)

    def count(self, name: str, number: int = 1) -> None:
        """Count a quantity, here and in all ancestors."""
        for account in self.self_and_ancestors():
            account.counts[name] += number

    def take_tool_call(self) -> None:
        """Count a tool call that is about to run.

        Raises:
            LimitReachedError: None is left.
        """
        self.check("tool_calls")
        self.book(Usage(tool_calls=1))

    def _counting(self, name: str) -> Iterator["Account"]:
        return iter((self,)) if name in Budget.OWN else self.self_and_ancestors()

    def check_request(self) -> None:
        """Raise LimitReachedError if certainly not even one request can be made."""
        self.check("turns")
        self.check("requests", 1 - self.has_report_request)
        self.check_usual_cost()
        for above in self.self_and_ancestors():
            for name, bound in above.amount_bounds().items():
                taken = above.taken(name)
                if taken + getattr(LEAST, name) > bound or taken >= bound:
                    raise above.limit_error(name, taken, bound)

    def check_spawn(self) -> None:
        """Raise LimitReachedError if no child may be started any more, or a child would get no turn."""
        self.check("turns")
        self.check("requests")
        self.check("children")
        self.check_usual_cost()

    def check_usual_cost(self) -> None:
        """Raise LimitReachedError if no bound on money was given, and the prompt has passed the usual one."""
        root = self.root
        if root.usual_cost_usd is not None and root.spent.cost_usd >= root.usual_cost_usd:
            setting = "`budget.cost_usd`, which has a default: give another amount, or `inf` for no bound"
            raise root.limit_error("cost_usd", root.spent.cost_usd, root.usual_cost_usd, setting=setting)

    def take_request(self, *, report_follows: bool) -> None:
        """Count a model request that is about to be made. Args: report_follows: reserve one more for a last report.

        Raises:
            LimitReachedError: None is left.
        """
        try:
            self.check("requests", 1 + report_follows - self.has_report_request)
        except LimitReachedError:
            if not report_follows or self.taken("turns"):
                raise
            # better a first request without a last report than none: it may well be the answer
            report_follows = False
            self.check("requests", 1 - self.has_report_request)
        self._reserve_request(reserve=report_follows)
        self.count("requests")

    def _reserve_request(self, *, reserve: bool) -> None:
        self.count("requests", reserve - self.has_report_request)
        self.has_report_request = reserve

    def limit_error(
        self,
        limit: str,
        amount: float | Decimal,
        bound: float | Decimal,
        needed: float | Decimal | None = None,
        setting: str = "",
    ) -> LimitReachedError:
        """Return the error that names the limit and its owner.

        Args:
            limit: The name in the budget.
            amount: The amount spent.
            bound: The amount allowed.
            needed: The amount for one more request, if known.
            setting: The way to change it. Empty: the setting of that name.
        """
        of_child = f"`subagents.budget.{limit}`, or what it was given"
        return LimitReachedError(
            limit,
            amount=float(amount),
            bound=float(bound),
            owner=self.owner,
            setting=setting or (f"`budget.{limit}`" if self.parent is None else of_child),
            needed=None if needed is None else float(needed),
        )

    def shortage(self, needed: Amount) -> LimitReachedError | None:
        """Return the error for a request that needs more than is left here."""
        taken = self.spent + self.in_flight + needed
        for name, bound in self.amount_bounds().items():
            if getattr(taken, name) > bound or not bound:
                return self.limit_error(name, self.taken(name), bound, getattr(needed, name))
        return None

    def check_again(self) -> None:
        """Raise LimitReachedError if the request in flight, cut off and booked, cannot be repeated."""
        self.check_usual_cost()
        for above in self.self_and_ancestors():
            if (error := above.shortage(NOTHING)) is not None:
                raise error

    def amount_error(self) -> LimitReachedError:
        """Return the error for tokens or money, whichever is closest to its bound, here or in an ancestor."""
        candidates = [
            (1 - float(above.taken(name) / bound) if bound else 0.0, above.limit_error(name, above.taken(name), bound))
            for above in self.self_and_ancestors()
            for name, bound in above.amount_bounds().items()
        ]
        return min(candidates, key=lambda candidate: candidate[0])[1]

    def reserve_for_report(self, amount: Amount) -> None:
        """Reserve this much for the last report, replacing the present reservation."""
        change, self.for_own_report = amount - self.for_own_report, amount
        for above in self.self_and_ancestors():
            above.for_reports += change

    def withdraw(self) -> None:
        """Undo the opening of the account: the run will never start."""
        self.close()
        if self.parent is not None:
            self.parent.count("children", -1)

    def close(self) -> None:
        """Release all reservations of a run that has ended."""
        if self.open_reservation is not None:
            self.open_reservation.give_up()
        self.reserve_for_report(NOTHING)
        self._reserve_request(reserve=False)
        self.ledger.wake()


@dataclass(frozen=True, kw_only=True)
class Payer:
    """The account and the model of a request or a child of a fan-out."""

    account: Account | None = None
    """An account below the run's. None: the run's."""
    model: str | None = None
    """The cheaper model that a person has chosen. None: the named one."""


NO_PAYER: Final = Payer()
"""The payer where the run pays, and models are as named."""


class Ledger:
    """All accounts of one root."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Event] = []
        self.spent = Usage()
        """The spending of all runs of the root."""

    @property
    def waiting(self) -> int:
        """Requests that wait until others end."""
        return len(self._waiting)

    def open(self, owner: str, budget: Budget, parent: Account | None = None) -> Account:
        """Open the account of a run. The caller has just cut the child's budget and passed `check_spawn`."""
        usual = USUAL_COST_USD if parent is None and budget.cost_usd is None else None
        if budget.cost_usd == math.inf:
            budget = budget.model_copy(update={"cost_usd": None})
        account = Account(ledger=self, owner=owner, budget=budget, parent=parent, usual_cost_usd=usual)
        if parent is not None:
            parent.count("children")
        return account

    async def reserve(self, account: Account, estimate: Estimate, *, last: bool = False, wait: bool = True) -> Reservation:
        """Reserve for a request, in its account and all ancestors; wait while requests in flight may leave enough.

        Args:
            account: The requesting agent's.
            estimate: The upper bound on the request's usage.
            last: The request is the last report, which may use the reservation for it.
            wait: False: refuse a request that does not fit now.

        Raises:
            LimitReachedError: Not enough is left.
            FreeactError: Money is bounded, and the model's price is unknown.
        """
        if not last:
            account.check_usual_cost()
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
        """Let all waiting requests check again, in order, after something was released."""
        waiting, self._waiting = self._waiting, []
        for settled in waiting:
            settled.set()

    def _try(self, account: Account, estimate: Estimate, *, last: bool) -> Reservation | None:
        """Check and reserve, without an `await` in between. Returns None if waiting may help."""
        output_tokens = estimate.output_tokens
        while account.counts_amounts and (short := _short_of(account, estimate, output_tokens, last=last)) is not None:
            above, error = short
            if above.in_flight != NOTHING:
                return None
            if output_tokens > LEAST.tokens:
                output_tokens = max(LEAST.tokens, output_tokens // 2)
            elif not account.taken("turns") and estimate.report_tokens:
                # better a first request without a last report than none: it may well be the answer
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
    """Return the account with too little left, if any, and the error that says so."""
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
