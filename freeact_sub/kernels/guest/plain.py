"""Values and text on their way out of a kernel, as JSON that every reader takes, in messages of a bounded size.

Sent into every kernel as source. Strict JSON has no NaN, and UTF-8 no half characters: Jupyter's own encoder loses the whole
message for one of them, or prints a warning into the cell's output.

A host reads each message at once, and serves all agents meanwhile. Long text goes in pieces. Too large kinds of a display
are left out, and a line names them. An error or reply to a cell is shortened: a host without a reply would wait for it.
"""

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import json
import math
import numbers
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MAX_MESSAGE_BYTES = 16 * 2**20
"""Size limit of a message of a kernel. A host reads one at once, and does nothing else meanwhile, for about 0.1 s."""
MAX_VALUES = 500_000
"""Limit of the values in a message: many small ones take up to 50 times as long to read as a text of the same size."""
LOOKED_AT_BYTES = 2**17
"""Smaller messages cannot have too many."""
MAX_DEPTH = 200
SHOWN_CHARS = 60
"""Maximum characters of the place of a value."""
HALF = re.compile(r"[\ud800-\udfff]")


def whole_text(text: str) -> str:
    r"""Return the text with half characters written out (`\ud83d`), as `repr` does."""
    return text if text.isascii() else HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def plain(value: Any, where: str = "value", depth: int = 0) -> Any:
    """Return the value as JSON data: null for what is no number, text for times and decimals, lists for sets and arrays.

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
    """Return a simpler form of a value; itself where there is none."""
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
    """Return a number as Python's own, or None for NaN; an array as lists; another value as itself."""
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
    """Return a name in an object, as JSON writes it."""
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
    """Return the value as `plain` does, for display: a value that JSON cannot express becomes text."""
    try:
        return plain(value)
    except Exception:  # noqa: BLE001  # border: code of the value's type may raise anything
        if isinstance(value, dict):
            return {key_of(name): shown(item) for name, item in value.items()}
        return whole_text(repr(value))


ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=plain).encode


def pack(value: Any) -> bytes:
    """Return a part of a Jupyter message."""
    try:
        text = ENCODE(value)
    except (TypeError, ValueError, RecursionError):
        text = ENCODE(shown(value))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return HALF.sub(lambda half: f"\\\\u{ord(half[0]):04x}", text).encode()  # in JSON, a backslash is two


def too_large(part: bytes) -> str:
    """Return the size of a part of a message in words, if it is too large. Its values are counted, not read."""
    if len(part) > MAX_MESSAGE_BYTES:
        return f"it has {len(part):,} bytes, more than {MAX_MESSAGE_BYTES:,}"
    if len(part) > LOOKED_AT_BYTES and values_in(part) > MAX_VALUES:
        return f"it has more than {MAX_VALUES:,} values"
    return ""


def values_in(part: bytes) -> int:
    """Return a lower bound of the number of values in JSON, by the commas and brackets outside of its texts."""
    if part.count(b",") + part.count(b"[") + part.count(b"{") <= MAX_VALUES:
        return 0
    bare = part.replace(b"\\\\", b"").replace(b'\\"', b"")
    quotes = bare.count(b'"')
    if quotes > 4 * MAX_VALUES:
        return quotes // 2
    outside = b"".join(bare.split(b'"')[::2])
    return outside.count(b",") + outside.count(b"[") + outside.count(b"{")


# --- messages within bounds

PIECE_CHARS = 100_000
SHORT_CHARS = 2000
"""Maximum characters of each text of a shortened error."""
SHORT_LINES = 20
"""Maximum lines of a shortened traceback; each stands for a frame."""
DISPLAYS = ("display_data", "update_display_data", "execute_result")


class PartTooLargeError(ValueError):
    """A message that is too large to be sent; the text tells its size."""


def pack_within_bounds(value: Any) -> bytes:
    """Return a part of a message, as `pack`. Raises: PartTooLargeError: It is too large."""
    data = pack(value)
    if reason := too_large(data):
        raise PartTooLargeError(reason)
    return data


