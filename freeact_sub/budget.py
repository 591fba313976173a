"""Limits and what was spent: plain values, added up to every ancestor by the host.

Cost is None while no request of the sum has a known price, so that an unknown price never looks like "free".
"""

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a run, with its descendants, may spend. None: what its parent has left; for the root, no bound."""

    turns: int | None = None
    """Model responses of the agent itself."""
    tool_calls: int | None = None
    tokens: int | None = None
    """Input and output tokens together."""
    cost_usd: Decimal | None = None
    seconds: float | None = None
    children: int | None = None
    """Spawns in the whole subtree."""
    depth: int | None = None
    """How many levels of agents there may be below."""


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
