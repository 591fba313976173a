"""How much of what a test could try it tries: a sample that is the same each time, or all of it with `THOROUGH=1`."""

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

THOROUGH = bool(os.environ.get("THOROUGH"))


def sample(values: Sequence[T], count: int) -> Sequence[T]:
    """So many of the values, spread over all of them; all with `THOROUGH=1`."""
    if THOROUGH or count >= len(values):
        return values
    return [values[index * len(values) // count] for index in range(count)]


def examples(number: int) -> int:
    """How many examples of a property are tried: this many, or a sample. Else they are the same ones every time."""
    return number if THOROUGH else min(number, 50)
