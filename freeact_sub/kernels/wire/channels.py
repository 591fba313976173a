"""`KernelChannels`: carries messages to a kernel and back. `ZmqChannels`: uses the sockets of a kernel on this machine.

The channels take care of the frame of a message, and of the proof that it is the kernel's: sockets of this machine have
signatures, a connection to a gateway has none. The client checks the content of a message, whichever way it came.
`read_message` makes `cells.*` values of the messages that a kernel sends.
"""

import asyncio
import contextlib
import functools
import hmac
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeAlias

from jupyter_client.session import DELIM, Session
from zmq.constants import Flag
from zmq.error import Again, ZMQError
from zmq.sugar.context import Context
from zmq.sugar.socket import Socket

from freeact_sub.cells import CellError, CellOutput, ClearOutput, DisplayData, ExecuteResult, StreamText
from freeact_sub.errors import KernelLostError
from freeact_sub.kernels.guest.plain import MAX_MESSAGE_BYTES, pack, too_large
from freeact_sub.text import whole_value

ChannelName: TypeAlias = Literal["iopub", "shell", "control"]
CHANNELS: Final[tuple[ChannelName, ...]] = ("shell", "control", "iopub")
"""The channels in the order in which they are connected: with bound sockets, the others once something comes on iopub."""
DELIMITER: Final[bytes] = DELIM
ZmqSocket: TypeAlias = Socket[bytes]
ZmqContext: TypeAlias = Context[ZmqSocket]
"""A context whose sockets are not those of `zmq.asyncio`."""
Hear: TypeAlias = Callable[[ChannelName, list[bytes] | Exception], None]
"""Called with each message: the JSON of its header, parent, metadata and content, then its buffers. Must not raise.

A `MessageError` stands for bytes that are no message of this kernel; after any other exception nothing comes.
"""
MESSAGES_AT_ONCE: Final = 50
BYTES_AT_ONCE: Final = 200_000
"""Bytes of a channel that are read in a row before other tasks get their turn."""

logger = logging.getLogger(__name__)
MAX_HEADER_BYTES: Final = 65_536
"""The bound on the part that is read of a message that is too large."""
MAX_DEPTH: Final = 200
"""Maximum depth of lists and objects in each other; code that shows or writes deeper values would run out of stack."""
MAX_PARENT_BYTES: Final = 2_000
"""The bound on a remembered parent header."""
REPLY_STATUSES: Final = frozenset({"ok", "error", "aborted"})
JSON_SPACE: Final = " \t\n\r"
DECODER: Final = json.JSONDecoder()


class MessageError(Exception):
    """A message is unusable; the text says why."""


class RefusedMessageError(MessageError):
    """A message of the kernel is unusable, and its reader must be told."""

    def __init__(self, text: str, *, request_id: Any = None, kind: str = "", parent_id: str | None = None) -> None:
        """Makes the error.

        Args:
            text: The reason.
            request_id: The request that waits for an answer. None: none does, or it cannot be read.
            kind: Jupyter's `msg_type`. Empty: it cannot be read.
            parent_id: The id of the request that it belongs to. None: it cannot be read.
        """
        super().__init__(text)
        self.request_id = request_id
        self.kind, self.parent_id = kind, parent_id


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

    Args:
        frames: The JSON of header, parent, metadata and content, and the buffers.
        max_bytes: The largest size of all together.

    Raises:
        RefusedMessageError: It is too large.
    """
    size = sum(map(len, frames))
    reason = f"it has {size:,} bytes, more than {max_bytes:,}" if size > max_bytes else ""
    if reason := reason or next(filter(None, map(too_large, frames[:4])), ""):
        kind, parent_id = _about(frames)
        raise RefusedMessageError(f"it is too large ({kind}): {reason}", kind=kind, parent_id=parent_id)


def read_message(parts: Sequence[bytes], *, max_bytes: int = MAX_MESSAGE_BYTES) -> Message:
    """Checks and reads a message.

    Differs from `Session.deserialize` in the dates: parsing two in each message takes longer than all the rest.

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


def _about(parts: Sequence[bytes]) -> tuple[str, str | None]:
    """Returns the kind of a message that is not read, and the id of its parent, as far as they are short."""
    kind, parent_id = "", None
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError):
        if len(parts[0]) + len(parts[1]) <= MAX_HEADER_BYTES:
            kind, parent_id = _read(parts[0])["msg_type"], _read(parts[1]).get("msg_id")
    return str(kind), parent_id if isinstance(parent_id, str) else None


def _read(part: bytes) -> Any:
    """Returns the JSON of a part, in UTF-8. `json.loads` looks longer for the encoding than it reads a small message."""
    if part == b"{}":
        return {}
    text, is_whole = _decoded(part)
    text = text.strip(JSON_SPACE)
    value, end = DECODER.raw_decode(text)
    if end != len(text):
        raise ValueError("more follows its JSON")
    return value if is_whole else whole_value(value)


def _decoded(part: bytes) -> tuple[str, bool]:
    """Returns the text of a part, and whether it has no half characters. Jupyter sends bytes of file names unchanged."""
    try:
        return str(part, "utf-8"), b"\\ud" not in part and b"\\uD" not in part
    except UnicodeDecodeError:
        return str(part, "utf-8", "surrogateescape"), False


def _parent_id(part: bytes) -> Any:
    """Returns the id of a parent, cached if short: the messages of a cell all have the same parent."""
    return _short_parent_id(part) if len(part) <= MAX_PARENT_BYTES else _read(part).get("msg_id")


@functools.lru_cache(maxsize=64)
def _short_parent_id(part: bytes) -> Any:
    return _read(part).get("msg_id")


def _may_be_deep(part: bytes) -> bool:
    """Returns False where a part certainly is not deep: most messages have a few brackets."""
    return part.count(b"[") + part.count(b"{") > MAX_DEPTH


