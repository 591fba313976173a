"""`GatewayChannels`: messages to a kernel and back over one WebSocket, which is opened again when it drops.

A sent message is kept until one comes that belongs to it (a kernel tells of each message that it is busy with it), and is
sent again over a new connection; the guest knows which ones it had already. The server keeps the kernel's messages
meanwhile, under the session id that all connections of one kernel have.

Messages are frames of the WebSocket: `v1.kernel.websocket.jupyter.org`, or the form of older servers. A server of the first
kind passes the parts of a message through as they are; one of the other kind takes each message apart and writes it anew.
Neither shows a signature: the server checks it, so only the frame is checked here.

`NumberedOutput` keeps the messages of a cell whole and in order though the connection drops in the middle. The guest numbers
the output of a cell, and keeps the last of it. After a drop the host asks for the missing numbers. Until the answer is
there, messages are held: the server passes on those that it has kept, but not all that were on their way, and it may take a
message for itself when a connection is opened again.
"""

import asyncio
import contextlib
import json
import logging
import re
import socket
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from freeact_sub.errors import KernelLostError, KernelStartError
from freeact_sub.kernels.gateway.server import HANG_SECONDS, HANGS, GatewayServer, refused_connection
from freeact_sub.kernels.guest import plain
from freeact_sub.kernels.wire.channels import CHANNELS, MESSAGES_AT_ONCE, ChannelName, Hear, MessageError, check_size
from freeact_sub.system.closing import end_task

MAX_SENT_BYTES: Final = 8 * 2**20
"""The largest frame: a server closes the connection over one of more than 10 MiB."""
RECONNECT_SECONDS: Final = 20.0
"""Seconds for which a connection that drops, or is not answered, is tried."""
REFUSED_SECONDS: Final = 1.0
"""Seconds for which a connection is tried while nobody listens: then the gateway has ended, and its kernels with it."""
RETRY_SECONDS: Final = 0.2
AGAIN_SECONDS: Final = 2.0
"""Seconds without a reply after which a question is sent again over a new connection."""
HEARTBEAT_SECONDS: Final = 2.0
"""Seconds between two heartbeats of a connection."""
SILENT_SECONDS: Final = 8.0
"""Seconds that a heartbeat may go unanswered while nothing else comes: the reply may have to wait behind much output."""
LOST_SECONDS: Final = 2.0
"""Seconds after such a heartbeat until the kernel is lost, unless the server answers over a new connection."""
TOO_BIG: Final = 1009
"""The close code of a WebSocket for a message that is too large."""
FIRST_SERVER_ERROR: Final = 500
TAKES_TOO_LITTLE: Final = (
    "its gateway {url} takes no message of 8 MB: let tornado's `websocket_max_message_size` be what it is by itself, 10 MiB"
)
LOST_OUTPUT: Final = "[the connection to the kernel was cut off for a while: output of this cell may be missing]\n"
ANSWERS: Final = frozenset({"freeact_values", "freeact_end"})
"""Types of the guest's replies to `ask`."""
LIMITED: Final = b"rate exceeded"
RATE_LIMIT: Final = re.compile(r"IOPub (message|data) rate exceeded")
"""The beginning of a server's notice that it drops output and everything else on iopub."""
QUICK_ACKNOWLEDGEMENT: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)

logger = logging.getLogger(__name__)


