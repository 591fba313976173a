"""Bounds what a kernel sends: its host reads each message at once, and serves all agents meanwhile.

Runs in kernels: standard library only. Long text goes in pieces. Of a display, the kinds that are too large are left out,
and a line says which. An error, and the reply to a cell, are shortened: a host that gets no reply waits for it.
"""

import functools
from collections.abc import Iterator
from typing import Any

from .plain import MAX_MESSAGE_BYTES, pack, too_large

PIECE_CHARS = 100_000
SHORT_CHARS = 2000
"""Of each text of an error that is shortened."""
SHORT_LINES = 20
"""Of its traceback; each stands for a frame."""
DISPLAYS = ("display_data", "update_display_data", "execute_result")


class PartTooLargeError(ValueError):
    """A message is too large to be sent; the text says how large it is."""


def pack_within_bounds(value: Any) -> bytes:
    """A part of a message, as `pack`. Raises: PartTooLargeError: It is too large."""
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
    """Say how long the text of a message is if it is too long, before it is made a message in vain."""
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
    """What is sent in place of a message. Args: reason: how large it is."""
    if kind == "stream":
        yield from streamed(content["name"], content["text"])
    elif kind in DISPLAYS:
        yield from displayed(kind, content)
    elif kind == "error" or kind.endswith("_reply"):
        yield kind, shortened(content, reason)
    else:
        yield from streamed("stderr", f"[a message is left out ({kind}): {reason}]\n")


def streamed(name: str, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A text as messages of a standard stream."""
    for start in range(0, len(text), PIECE_CHARS):
        yield "stream", {"name": name, "text": text[start : start + PIECE_CHARS]}


def displayed(kind: str, content: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A display without what is too large in it, after its text and a line that names the rest."""
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
    """An error or a reply with short texts and nothing else that may be large."""
    texts = {name: text[:SHORT_CHARS] for name, text in content.items() if isinstance(text, str)}
    if "evalue" in texts and len(content["evalue"]) > SHORT_CHARS:
        texts["evalue"] += f" [… shortened: {reason}]"
    numbers = {name: value for name, value in content.items() if isinstance(value, int)}
    lines = [line[:PIECE_CHARS] for line in content.get("traceback", ())[:SHORT_LINES]]
    last = f"{texts.get('ename', '')}: {texts.get('evalue', '')}"
    return {**texts, **numbers, "traceback": [*lines[:-1], last], "payload": [], "user_expressions": {}}
