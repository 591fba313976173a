"""`KernelChannels`: how messages get to a kernel and back; `ZmqChannels`: over the sockets of a kernel on this machine.

The frame of a message, and what proves that it is the kernel's, is the business of the channels: sockets of this machine
have signatures, a connection to a gateway has none. The client checks what is in a message, whichever way it came.
"""

import asyncio
import hmac
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias

from jupyter_client.session import DELIM, Session
from zmq.constants import DONTWAIT
from zmq.error import Again
from zmq.sugar.socket import Socket

from freeact_sub.errors import KernelLostError
from freeact_sub.kernels.messages import MessageError, check_size

ChannelName: TypeAlias = Literal["iopub", "shell", "control"]
CHANNELS: Final[tuple[ChannelName, ...]] = ("iopub", "shell", "control")
DELIMITER: Final[bytes] = DELIM

logger = logging.getLogger(__name__)


class KernelChannels(Protocol):
    """The three channels to one kernel, open from the start. Messages of one channel keep their order."""

    def send(self, channel: ChannelName, kind: str, content: Mapping[str, Any]) -> str:
        """Sends a message, without waiting for anybody; it may wait on its way for a kernel that is not there yet.

        Nothing is raised for a connection that is lost: `receive` tells of it.

        Args:
            channel: `shell` or `control`.
            kind: Jupyter's `msg_type`.
            content: Of the message.

        Returns:
            The message's id, which its answers have as that of their parent.

        Raises:
            KernelLostError: The channels are closed.
        """
        ...

    async def receive(self, channel: ChannelName) -> list[bytes]:
        """Waits for the next message: the JSON of its header, parent, metadata and content, then its buffers.

        Each channel has one reader, which calls this again at once: nothing may be held back until another channel is read.

        Raises:
            MessageError: What came is no message of this kernel. The next one can be received.
            KernelLostError: Nothing will come any more, for example because a connection is lost for good.
        """
        ...

    def close(self) -> None:
        """Closes the channels. Can be called again."""
        ...


class ZmqChannels:
    """The sockets of a kernel on this machine. Messages are signed with the kernel's key."""

    def __init__(self, session: Session, sockets: Mapping[ChannelName, Any]) -> None:
        """Args: session: signs. sockets: of zmq, for asyncio, connected; closed with the channels."""
        self._session: Any = session  # jupyter_client is typed in part only
        self._sockets = dict(sockets)
        self._at_once: Any = Socket.shadow(sockets["iopub"])
        """The same socket, read without a future for each message."""

    def send(self, channel: ChannelName, kind: str, content: Mapping[str, Any]) -> str:
        """See `KernelChannels`."""
        socket = self._sockets.get(channel)
        if socket is None:
            raise KernelLostError("the kernel is closed")
        message = self._session.msg(kind, dict(content))
        # Not `session.send`: it writes past the asyncio socket, which may swallow the one wake-up that tells of a message
        # to be read (zmq's descriptor is edge-triggered), and the reader then sleeps for ever.
        socket.send_multipart(self._session.serialize(message)).add_done_callback(_retrieved)
        message_id: str = message["header"]["msg_id"]
        return message_id

    async def receive(self, channel: ChannelName) -> list[bytes]:
        """See `KernelChannels`."""
        socket = self._sockets.get(channel)
        if socket is None:
            raise KernelLostError("the kernel is closed")
        if channel == "iopub":  # nothing is sent on it: no wake-up of a sender can be swallowed, see above
            try:
                return signed_parts(self._at_once.recv_multipart(DONTWAIT), self._session.sign)
            except Again:
                pass
        return signed_parts(await socket.recv_multipart(), self._session.sign)

    def close(self) -> None:
        """See `KernelChannels`."""
        sockets, self._sockets = self._sockets, {}
        for socket in sockets.values():
            socket.close(linger=0)


def signed_parts(frames: list[bytes], sign: Callable[[list[bytes]], bytes]) -> list[bytes]:
    """The parts of a message as zmq brings it.

    Args:
        frames: As they came.
        sign: Makes the signature of the parts.

    Raises:
        MessageError: It is no Jupyter message, or is not signed with the kernel's key.
        RefusedMessageError: It is too large.
    """
    check_size(frames)  # before the signature is made, which reads all of it
    try:
        start = frames.index(DELIMITER) + 1
        signature, *parts = frames[start:]
    except ValueError as error:
        raise MessageError(f"it is no Jupyter message ({error})") from error
    if not hmac.compare_digest(sign(parts[:4]), signature):
        raise MessageError("its signature is wrong")
    return parts


def _retrieved(sent: asyncio.Future[Any]) -> None:
    if not sent.cancelled() and sent.exception() is not None:
        logger.warning("a message to a kernel could not be sent: %s", sent.exception())