class GatewayChannels:
    """The channels to one kernel of a server."""

    def __init__(
        self,
        server: GatewayServer,
        kernel_id: str,
        *,
        lease_seconds: float,
        on_lost: Callable[[str, bool], None],
        on_notice: Callable[[str], None] = logger.warning,
    ) -> None:
        """Make them; `open` connects.

        Args:
            server: The kernel's server.
            kernel_id: The kernel's id there.
            lease_seconds: Seconds of the kernel's lease.
            on_lost: Called once with the reason of the kernel's end, and whether its server is gone too.
            on_notice: Called with a change that the server needs, as a sentence.
        """
        self._server, self._kernel_id = server, kernel_id
        self._lease_seconds = lease_seconds
        self._on_lost, self._on_notice = on_lost, on_notice
        self.session_id = uuid.uuid4().hex
        self._early: list[tuple[ChannelName, list[bytes] | Exception]] = []
        """Messages that have come before there was a listener."""
        self._hear: Hear = lambda channel, came: self._early.append((channel, came))
        self._unacknowledged: dict[str, tuple[ChannelName, list[bytes]]] = {}
        self._to_send: asyncio.Queue[tuple[ChannelName, list[bytes]]] = asyncio.Queue()
        self._replies: dict[str, asyncio.Future[tuple[Mapping[str, Any], list[bytes]]]] = {}
        self._running: asyncio.Task[None] | None = None
        self._output = NumberedOutput()
        self._frames = 0
        """The number of frames that have come."""
        self._connections = 0
        """The number of connections that were made again."""
        self._missed = False
        """Whether the last connection was dropped because a heartbeat had no reply."""
        self._lost = ""
        self._closed = False
        self.restarted = False
        """Whether the server has put another kernel in the place of one that has died."""
        self._ready = False
        """Whether the kernel has given a sign of life; one that announces its start after that is another one."""
        self._limit_is_reported = False

    async def open(self) -> None:
        """Connect; returns when the server has connected to the kernel.

        Raises:
            KernelStartError: There is no connection.
        """
        try:
            connection = await self._connection(None)
        except InvalidStatus as error:
            raise KernelStartError(refused_connection(self._server, error.response.status_code)) from error
        except (OSError, InvalidHandshake, TimeoutError) as error:
            raise KernelStartError(f"the gateway {self._server.url} did not connect to its kernel: {error}") from error
        self._running = asyncio.create_task(self._run(connection), name=f"gateway channels {self._kernel_id}")

    def send(
        self,
        channel: ChannelName,
        kind: str,
        content: Mapping[str, Any],
        *,
        buffers: Sequence[bytes] = (),
        once: bool = False,
    ) -> str:
        """Send a message. Args: once: it is of no use any more when the connection has dropped."""
        if self._closed:
            raise KernelLostError("the kernel is closed")
        message_id = uuid.uuid4().hex
        header = {
            "msg_id": message_id,
            "msg_type": kind,
            "session": self.session_id,
            "username": "freeact",
            "date": datetime.now(UTC).isoformat(),
            "version": "5.3",
        }
        body = plain.pack(content)
        if len(body) > MAX_SENT_BYTES:
            return self._send_parts(kind, body)
        if kind == "execute_request":
            self._output.begin(message_id)
        parts = [json.dumps(header).encode(), b"{}", b"{}", body, *buffers]
        if not once:
            self._unacknowledged[message_id] = channel, parts
        self._to_send.put_nowait((channel, parts))
        return message_id

    def listen(self, hear: Hear) -> None:
        """Pass each message to the one listener, earlier messages first."""
        self._hear = hear
        for came in self._early:
            hear(*came)
        self._early.clear()

    async def ask(
        self, kind: str, content: Mapping[str, Any], *, buffers: Sequence[bytes] = ()
    ) -> tuple[Mapping[str, Any], list[bytes]]:
        """Send a control message that the guest answers by one of the same kind; return the answer's content and buffers.

        Over a new connection it is sent again until it is answered: to do it twice must be the same as once.

        Raises:
            KernelLostError: The kernel has ended.
        """
        if self._lost:
            raise KernelLostError(self._lost)
        reply_id = uuid.uuid4().hex
        reply: asyncio.Future[tuple[Mapping[str, Any], list[bytes]]] = asyncio.get_running_loop().create_future()
        self._replies[reply_id] = reply
        connections, seconds = self._connections, AGAIN_SECONDS
        try:
            self.send("control", kind, {"id": reply_id, **content}, buffers=buffers)
            while not (await asyncio.wait({reply}, timeout=seconds))[0]:
                seconds *= 2
                if (
                    self._connections > connections and self._to_send.empty()
                ):  # with a head of its own: a kernel takes no message twice
                    self.send("control", kind, {"id": reply_id, **content}, buffers=buffers)
        finally:
            del self._replies[reply_id]
        return reply.result()

    def close(self) -> None:
        """Close the channels. Can be called again."""
        self._closed = True
        if self._running is not None:
            self._running.cancel()
        self._lose("it was closed", gone=False)

    async def aclose(self) -> None:
        """Close them, and wait until the connection is closed."""
        self.close()
        if self._running is not None:
            await end_task(self._running)

    async def _connection(self, open_seconds: float | None) -> ClientConnection:
        return await self._server.connection(self._kernel_id, self.session_id, open_seconds=open_seconds, protocols=(V1,))

    def _send_parts(self, kind: str, body: bytes) -> str:
        """Send a message in parts, which the guest puts together. Only the control channel has messages of such a size."""
        pieces = [body[start : start + MAX_SENT_BYTES] for start in range(0, len(body), MAX_SENT_BYTES)]
        whole = {"id": uuid.uuid4().hex, "kind": kind, "count": len(pieces)}
        return [
            self.send("control", "freeact_part", {**whole, "number": number}, buffers=[piece])
            for number, piece in enumerate(pieces)
        ][-1]

    async def _run(self, connection: ClientConnection) -> None:
        """Read and write until the kernel is lost."""
        while not self._lost:
            try:
                async with connection, asyncio.TaskGroup() as group:
                    group.create_task(self._write(connection))
                    group.create_task(self._renew())
                    group.create_task(self._try(connection))
                    await self._read(connection)
            except* ConnectionClosed as closed:
                logger.info("the connection to %s dropped: %s", self._server.url, closed.exceptions[0])
                if _is_too_big(closed.exceptions[0]):  # it would be sent again, and be too large again
                    self._lose(TAKES_TOO_LITTLE.format(url=self._server.url), gone=False)
            except* Exception as failed:  # border: a kernel that nobody hears any more is lost
                logger.exception("the connection to %s has failed", self._server.url)
                self._lose(f"its connection has failed ({failed.exceptions[0]!r})", gone=False)
            if not self._lost and (again := await self._connect_again()) is not None:
                connection = again
                self._connections += 1
                self._to_send = asyncio.Queue()
                for sent in self._unacknowledged.values():
                    self._to_send.put_nowait(sent)
                if cell_id := self._output.cell_id:
                    self.send("control", "freeact_again", {"cell": cell_id, "from": self._output.hold()})

    async def _connect_again(self) -> ClientConnection | None:
        """Return a new connection; None: the kernel is lost."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        refused_since: float | None = None
        while (left := began + RECONNECT_SECONDS - loop.time()) > 0:
            if await self._server.hangs(LOST_SECONDS if self._missed else HANG_SECONDS):
                self._lose(HANGS.format(url=self._server.url), gone=True)
                return None
            self._missed = False
            try:
                return await self._connection(left)
            except InvalidStatus as error:
                if error.response.status_code < FIRST_SERVER_ERROR:
                    self._lose(refused_connection(self._server, error.response.status_code), gone=False)
                    return None
            except ConnectionRefusedError:
                refused_since = refused_since or loop.time()
                if loop.time() - refused_since > REFUSED_SECONDS:
                    break
            except (OSError, InvalidHandshake, TimeoutError, ConnectionClosed) as error:
                logger.debug("no connection to %s: %s", self._server.url, error)
            await asyncio.sleep(RETRY_SECONDS)
        self._lose(f"its gateway {self._server.url} cannot be reached any more", gone=True)
        return None

    async def _write(self, connection: ClientConnection) -> None:
        pack_frame = pack if connection.subprotocol == V1 else pack_old
        while True:
            await connection.send(pack_frame(*await self._to_send.get()))

    async def _renew(self) -> None:
        while True:
            self.send("control", "freeact_lease", {}, once=True)
            await asyncio.sleep(self._lease_seconds / 4)

    async def _try(self, connection: ClientConnection) -> None:
        """Drop a connection over which a heartbeat is not answered, and nothing else comes."""
        while True:
            frames, reply = self._frames, None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SILENT_SECONDS):  # it waits for room if much has been sent before
                    reply = asyncio.ensure_future(await connection.ping())
            if reply is not None:
                await asyncio.wait({reply}, timeout=SILENT_SECONDS)
            if frames == self._frames and (reply is None or not reply.done()):
                self._missed = True
                connection.transport.abort()
                return
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _read(self, connection: ClientConnection) -> None:
        """Read until the connection is closed; then raise."""
        transport = connection.transport
        connected = transport.get_extra_info("socket")
        while True:
            frame = await connection.recv()
            self._frames += 1
            if QUICK_ACKNOWLEDGEMENT is not None and connected is not None:
                # the server's small messages wait for our acknowledgement of the one before, else for 40 ms
                with contextlib.suppress(OSError):  # it is closed; earlier messages are still read
                    connected.setsockopt(socket.IPPROTO_TCP, QUICK_ACKNOWLEDGEMENT, 1)
            try:
                if connection.subprotocol == V1 and isinstance(frame, bytes):
                    channel, parts = unpack(frame)
                else:
                    channel, parts = unpack_old(frame)
            except MessageError as error:
                self._hear("iopub", error)
                continue
            if channel in CHANNELS:
                for message in self._take(parts):
                    self._hear(channel, message)
            if self._frames % MESSAGES_AT_ONCE == 0:
                await asyncio.sleep(0)  # others get their turn, however many have come at once

    def _take(self, parts: list[bytes]) -> list[list[bytes]]:
        """Look at a message; return the messages that others are to read now."""
        header, parent_id = header_of(parts), parent_id_of(parts)
        self._unacknowledged.pop(parent_id, None)
        kind = header.get("msg_type")
        if kind == "status":
            state = content_of(parts).get("execution_state")
            if state in ("dead", "restarting") or (state == "starting" and self._ready):
                self.restarted = state != "dead"
                self._lose("its process has ended", gone=False)
            self._ready = True
        if kind in ANSWERS:
            content = content_of(parts)
            reply = self._replies.get(str(content.get("id")))
            if reply is not None and not reply.done():
                reply.set_result((content, parts[4:]))
            return []
        if kind == "freeact_again":
            held, missing = self._output.release()
            if missing and self._output.cell_id:
                held.insert(0, _stderr(LOST_OUTPUT, self._output.cell_id))
            return held
        if kind == "stream" and LIMITED in parts[3] and not self._limit_is_reported:
            self._report_limit(parts)
        return [parts] if self._output.take(parent_id, metadata_of(parts), parts) else []

    def _report_limit(self, parts: list[bytes]) -> None:
        """Say once that the server drops messages: `freeact_request` too, which the guest sends again."""
        text = content_of(parts).get("text")
        if isinstance(text, str) and RATE_LIMIT.match(text.strip()):
            self._limit_is_reported = True
            self._on_notice(
                f"the gateway {self._server.url} leaves out output of kernels that put out much: start it with "
                "--ZMQChannelsWebsocketConnection.limit_rate=False (freeact-sub gateway check tells what else)"
            )

    def _lose(self, reason: str, *, gone: bool) -> None:
        """End the channels. Args: gone: the server has ended, or cannot be reached."""
        if self._lost:
            return
        self._lost = reason
        for parts in self._output.release()[0]:
            self._hear("iopub", parts)
        error = KernelLostError(reason)
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(error)
        self._hear("iopub", error)
        self._on_lost(reason, gone)


def _is_too_big(error: Exception) -> bool:
    """Return whether the other side has closed the connection over the size of a message of ours."""
    return (
        isinstance(error, ConnectionClosed)
        and error.rcvd is not None
        and error.rcvd.code == TOO_BIG
        and error.rcvd_then_sent is True
    )


def _stderr(text: str, cell_id: str) -> list[bytes]:
    """Make a message of our own in the output of a cell."""
    header, content = {"msg_type": "stream", "msg_id": uuid.uuid4().hex}, {"name": "stderr", "text": text}
    values: tuple[Mapping[str, Any], ...] = (header, {"msg_id": cell_id}, {}, content)
    return [json.dumps(value).encode() for value in values]


NUMBER: Final = "freeact_number"
"""The key of a number in a message's metadata."""

