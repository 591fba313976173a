"""Budgets and usage as plain values; the ledger adds usage up to every ancestor.

`Budget` validates bounds from settings, the SDK and a model's arguments; errors name the field.
Cost is None while no request of the sum has a known price, so that an unknown price never looks like "free".
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Final, Self

from pydantic import Field, model_validator

from freeact_sub.config.section import Given, Section, default

USUAL_COST_USD: Final = Decimal(10)
"""The bound on a prompt's money if no `cost_usd` is given: only requests with a known price count, and the one that
passes it is the last. An exact bound reserves before each request, and cannot be kept for models without a price."""


Money = Given[Decimal | None, Decimal | float | str | None]


class Budget(Section):
    """Bounds on a run. None: the parent's remainder; for the root, no bound.

    Bounds in `OWN` count the agent alone; all others count its descendants too.
    """

    OWN: ClassVar[frozenset[str]] = frozenset({"turns", "tool_calls"})

    turns: int | None = Field(default=None, ge=0)
    """Model responses of the agent itself; a last report at a limit is extra."""
    tool_calls: int | None = Field(default=None, ge=0)
    """Tool calls of the agent and its code, including calls of unknown tools."""
    requests: int | None = Field(default=None, ge=0)
    """Model requests with those of all children; `ask`, last reports and failed requests count."""
    tokens: int | None = Field(default=None, ge=0)
    """Input and output tokens together, with those of all children."""
    cost_usd: Money = default(Field(default=None, ge=0, allow_inf_nan=True))
    """Money, with that of all children; the price of the model must be known. `inf`: no bound."""
    seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Seconds from start to end, without the time in which a question is open or the agent waits for a slot."""
    children: int | None = Field(default=None, ge=0)
    """Children that may be started, at all levels together."""
    depth: int | None = Field(default=None, ge=0, le=10)
    """The depth to which agents may nest below this one."""

    def over(self, defaults: "Budget") -> Self:
        """Return this budget with defaults for its missing bounds."""
        return self._with({name: getattr(defaults, name) if mine is None else mine for name, mine in self})

    def cut(self, left: "Budget") -> Self:
        """Return this budget, cut to the remainder."""
        bounds = {name: [bound for bound in (mine, getattr(left, name)) if bound is not None] for name, mine in self}
        return self._with({name: min(known) if known else None for name, known in bounds.items()})

    def share(self, fraction: float) -> Self:
        """Return a part of this budget for one of several children: all bounds but time and depth, times the fraction.

        Args:
            fraction: Above 0, at most 1.

        Raises:
            ValueError: The fraction is out of range.
        """
        if not 0 < fraction <= 1:
            raise ValueError(f"the share of a budget must be above 0 and at most 1, not {fraction}")
        parts: dict[str, int | float | Decimal | None] = {}
        for name, bound in self:
            if bound is None or name in ("seconds", "depth"):
                parts[name] = bound
            else:
                parts[name] = bound * Decimal(str(fraction)) if isinstance(bound, Decimal) else int(bound * fraction)
        if self.children:
            parts["children"] = max(1, int(self.children * fraction))
        return self._with(parts)

    def _with(self, bounds: dict[str, int | float | Decimal | None]) -> Self:
        return self.model_copy(update=bounds)

    def __repr_args__(self) -> Iterator[tuple[str, int | float | Decimal]]:
        """Return the bounds that are set, for pydantic."""
        return ((name, bound) for name, bound in self if bound is not None)

    def __str__(self) -> str:
        units = {"seconds": "s", "cost_usd": "USD"}
        known = [
            f"{bound:,} {units.get(name, name.replace('_', ' '))}"
            for name, bound in self
            if bound not in (None, math.inf) and name != "depth" and not (name == "children" and self.depth == 0)
        ]
        return ", ".join(known)


class _Defaults(Budget):
    @model_validator(mode="before")
    @classmethod
    def _of_a_budget(cls, value: Any) -> Any:
        """Take the bounds that a `Budget` names; the defaults of the others stay."""
        return value.model_dump(exclude_unset=True) if isinstance(value, Budget) and not isinstance(value, cls) else value


class RootBudget(_Defaults):
    """The default budget of a root's run. It is far above normal work and stops endless loops."""

    requests: int | None = Field(default=1_000, ge=0)
    children: int | None = Field(default=200, ge=0)
    cost_usd: Money = default(Field(default=None, ge=0, allow_inf_nan=True))
    """Money, with that of all children; the price of the model must be known. None: the request that passes 10 dollars is
    the last one, and requests without a known price do not count. `inf`: no bound."""

    @property
    def cost_text(self) -> str:
        """The bound on a prompt's money, in a sentence."""
        if self.cost_usd is None:
            return (
                f"A prompt may take about ${USUAL_COST_USD}; the setting `budget.cost_usd` changes that (`inf`: no bound)."
            )
        if self.cost_usd == math.inf:
            return "A prompt may take any amount (setting `budget.cost_usd`)."
        return f"A prompt may take ${self.cost_usd} (setting `budget.cost_usd`)."


class ChildBudget(_Defaults):
    """The default budget of a child."""

    turns: int | None = Field(default=10, ge=0)
    seconds: float | None = Field(default=3_600, ge=0, allow_inf_nan=False)


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The spending of a run, or of a tree of runs."""

    turns: int = 0
    """Model responses received."""
    tool_calls: int = 0
    input_tokens: int = 0
    """All input, including what the provider read from its cache."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    """The input that the provider read from its cache, at about a tenth of the price."""
    cache_write_tokens: int = 0
    """The input that the provider wrote into its cache, at a slightly higher price."""
    cost_usd: Decimal | None = None
    """Cost of the requests with a known price. None: no price is known."""
    unpriced_turns: int = 0
    """Requests without a known price; the cost does not include them."""
    estimated_requests: int = 0
    """Requests that were cut off after they were sent, or whose provider reported no count. The sums include estimates for
    them, which may be lower than the provider's count."""

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return Usage(
            turns=self.turns + other.turns,
            tool_calls=self.tool_calls + other.tool_calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            cost_usd=sum(costs, Decimal(0)) if costs else None,
            unpriced_turns=self.unpriced_turns + other.unpriced_turns,
            estimated_requests=self.estimated_requests + other.estimated_requests,
        )

    @property
    def tokens_text(self) -> str:
        """The tokens as text, marked if they are a lower bound."""
        return f"at least {self.tokens:,}" if self.estimated_requests else f"{self.tokens:,}"

    @property
    def cache_text(self) -> str:
        """The tokens of the provider's cache as text; empty if it was not used."""
        read = f"{self.cache_read_tokens:,} read from the cache" if self.cache_read_tokens else ""
        written = (
            f"{self.cache_write_tokens:,} written to {'it' if read else 'the cache'}" if self.cache_write_tokens else ""
        )
        return ", ".join(filter(None, (read, written)))

    @property
    def cost_text(self) -> str:
        """The cost as text, marked if it is a lower bound; empty if no price is known. Rounding never makes it $0.0000."""
        if self.cost_usd is None:
            return ""
        cost = f"${self.cost_usd:.1g}" if 0 < self.cost_usd < Decimal("0.00005") else f"${self.cost_usd:.4f}"
        return f"at least {cost}" if self.unpriced_turns or self.estimated_requests else cost

    def __str__(self) -> str:
        cache = f" ({self.cache_text})" if self.cache_text else ""
        parts = [f"turns {self.turns}", f"tool calls {self.tool_calls}", f"tokens {self.tokens_text}{cache}", self.cost_text]
        return ", ".join(filter(None, parts))
