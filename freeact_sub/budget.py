"""Limits and what was spent: plain values, added up to every ancestor by the host.

`Budget` is validated wherever it comes from (settings, the SDK, a model's arguments); what is wrong is named by its field.
Cost is None while no request of the sum has a known price, so that an unknown price never looks like "free".
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Self

from pydantic import BaseModel, ConfigDict, Field


class Budget(BaseModel):
    """What a run may spend. None: what its parent has left; for the root, no bound. Zero is none at all.

    `turns` and `tool_calls` are the agent's own; all else counts what its descendants spend as well.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    turns: int | None = Field(default=None, ge=0)
    """Model responses of the agent itself; a last report at a limit comes on top."""
    tool_calls: int | None = Field(default=None, ge=0)
    """Tool calls of the agent itself, those of its code included."""
    tokens: int | None = Field(default=None, ge=0)
    """Input and output tokens together."""
    cost_usd: Decimal | None = Field(default=None, ge=0)
    """Needs a model whose price is known."""
    seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """From start to end; time in which a person is asked does not count."""
    children: int | None = Field(default=None, ge=0)
    """Spawns in the whole subtree."""
    depth: int | None = Field(default=None, ge=0, le=10)
    """How many levels of agents there may be below."""

    def over(self, defaults: "Budget") -> Self:
        """This budget, with the defaults where it names no bound."""
        return self._with({name: getattr(defaults, name) if mine is None else mine for name, mine in self})

    def cut(self, left: "Budget") -> Self:
        """This budget, nowhere more than what is left."""
        bounds = {name: [bound for bound in (mine, getattr(left, name)) if bound is not None] for name, mine in self}
        return self._with({name: min(known) if known else None for name, known in bounds.items()})

    def _with(self, bounds: dict[str, int | float | Decimal | None]) -> Self:
        return self.model_copy(update=bounds)

    def __str__(self) -> str:
        units = {"seconds": "s", "cost_usd": "USD"}
        known = [
            f"{bound:,} {units.get(name, name.replace('_', ' '))}"
            for name, bound in self
            if bound is not None and name != "depth"
        ]
        return ", ".join(known)


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a run, or a whole tree of runs, has spent."""

    turns: int = 0
    """Model responses received."""
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: Decimal | None = None
    """Sum over the requests whose price is known; None if there is none."""
    unpriced_turns: int = 0
    """Responses whose price or token count is unknown: the sums above are then lower bounds."""

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
            cost_usd=sum(costs, Decimal(0)) if costs else None,
            unpriced_turns=self.unpriced_turns + other.unpriced_turns,
        )

    def __str__(self) -> str:
        cost = "cost unknown" if self.cost_usd is None else f"${self.cost_usd:.4f}"
        if self.cost_usd is not None and self.unpriced_turns:
            cost = f"at least {cost}"
        return f"turns {self.turns}, tool calls {self.tool_calls}, tokens {self.tokens:,}, {cost}"
