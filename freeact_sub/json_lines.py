"""Writes any value as one line of JSON."""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def json_line(value: Any) -> str:
    """The value as JSON without line breaks; file names that are no text are escaped."""
    text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def content(value: Any) -> dict[str, Any]:
    """The fields of a dataclass instance by name."""
    return {item.name: getattr(value, item.name) for item in fields(value)}


def _plain(value: Any, above: tuple[int, ...] = ()) -> Any:
    """Converts a value for JSON: money and unknown types become text, circles are cut off."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if id(value) in above:
        return "…"
    above = (*above, id(value))
    value = content(value) if is_dataclass(value) else value
    if isinstance(value, Mapping):
        return {str(key): _plain(item, above) for key, item in value.items()}
    return [_plain(item, above) for item in value] if isinstance(value, list | tuple | set | frozenset) else str(value)
