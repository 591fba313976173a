"""Values of any kind as one line of JSON."""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from pydantic_core import to_json


def json_line(value: Any) -> str:
    """Return the value as JSON without line breaks; file names that are not text are escaped."""
    try:
        return to_json(value, inf_nan_mode="strings", fallback=_of_no_json_type).decode()
    except ValueError:  # a circle, or half a character
        text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def content(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass instance by name."""
    kind: Any = type(value)
    return {name: getattr(value, name) for name in _names(kind)}


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(item.name for item in fields(kind))


def _of_no_json_type(value: Any) -> Any:
    """Convert other mappings to objects, and unknown types to text."""
    return {str(key): item for key, item in value.items()} if isinstance(value, Mapping) else str(value)


def _plain(value: Any, above: tuple[int, ...] = ()) -> Any:
    """Convert a value that the JSON encoder refuses: circles are cut off."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if id(value) in above:
        return "…"
    above = (*above, id(value))
    value = content(value) if is_dataclass(value) and not isinstance(value, type) else value
    if isinstance(value, Mapping):
        return {str(key): _plain(item, above) for key, item in value.items()}
    return [_plain(item, above) for item in value] if isinstance(value, list | tuple | set | frozenset) else str(value)
