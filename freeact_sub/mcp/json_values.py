"""JSON values that every reader can take: no half characters, no NaN or Infinity, no endless depth.

Servers send them all the same. UTF-8 cannot hold half a surrogate pair, strict JSON has no NaN, and a provider or a kernel
that gets one of them refuses the whole message.
"""

import math
from typing import Any, Final

from freeact_sub.text import whole_text

MAX_DEPTH: Final = 100
"""Lists and objects inside each other. Deeper ones cannot be walked, nor validated."""


def strict_json(value: Any, depth: int = 0) -> Any:
    """The value with whole text, and null in place of numbers that JSON does not have.

    Raises:
        ValueError: It is too deep.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"it has more than {MAX_DEPTH} lists and objects inside each other")
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {whole_text(str(name)): strict_json(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json(item, depth + 1) for item in value]
    return value