def _is_deep(value: Any) -> bool:
    """Returns whether a value is nested too deeply; goes level by level, because recursion would need a deep stack."""
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
    """Returns the output of a cell in a message, if it is one.

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
                raise RefusedMessageError("the traceback of an error is not a list of texts")
            return CellError(ename=_text(content, "ename"), evalue=_text(content, "evalue"), traceback=tuple(lines))
        case "clear_output":
            return ClearOutput(wait=bool(content.get("wait", False)))
    return None


def reply_of(message: Message) -> dict[str, Any]:
    """Returns `status`, `execution_count` and `payload` of the reply to a cell; an unknown status counts as an error."""
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


class KernelChannels(Protocol):
    """The three channels to one kernel, open from the start. Messages of one channel keep their order."""

    def send(self, channel: ChannelName, kind: str, content: Mapping[str, Any]) -> str:
        """Sends a message without waiting; the message may wait on its way for a kernel that is still starting.

        A lost connection raises nothing: the listener is told.

        Args:
            channel: `shell` or `control`.
            kind: Jupyter's `msg_type`.
            content: The content of the message.

        Returns:
            The message's id, which its answers name as their parent.

        Raises:
            KernelLostError: The channels are closed.
        """
        ...

    def listen(self, hear: Hear) -> None:
        """Passes each message to the one listener as soon as it arrives, earlier messages first."""
        ...

    def close(self) -> None:
        """Closes the channels. Can be called again."""
        ...


class ZmqChannels:
    """The sockets of a kernel on this machine. Messages are signed with the kernel's key."""

    def __init__(self, session: Session, sockets: Mapping[ChannelName, ZmqSocket]) -> None:
        """Args: session: signs. sockets: connected; closed with the channels."""
        self._session: Any = session  # jupyter_client is typed in part only
        self._session.pack = pack
        self._inboxes = {channel: _Inbox(socket) for channel, socket in sockets.items()}

    def send(self, channel: ChannelName, kind: str, content: Mapping[str, Any]) -> str:
        """Sends a message, signed."""
        message = self._session.msg(kind, dict(content))
        self._inbox(channel).send(self._session.serialize(message))
        message_id: str = message["header"]["msg_id"]
        return message_id

    def listen(self, hear: Hear) -> None:
        """Passes each message to the one listener as soon as it arrives, earlier messages first."""
        for channel, inbox in self._inboxes.items():
            inbox.listen(partial(self._take, hear, channel))

    def close(self) -> None:
        """Closes the sockets."""
        inboxes, self._inboxes = self._inboxes, {}
        for inbox in inboxes.values():
            inbox.close()

    def _take(self, hear: Hear, channel: ChannelName, came: list[bytes] | Exception) -> None:
        try:
            hear(channel, came if isinstance(came, Exception) else signed_parts(came, self._session))
        except MessageError as error:
            hear(channel, error)

    def _inbox(self, channel: ChannelName) -> "_Inbox":
        if channel not in self._inboxes:
            raise KernelLostError("the kernel is closed")
        return self._inboxes[channel]


class _Inbox:
    """A socket, and the listener to its messages.

    A message is handed over in the turn of the loop in which its socket has woken it. The sockets of `zmq.asyncio` make a
    future, a timer and several looks at the socket for each, and wake a task.
    """

    def __init__(self, socket: ZmqSocket) -> None:
        self._socket = socket
        self._descriptor = socket.fileno()
        self._loop = asyncio.get_running_loop()
        self._hear: Callable[[list[bytes] | Exception], None] | None = None

    def send(self, frames: list[bytes]) -> None:
        try:
            self._socket.send_multipart(frames, Flag.DONTWAIT)
        except ZMQError as error:
            logger.warning("a message to a kernel could not be sent: %s", error)
        # zmq has noted what has come while it sent, and its descriptor does not tell of it any more
        self._loop.call_soon(self._read)

    def listen(self, hear: Callable[[list[bytes] | Exception], None]) -> None:
        self._hear = hear
        self._loop.add_reader(self._descriptor, self._read)
        self._loop.call_soon(self._read)

    def close(self) -> None:
        if self._hear is not None:
            self._hear = None
            self._loop.remove_reader(self._descriptor)
        self._socket.close(linger=0)

    def _read(self) -> None:
        """Hands over all messages that have come."""
        messages = size = 0
        while messages < MESSAGES_AT_ONCE and size < BYTES_AT_ONCE:
            if self._hear is None:  # not yet, or closed, perhaps over the last message
                return
            try:
                frames = self._socket.recv_multipart(Flag.DONTWAIT)
            except Again:  # nothing more is there
                return
            except Exception as error:  # noqa: BLE001  # a message may also be too large for the memory
                self._loop.remove_reader(self._descriptor)
                self._hear(error)
                return
            messages, size = messages + 1, size + sum(map(len, frames))
            self._hear(frames)
        self._loop.call_soon(self._read)


def signed_parts(frames: list[bytes], session: Session) -> list[bytes]:
    """Returns the parts of a message as zmq brings it.

    Args:
        frames: The frames of the message.
        session: Has the kernel's key; with an empty one messages are not signed.

    Raises:
        MessageError: It is not a Jupyter message, or is not signed with the kernel's key.
        RefusedMessageError: It is too large.
    """
    try:
        start = frames.index(DELIMITER) + 1
        signature, *parts = frames[start:]
    except ValueError as error:
        raise MessageError(f"it is not a Jupyter message ({error})") from error
    check_size(parts)  # before the signature is made, which reads all of it
    expected: bytes = session.sign(parts[:4])
    if not hmac.compare_digest(expected, signature):
        raise MessageError("its signature is wrong")
    return parts
