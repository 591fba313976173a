"""Jupyter messages as a kernel sends them, and the `cells.*` values in them.

Code in the kernel can send whatever it likes, and as the kernel itself. So nothing in a message is believed: its
size and its depth are bounded, and each value has the type that the rest of the program expects, or it is refused.
"""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from freeact_sub.cells import CellError, CellOutput, ClearOutput, DisplayData, ExecuteResult, StreamText
from freeact_sub.text import whole_value

MAX_MESSAGE_BYTES: Final = 256 * 2**20
"""A larger message is left out: to read it takes several times its size, in the one process of all agents."""
MAX_DEPTH: Final = 200
"""Lists and objects in each other; what shows or writes values that are deeper would run out of stack."""
MAX_PARENT_BYTES: Final = 2_000
"""The bound on a remembered parent header."""
REPLY_STATUSES: Final = frozenset({"ok", "error", "aborted"})
JSON_SPACE: Final = " \t\n\r"
DECODER: Final = json.JSONDecoder()


class MessageError(Exception):
    """A message is unusable; the text says why."""


class RefusedMessageError(MessageError):
    """A message of the kernel is unusable, and its reader must be told."""

    def __init__(self, text: str, *, request_id: Any = None) -> None:
        """Args: request_id: the request that waits for an answer. None: none does, or it cannot be read."""
        super().__init__(text)
        self.request_id = request_id


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message that was read."""

    kind: str
    """Jupyter's `msg_type`."""
    parent_id: str | None
    """The id of the request that it belongs to."""
    content: dict[str, Any]


def check_size(frames: Sequence[bytes], *, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
    """Checks the size of a message before it is read.

    Raises:
        RefusedMessageError: It is too large.
    """
    size = sum(map(len, frames))
    if size > max_bytes:
        raise RefusedMessageError(f"it has {size:,} bytes, more than {max_bytes:,}")


def read_message(parts: Sequence[bytes], *, max_bytes: int = MAX_MESSAGE_BYTES) -> Message:
    """Checks and reads a message.

    As `Session.deserialize` does, except for the dates: parsing two in each message takes longer than all the rest.

    Args:
        parts: The JSON of header, parent, metadata and content, then buffers, which nobody reads.
        max_bytes: The largest size of all parts together.

    Raises:
        MessageError: It is not a Jupyter message.
        RefusedMessageError: It is too large or too deep.
    """
    check_size(parts, max_bytes=max_bytes)
    try:
        header, parent, metadata, content = parts[:4]
        kind, parent_id = _read(header)["msg_type"], _parent_id(parent)
        about, said = _read(metadata), _read(content)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise MessageError(f"it is not a Jupyter message ({error})") from error
    except RecursionError:
        raise RefusedMessageError(f"its content is nested more than {MAX_DEPTH} deep") from None
    if not (isinstance(kind, str) and isinstance(about, dict) and isinstance(said, dict)):
        raise MessageError("it is not a Jupyter message")
    if (_may_be_deep(metadata) and _is_deep(about)) or (_may_be_deep(content) and _is_deep(said)):
        raise RefusedMessageError(f"its content is nested more than {MAX_DEPTH} deep", request_id=said.get("id"))
    return Message(kind=kind, parent_id=parent_id if isinstance(parent_id, str) else None, content=said)


def _read(part: bytes) -> Any:
    """The JSON of a part, in UTF-8. `json.loads` looks longer for encoding and spaces than it reads a small message."""
    if part == b"{}":
        return {}
    text, is_whole = _decoded(part)
    text = text.strip(JSON_SPACE)
    value, end = DECODER.raw_decode(text)
    if end != len(text):
        raise ValueError("more follows its JSON")
    return value if is_whole else whole_value(value)


def _decoded(part: bytes) -> tuple[str, bool]:
    """The text of a part, and whether it has no half characters. Jupyter sends the bytes of file names as they are."""
    try:
        return str(part, "utf-8"), b"\\ud" not in part and b"\\uD" not in part
    except UnicodeDecodeError:
        return str(part, "utf-8", "surrogateescape"), False


def _parent_id(part: bytes) -> Any:
    """The messages of a cell all have the same parent."""
    return _short_parent_id(part) if len(part) <= MAX_PARENT_BYTES else _read(part).get("msg_id")


@functools.lru_cache(maxsize=64)
def _short_parent_id(part: bytes) -> Any:
    return _read(part).get("msg_id")


def _may_be_deep(part: bytes) -> bool:
    """False where it certainly is not: most messages have a few brackets."""
    return part.count(b"[") + part.count(b"{") > MAX_DEPTH


def _is_deep(value: Any) -> bool:
    """Whether it is nested too deeply. Searches level by level, because recursion would need a deep stack."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def output_of(message: Message) -> CellOutput | None:
    """Return the output of a cell in a message. None: it is not output.

    Raises:
        RefusedMessageError: Its values have other types than Jupyter's specification says.
    """
    content = message.content
    match message.kind:
        case "stream":
            return StreamText(name="stderr" if content.get("name") == "stderr" else "stdout", text=_text(content, "text"))
        case "display_data" | "update_display_data":
            display_id = _mapping(content, "transient").get("display_id")
            return DisplayData(
                data=_mapping(content, "data"),
                metadata=_mapping(content, "metadata"),
                display_id=display_id if isinstance(display_id, str) else None,
                update=message.kind == "update_display_data",
            )
        case "execute_result":
            return ExecuteResult(
                data=_mapping(content, "data"),
                metadata=_mapping(content, "metadata"),
                execution_count=_count(content) or 0,
            )
        case "error":
            lines = content.get("traceback") or ()
            if not (isinstance(lines, list | tuple) and all(isinstance(line, str) for line in lines)):
                raise RefusedMessageError("the traceback of an error is no list of texts")
            return CellError(ename=_text(content, "ename"), evalue=_text(content, "evalue"), traceback=tuple(lines))
        case "clear_output":
            return ClearOutput(wait=bool(content.get("wait", False)))
    return None


def reply_of(message: Message) -> dict[str, Any]:
    """Return `status`, `execution_count` and `payload` of the reply to a cell; an unknown status counts as an error."""
    status, payloads = message.content.get("status"), message.content.get("payload")
    known = isinstance(status, str) and status in REPLY_STATUSES
    return {
        "status": status if known else "error",
        "execution_count": _count(message.content),
        "payload": [item for item in payloads if isinstance(item, dict)] if isinstance(payloads, list) else [],
    }


def _text(content: dict[str, Any], name: str) -> str:
    value = content.get(name)
    if not isinstance(value, str):
        raise RefusedMessageError(f"`{name}` is no text")
    return value


def _mapping(content: dict[str, Any], name: str) -> dict[str, Any]:
    value = content.get(name) or {}
    if not isinstance(value, dict):
        raise RefusedMessageError(f"`{name}` is no object")
    return value


def _count(content: dict[str, Any]) -> int | None:
    value = content.get("execution_count")
    return value if isinstance(value, int) else None
