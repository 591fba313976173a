"""Values and text on their way out of a kernel, as JSON that every reader takes. Sent into every kernel as source.

Strict JSON has no NaN, and UTF-8 no half characters: Jupyter's own encoder loses the whole message for one of them, or
prints a warning into the cell's output.
"""

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import numbers
import os
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

MAX_MESSAGE_BYTES = 16 * 2**20
"""The bound on a message of a kernel. A host reads one at once, and nothing else meanwhile: this takes it some 0.1 s."""
MAX_VALUES = 500_000
"""The bound on the values in a message: many small ones take up to 50 times as long to read as a text of the same size."""
LOOKED_AT_BYTES = 2**17
"""Smaller messages cannot have too many."""
MAX_DEPTH = 200
SHOWN_CHARS = 60
"""Of the place of a value."""
HALF = re.compile(r"[\ud800-\udfff]")


def whole_text(text: str) -> str:
    r"""The text with half characters written out (`\ud83d`), as `repr` does."""
    return text if text.isascii() else HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def plain(value: Any, where: str = "value", depth: int = 0) -> Any:
    """The value as JSON data: null for what is no number, text for times and decimals, lists for sets and arrays.

    Raises:
        TypeError: It cannot be JSON data; the message names the place.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return whole_text(str(value)) if not isinstance(value, enum.Enum) else plain(value.value, where, depth)
    if depth > MAX_DEPTH:
        where = where if len(where) < SHOWN_CHARS else f"{where[:SHOWN_CHARS]}[…]"
        raise TypeError(f"{where} has more than {MAX_DEPTH} lists and dicts inside each other, or contains itself")
    simple = of_simple(value)
    if simple is not value:
        return plain(simple, where, depth + 1)
    if isinstance(value, int | float):
        return value
    if isinstance(value, Mapping):
        check_names(value, where)
        return {key_of(name): plain(item, f"{where}[{name!r}]", depth + 1) for name, item in value.items()}
    if isinstance(value, Iterable) and not hasattr(value, "columns"):  # a frame would become its columns' names
        return [plain(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise TypeError(f"{where} is of type {type(value).__name__}, which is not JSON data: pass plain values instead")


def of_simple(value: Any) -> Any:
    """A simpler form of a value; itself where there is none."""
    if isinstance(value, enum.Enum):
        return value.value
    if type(value).__name__ == "NAType":  # pandas' NA, which compares to nothing
        return None
    if isinstance(value, dt.date | dt.time):
        return None if value != value else value.isoformat().replace("+00:00", "Z")  # noqa: PLR0124  # as pandas' NaT
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return str(value) if value.is_finite() else None
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, uuid.UUID | complex):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return of_number(value)


def of_number(value: Any) -> Any:
    """A number as Python's own, None where it is none; an array as lists; another value as itself."""
    kind: Any = type(value)
    if isinstance(value, numbers.Integral):
        return value if kind is int else int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        return None if not math.isfinite(number) else value if kind is float else number
    for method in ("model_dump", "tolist"):  # of pydantic's models; of arrays, and of numpy's other scalars
        made = getattr(value, method, None)
        if callable(made) and not isinstance(value, type):
            return made()
    return value


def key_of(name: Any) -> str:
    """A name in an object, as JSON writes it."""
    if isinstance(name, str):
        return whole_text(str(name))
    if name is None or isinstance(name, bool | int | float):
        return json.dumps(name)
    return whole_text(str(name))


def check_names(value: Mapping[Any, Any], where: str) -> None:
    """Raise TypeError if two names in an object would be one in JSON, as 1 and "1": one of the values would be lost."""
    if all(type(name) is str for name in value):
        return
    found: dict[str, Any] = {}
    for name in value:
        other = found.setdefault(key_of(name), name)
        if other is not name:
            raise TypeError(f"{where} has the names {other!r} and {name!r}, which are one name in JSON: rename one of them")


def shown(value: Any) -> Any:
    """Like `plain`, for display: a value that JSON cannot express becomes text."""
    try:
        return plain(value)
    except Exception:  # noqa: BLE001  # border: code of the value's type may raise anything
        if isinstance(value, dict):
            return {key_of(name): shown(item) for name, item in value.items()}
        return whole_text(repr(value))


ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=plain).encode


def pack(value: Any) -> bytes:
    """A part of a Jupyter message."""
    try:
        text = ENCODE(value)
    except (TypeError, ValueError, RecursionError):
        text = ENCODE(shown(value))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return HALF.sub(lambda half: f"\\\\u{ord(half[0]):04x}", text).encode()  # in JSON, a backslash is two


def too_large(part: bytes) -> str:
    """Say how large a part of a message is, if it is too large. It is not read, only counted."""
    if len(part) > MAX_MESSAGE_BYTES:
        return f"it has {len(part):,} bytes, more than {MAX_MESSAGE_BYTES:,}"
    if len(part) > LOOKED_AT_BYTES and values_in(part) > MAX_VALUES:
        return f"it has more than {MAX_VALUES:,} values"
    return ""


def values_in(part: bytes) -> int:
    """At least the number of the values in JSON, by the commas and brackets outside of its texts."""
    if part.count(b",") + part.count(b"[") + part.count(b"{") <= MAX_VALUES:
        return 0
    bare = part.replace(b"\\\\", b"").replace(b'\\"', b"")
    quotes = bare.count(b'"')
    if quotes > 4 * MAX_VALUES:
        return quotes // 2
    outside = b"".join(bare.split(b'"')[::2])
    return outside.count(b",") + outside.count(b"[") + outside.count(b"{")