V1: Final = "v1.kernel.websocket.jupyter.org"
"""The requested subprotocol."""
PARTS: Final = ("header", "parent_header", "metadata", "content")


def pack(channel: str, parts: Sequence[bytes]) -> bytes:
    """Make a frame. Args: parts: the JSON of header, parent, metadata and content, then buffers."""
    return _joined([channel.encode(), *parts], "<", "Q", with_end=True)


def unpack(frame: bytes) -> tuple[str, list[bytes]]:
    """Return the channel and the parts of a frame.

    Raises:
        MessageError: It is no such frame.
    """
    offsets = _offsets(frame, "<", "Q")
    channel, *parts = [frame[start:end] for start, end in pairwise(offsets)]
    if len(parts) < len(PARTS):
        raise MessageError("a frame of the gateway has no whole message")
    return channel.decode(errors="replace"), parts


def pack_old(channel: str, parts: Sequence[bytes]) -> str | bytes:
    """Make a frame for a server that does not know `V1`: text, or bytes if there are buffers."""
    message: dict[str, Any] = dict(zip(PARTS, map(json.loads, parts), strict=False))
    message["channel"] = channel
    buffers = parts[len(PARTS) :]
    if not buffers:
        return json.dumps(message)
    return _joined([json.dumps(message).encode(), *buffers], ">", "I", with_end=False)


