"""Estimates of the rest of a fan-out from a few items that have run (`quote`): tokens, money, time, with a spread.

The prompts of all items are known, so the input of single requests follows from their sizes. Their output, and all
amounts of children, who make several requests, are known of the pilots only. Two readings are tried: the amount of an item
has nothing to do with the size of its prompt, or grows with it. Under each, the amounts are taken as lognormal, which
skewed sizes are close to; the spread is that of the mean of such a sample (Cox), with the variance of three pilots drawn
towards `USUAL` and the quantiles of a t distribution. The spread that is quoted covers both readings.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Final

from pydantic_ai.usage import RequestUsage

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
