"""How many of its cases a test tries: a small sample, a larger one with `THOROUGH=some`, or all of them with `THOROUGH=1`.

A sample is the same one each time.
"""

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

ASKED = os.environ.get("THOROUGH", "")
THOROUGH = ASKED not in ("", "some")
"""Whether all cases are tried."""
MAX_EXAMPLES = 50 if ASKED else 20
"""Of a property, in a sample."""


def sample(values: Sequence[T], count: int) -> Sequence[T]:
    """So many of the values, spread over all of them; all with `THOROUGH=1`."""
    if THOROUGH or count >= len(values):
        return values
    return [values[index * len(values) // count] for index in range(count)]


def examples(number: int) -> int:
    """How many examples of a property are tried: this many with `THOROUGH=1`, otherwise a sample of them."""
    return number if THOROUGH else min(number, MAX_EXAMPLES)