def unpack_old(frame: str | bytes) -> tuple[str, list[bytes]]:
    """Return the channel and the parts of a frame of such a server.

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
    """Return the header of a message; empty where it is none."""
    return _object(parts[0])


def metadata_of(parts: Sequence[bytes]) -> Mapping[str, Any]:
    """Return the metadata of a message; empty where it has none."""
    return {} if parts[2] == b"{}" else _object(parts[2])


def content_of(parts: Sequence[bytes]) -> Mapping[str, Any]:
    """Return the content of a message; empty where it is none."""
    return _object(parts[3])


def parent_id_of(parts: Sequence[bytes]) -> str:
    """Return the id of the message that this one belongs to; empty where it belongs to none."""
    return str(_object(parts[1]).get("msg_id", ""))


def _object(part: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(part)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _joined(parts: Sequence[bytes], order: str, number: str, *, with_end: bool) -> bytes:
    """Join the number of offsets, offsets and parts; with_end: one more offset tells where the last part ends."""
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
    """The output of the present cell, put in order and without repetitions."""

    def __init__(self) -> None:
        self.cell_id = ""
        self._low = 0
        self._seen: set[int] = set()
        """Numbers that have come, from `_low` on; all below have come."""
        self._held: dict[int, list[bytes]] | None = None
        """Messages that wait for earlier ones, after a drop."""

    def begin(self, cell_id: str) -> None:
        """Start with a new cell."""
        self.cell_id, self._low = cell_id, 0
        self._seen.clear()
        self._held = None

    def hold(self) -> int:
        """Hold messages back after the connection has dropped, and return the first missing number."""
        self._held = self._held or {}
        return self._low

    def take(self, parent_id: str, metadata: Mapping[str, Any], parts: list[bytes]) -> bool:
        """Return whether to pass a message on; otherwise it is held, or is a repetition."""
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
        """Return the held messages, in order; and whether some before them will not come any more."""
        held, self._held = self._held or {}, None
        missing = bool(self._seen)
        if missing:
            self._low = max(self._seen) + 1
            self._seen.clear()
        return [held[number] for number in sorted(held)], missing
