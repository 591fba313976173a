"""Jupyter messages as frames of a WebSocket: `v1.kernel.websocket.jupyter.org`, and what servers spoke before it.

A server of the first kind passes the parts of a message through as they are; one of the other kind takes each message apart
and writes it anew. Neither shows a signature: the server checks it, so what is checked here is the frame.

`NumberedOutput` keeps the messages of a cell whole and in order though the connection drops in the middle. The guest numbers
what a cell puts out, and keeps the last of it. After a drop the host asks for what it has not seen. Until the answer is
there, what comes is held: the server sends on what it has kept, but not all that was on its way, and it may take a message
for itself when a connection is opened again.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from freeact_sub.kernels.wire.channels import MessageError, check_size

NUMBER: Final = "freeact_number"
"""The key in a message's metadata."""

V1: Final = "v1.kernel.websocket.jupyter.org"
"""The requested subprotocol."""
PARTS: Final = ("header", "parent_header", "metadata", "content")


def pack(channel: str, parts: Sequence[bytes]) -> bytes:
    """A frame. Args: parts: the JSON of header, parent, metadata and content, then buffers."""
    return _joined([channel.encode(), *parts], "<", "Q", with_end=True)


def unpack(frame: bytes) -> tuple[str, list[bytes]]:
    """The channel and the parts of a frame.

    Raises:
        MessageError: It is no such frame.
    """
    offsets = _offsets(frame, "<", "Q")
    channel, *parts = [frame[start:end] for start, end in pairwise(offsets)]
    if len(parts) < len(PARTS):
        raise MessageError("a frame of the gateway has no whole message")
    return channel.decode(errors="replace"), parts


def pack_old(channel: str, parts: Sequence[bytes]) -> str | bytes:
    """Return a frame for a server that does not know `V1`: text, or bytes if there are buffers."""
    message: dict[str, Any] = dict(zip(PARTS, map(json.loads, parts), strict=False))
    message["channel"] = channel
    buffers = parts[len(PARTS) :]
    if not buffers:
        return json.dumps(message)
    return _joined([json.dumps(message).encode(), *buffers], ">", "I", with_end=False)


def unpack_old(frame: str | bytes) -> tuple[str, list[bytes]]:
    """The channel and the parts of a frame of such a server.

    Raises:
        MessageError: It is no such frame.
        RefusedMessageError: It is too large.
    """
    buffers: list[bytes] = []
    if isinstance(frame, bytes):
        offsets = [*_offsets(frame, ">", "I"), len(frame)]
        text, *buffers = [frame[start:end] for start, end in pairwise(offsets)]
    else:
        text = frame.encode()
    check_size([text])
    try:
        message = json.loads(text)
        parts = [json.dumps(message[name]).encode() for name in PARTS]
        channel = message["channel"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MessageError(f"a frame of the gateway is not a message ({error})") from error
    return str(channel), [*parts, *buffers]


def header_of(parts: Sequence[bytes]) -> Mapping[str, Any]:
    """The header of a message; empty where it is none."""
    return _object(parts[0])


def metadata_of(parts: Sequence[bytes]) -> Mapping[str, Any]:
    """The metadata of a message; empty where it has none."""
    return {} if parts[2] == b"{}" else _object(parts[2])


def content_of(parts: Sequence[bytes]) -> Mapping[str, Any]:
    """The content of a message; empty where it is none."""
    return _object(parts[3])


def parent_id_of(parts: Sequence[bytes]) -> str:
    """The id of the message that this one belongs to; empty where it belongs to none."""
    return str(_object(parts[1]).get("msg_id", ""))


def _object(part: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(part)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _joined(parts: Sequence[bytes], order: str, number: str, *, with_end: bool) -> bytes:
    """Number of offsets, offsets, parts; with_end: one more offset tells where the last part ends."""
    count = len(parts) + with_end
    ends = [struct.calcsize(number) * (count + 1)]
    for part in parts:
        ends.append(ends[-1] + len(part))
    return b"".join((struct.pack(f"{order}{count + 1}{number}", count, *ends[:count]), *parts))


def _offsets(frame: bytes, order: str, number: str) -> tuple[int, ...]:
    size = struct.calcsize(number)
    try:
        (count,) = struct.unpack_from(f"{order}{number}", frame)
        if not 0 < count <= len(frame) // size:
            raise MessageError("a frame of the gateway is cut off")
        offsets = struct.unpack_from(f"{order}{count}{number}", frame, size)
    except struct.error as error:
        raise MessageError(f"a frame of the gateway is cut off ({error})") from error
    if list(offsets) != sorted(offsets) or offsets[0] != size * (count + 1) or offsets[-1] > len(frame):
        raise MessageError("a frame of the gateway has parts where there are none")
    return offsets


class NumberedOutput:
    """Puts the output of the present cell in order, and drops repetitions."""

    def __init__(self) -> None:
        self.cell_id = ""
        self._low = 0
        self._seen: set[int] = set()
        """Numbers that have come, from `_low` on; all below have come."""
        self._held: dict[int, list[bytes]] | None = None
        """Messages that wait for earlier ones. None: nothing is held."""

    def begin(self, cell_id: str) -> None:
        """Starts with a new cell."""
        self.cell_id, self._low = cell_id, 0
        self._seen.clear()
        self._held = None

    def hold(self) -> int:
        """Holds messages back after the connection has dropped. Returns the first missing number."""
        self._held = self._held or {}
        return self._low

    def take(self, parent_id: str, metadata: Mapping[str, Any], parts: list[bytes]) -> bool:
        """Whether to pass a message on; otherwise it is held, or is a repetition."""
        number = metadata.get(NUMBER)
        if parent_id != self.cell_id or not isinstance(number, int):
            return True
        if number < self._low or number in self._seen:
            return False
        self._seen.add(number)
        while self._low in self._seen:
            self._seen.remove(self._low)
            self._low += 1
        if self._held is not None:
            self._held[number] = parts
        return self._held is None

    def release(self) -> tuple[list[list[bytes]], bool]:
        """The messages that were held, in order; and whether some before them will not come any more."""
        held, self._held = self._held or {}, None
        missing = bool(self._seen)
        if missing:
            self._low = max(self._seen) + 1
            self._seen.clear()
        return [held[number] for number in sorted(held)], missing
