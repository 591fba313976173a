"""`chance`: random numbers for samples and pauses, from a generator of our own.

A program that has seeded `random` draws the numbers that it would draw without us.
"""

import random
from typing import Final

chance: Final = random.Random()  # noqa: S311  # not a secret