def install(session: Any) -> None:
    """Bound the messages of a session. Called again in a branch."""
    session.pack = pack_within_bounds
    send = session.send
    if hasattr(send, "__wrapped__"):
        return

    @functools.wraps(send)
    def send_within_bounds(stream: Any, message: Any, content: Any = None, *rest: Any, **more: Any) -> Any:
        is_whole = isinstance(message, dict)
        kind, said = (message["header"]["msg_type"], message["content"]) if is_whole else (message, content)
        reason = long_text(kind, said)
        if not reason:
            try:
                return send(stream, message, content, *rest, **more)
            except PartTooLargeError as error:
                reason = str(error)
                if kind == "freeact_request":
                    raise ValueError(f"the request cannot be sent: {reason}; put large values into a file") from None
        sent = None
        for other, piece in pieces(kind, said, reason):
            if is_whole:
                header = {**message["header"], "msg_type": other}
                whole = {**message, "msg_type": other, "header": header, "content": piece}
                sent = send(stream, whole, None, *rest, **more)
            else:
                sent = send(stream, other, piece, *rest, **more)
        return sent

    session.send = send_within_bounds


def long_text(kind: str, content: Any) -> str:
    """Return the length of a message's text in words if it is too long, before a message is made of it in vain."""
    if not isinstance(content, dict):  # code in a cell may send anything
        return ""
    if kind == "stream":
        texts, most = [content.get("text")], PIECE_CHARS
    elif kind in ("error", "execute_reply"):
        lines = content.get("traceback")
        texts, most = [content.get("evalue"), *(lines if isinstance(lines, list) else ())], MAX_MESSAGE_BYTES
    else:
        return ""
    size = sum(len(text) for text in texts if isinstance(text, str))
    return f"it has {size:,} characters, more than {most:,}" if size > most else ""


def pieces(kind: str, content: dict[str, Any], reason: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the substitutes of a message. Args: reason: its size in words."""
    if kind == "stream":
        yield from streamed(content["name"], content["text"])
    elif kind in DISPLAYS:
        yield from displayed(kind, content)
    elif kind == "error" or kind.endswith("_reply"):
        yield kind, shortened(content, reason)
    else:
        yield from streamed("stderr", f"[a message is left out ({kind}): {reason}]\n")


def streamed(name: str, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a text as messages of a standard stream."""
    for start in range(0, len(text), PIECE_CHARS):
        yield "stream", {"name": name, "text": text[start : start + PIECE_CHARS]}


def displayed(kind: str, content: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a display without its too large kinds, after its text and a line that names them."""
    kept, size = {}, 0
    for name, value in content["data"].items():
        data = pack(value)
        reason = too_large(data)
        if not reason and size + len(data) > MAX_MESSAGE_BYTES // 2:
            reason = f"it has {len(data):,} bytes, and with the rest of the display more than {MAX_MESSAGE_BYTES // 2:,}"
        if not reason:
            kept[name], size = value, size + len(data)
        elif name == "text/plain":
            yield from streamed("stdout", f"{value}\n")
        else:
            yield from streamed("stderr", f"[displayed, but left out: {name[:SHORT_CHARS]}: {reason}]\n")
    if kept:
        metadata = content.get("metadata", {})
        yield kind, {**content, "data": kept, "metadata": {} if too_large(pack(metadata)) else metadata}


def shortened(content: dict[str, Any], reason: str) -> dict[str, Any]:
    """Return an error or a reply with short texts and nothing else that may be large."""
    texts = {name: text[:SHORT_CHARS] for name, text in content.items() if isinstance(text, str)}
    if "evalue" in texts and len(content["evalue"]) > SHORT_CHARS:
        texts["evalue"] += f" [… shortened: {reason}]"
    numbers = {name: value for name, value in content.items() if isinstance(value, int)}
    lines = [line[:PIECE_CHARS] for line in content.get("traceback", ())[:SHORT_LINES]]
    last = f"{texts.get('ename', '')}: {texts.get('evalue', '')}"
    return {**texts, **numbers, "traceback": [*lines[:-1], last], "payload": [], "user_expressions": {}}
