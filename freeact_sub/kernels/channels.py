"""`KernelChannels`: carries messages to a kernel and back. `ZmqChannels`: uses the sockets of a kernel on this machine.

The frame of a message, and what proves that it is the kernel's, is the business of the channels: sockets of this machine
have signatures, a connection to a gateway has none. The client checks what is in a message, whichever way it came.
"""

import asyncio
import hmac
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeAlias

from jupyter_client.session import DELIM, Session
from zmq.constants import Flag
from zmq.error import Again, ZMQError
from zmq.sugar.context import Context
from zmq.sugar.socket import Socket

from freeact_sub.errors import KernelLostError
from freeact_sub.kernels.guest.plain import pack
from freeact_sub.kernels.messages import MessageError, check_size

ChannelName: TypeAlias = Literal["iopub", "shell", "control"]
CHANNELS: Final[tuple[ChannelName, ...]] = ("shell", "control", "iopub")
"""In the order in which they are connected: of a kernel with bound sockets, the others are once something comes on iopub."""
DELIMITER: Final[bytes] = DELIM
ZmqSocket: TypeAlias = Socket[bytes]
ZmqContext: TypeAlias = Context[ZmqSocket]
"""Not those of `zmq.asyncio`."""
Hear: TypeAlias = Callable[[ChannelName, list[bytes] | Exception], None]
"""Called with each message: the JSON of its header, parent, metadata and content, then its buffers. Must not raise.

A `MessageError` stands for what is not a message of this kernel; after any other exception nothing comes.
"""
MESSAGES_AT_ONCE: Final = 50
"""Messages of a channel that are read in a row before other tasks get their turn."""

logger = logging.getLogger(__name__)


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
        """See `KernelChannels`."""
        message = self._session.msg(kind, dict(content))
        self._inbox(channel).send(self._session.serialize(message))
        message_id: str = message["header"]["msg_id"]
        return message_id

    def listen(self, hear: Hear) -> None:
        """See `KernelChannels`."""
        for channel, inbox in self._inboxes.items():
            inbox.listen(partial(self._take, hear, channel))

    def close(self) -> None:
        """See `KernelChannels`."""
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
    """One socket, and who hears what comes on it.

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
        """Hand over what has come."""
        for _ in range(MESSAGES_AT_ONCE):
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
            self._hear(frames)
        self._loop.call_soon(self._read)


def signed_parts(frames: list[bytes], session: Session) -> list[bytes]:
    """The parts of a message as zmq brings it.

    Args:
        frames: As they came.
        session: Has the kernel's key; with an empty one messages are not signed.

    Raises:
        MessageError: It is not a Jupyter message, or is not signed with the kernel's key.
        RefusedMessageError: It is too large.
    """
    check_size(frames)  # before the signature is made, which reads all of it
    try:
        start = frames.index(DELIMITER) + 1
        signature, *parts = frames[start:]
    except ValueError as error:
        raise MessageError(f"it is not a Jupyter message ({error})") from error
    expected: bytes = session.sign(parts[:4])
    if not hmac.compare_digest(expected, signature):
        raise MessageError("its signature is wrong")
    return parts
