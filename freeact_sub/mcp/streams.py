"""Streams between an MCP server and the SDK: they bound messages, and log one line where the SDK logs a thousand."""

import asyncio
import json
import logging
import math
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, Self

import anyio
import httpx2
import mcp
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from freeact_sub.mcp.json_values import read_json
from freeact_sub.mcp.odd_answers import ordered
from freeact_sub.system.bounded_pipes import AT_BEGINNING, AT_END, CHUNK_BYTES, KEPT_BYTES

SDK: Final = str(Path(mcp.__file__).parent)
MAX_OPEN_REQUESTS: Final = 200
"""Requests of a server that we have not answered."""
MAX_PARTS: Final = 50_000
"""Parts of an answer: the SDK checks each one, and blocks the event loop meanwhile."""

EVENT_END: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
"""An empty line ends an event of a stream; a line ends with any of the three."""
EVENT_END_BYTES: Final = 3
"""The most that can lie in the chunk before."""
GARBAGE_SECONDS: Final = 60.0
"""Between two log lines about the same fault."""

logger = logging.getLogger(__name__)


class Garbage:
    """Logs non-messages on a server's standard output: one line, then one a minute."""

    def __init__(self, server: str) -> None:
        """Args: server: the server's name."""
        self._server = server
        self._count = 0
        self._logged_at = -math.inf

    def add(self, error: Exception) -> None:
        """Counts a line; logs it if a minute has passed."""
        self._count += 1
        if anyio.current_time() - self._logged_at >= GARBAGE_SECONDS:
            self._logged_at = anyio.current_time()
            line = error.errors()[0]["input"] if isinstance(error, ValidationError) else error
            logger.warning(
                "MCP server %r writes to its standard output what is not a message (%d lines so far), such as: %.80r",
                self._server,
                self._count,
                str(line),
            )


class Seldom(logging.Filter):
    """Passes one log line a minute from each place in the SDK, without traceback: servers can cause them at will."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_at: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        if record.levelno < logging.WARNING or not record.pathname.startswith(SDK):
            return True
        place = (record.pathname, record.lineno)
        if record.created - self._logged_at.get(place, -math.inf) < GARBAGE_SECONDS:
            return False
        self._logged_at[place] = record.created
        record.msg, record.args, record.exc_info = f"{record.getMessage():.300}", (), None
        return True


SELDOM: Final = Seldom()
for _name in ("client", *(f"mcp.{name}" for name in ("client.client", "client.streamable_http", "client.caching"))):
    logging.getLogger(_name).addFilter(SELDOM)
for _name in ("jsonrpc_dispatcher", "dispatcher", "tool_name_validation"):
    logging.getLogger(f"mcp.shared.{_name}").addFilter(SELDOM)


class BoundedStream(httpx2.AsyncByteStream):
    """Bounds the body of an answer; in a stream of events, each event by itself."""

    def __init__(self, stream: httpx2.AsyncByteStream, most: int) -> None:
        """Args: most: bound in bytes."""
        self._stream = stream
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, before = 0, b""
        async for chunk in self._stream:
            seen = before + chunk  # the end of an event may lie between two chunks
            ends = [match.end() for match in EVENT_END.finditer(seen)]
            size = len(seen) - ends[-1] if ends else size + len(chunk)
            before = seen[-EVENT_END_BYTES:]
            if size > self._most:
                raise httpx2.ReadError(f"an answer exceeds the {self._most:,} bytes of the setting `max_answer_bytes`")
            yield chunk

    async def aclose(self) -> None:
        """Closes the stream."""
        await self._stream.aclose()


class ProcessOutput:
    """Reads the messages that a server's program writes, one a line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        self._pipe = process.stdout
        self._lines: deque[bytes] = deque()
        self._begun = b""

    async def receive(self) -> SessionMessage | Exception:
        """Returns the next message, or why a line is none."""
        while not self._lines:
            if not (chunk := await self._pipe.read(CHUNK_BYTES)):
                raise anyio.EndOfStream
            *lines, self._begun = (self._begun + chunk).split(b"\n")
            self._lines.extend(lines)
        await asyncio.sleep(0)  # a thousand lines in one chunk keep nobody waiting
        line = self._lines.popleft().decode(errors="replace")
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError as error:
            return _read_again(line) or error

    async def aclose(self) -> None:
        """Nothing: who has started the program closes its pipes."""


class ProcessInput:
    """Writes messages for a server's program."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        self._pipe = process.stdin
        self._turn = asyncio.Lock()

    async def send(self, message: SessionMessage) -> None:
        """Writes a message; waits while the program does not read."""
        async with self._turn:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                self._pipe.write(f"{text}\n".encode())
                await self._pipe.drain()
            except OSError as error:
                raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        """Nothing, as above."""


class OpenRequests:
    """Counts a server's unanswered requests; past `MAX_OPEN_REQUESTS` nothing more is read from it. Knows ours, too."""

    def __init__(self) -> None:
        self._open: Counter[str | int] = Counter()
        self._room = anyio.Event()
        self._ours: dict[str, str] = {}
        """The methods of our requests by id, which some servers send back as a text."""

    def ask(self, message: JSONRPCMessage) -> None:
        """Notes a request of ours."""
        if isinstance(message, JSONRPCRequest):
            self._ours[str(message.id)] = message.method

    def ordered(self, message: JSONRPCMessage) -> JSONRPCMessage:
        """The server's answer to a request of ours, as the SDK takes it."""
        method = self._ours.pop(str(message.id), "") if isinstance(message, JSONRPCResponse | JSONRPCError) else ""
        if isinstance(message, JSONRPCResponse):
            return message.model_copy(update={"result": ordered(method, message.result)})
        return message

    async def add(self, message: JSONRPCMessage) -> None:
        """Counts a request of the server; waits for room first."""
        if isinstance(message, JSONRPCRequest):
            while self._open.total() >= MAX_OPEN_REQUESTS:
                self._room = anyio.Event()
                await self._room.wait()
            self._open[message.id] += 1
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._end((message.params or {}).get("requestId"))  # which gets no answer

    def answer(self, message: JSONRPCMessage) -> None:
        """Closes the request that our message answers."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._end(message.id)

    def _end(self, request_id: Any) -> None:
        if isinstance(request_id, str | int) and self._open[request_id] > 0:
            self._open[request_id] -= 1
            self._room.set()
        self._open = +self._open


class _Stream:
    """Wraps a stream of the SDK, or of a process."""

    def __init__(self, stream: Any, requests: OpenRequests) -> None:
        self._stream = stream
        self._requests = requests

    async def aclose(self) -> None:
        """Closes the stream."""
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()


class AnsweringStream(_Stream):
    """Sends our messages to a server, and notes which requests they answer."""

    async def send(self, message: SessionMessage) -> None:
        """Sends a message."""
        self._requests.ask(message.message)
        try:
            await self._stream.send(message)
        finally:
            self._requests.answer(message.message)


class WatchedStream(_Stream):
    """Passes a server's messages to the SDK; calls `on_end` when the server ends, before the SDK fails the requests."""

    def __init__(
        self,
        stream: Any,
        requests: OpenRequests,
        *,
        on_end: Callable[[], None] = lambda: None,
        on_garbage: Callable[[Exception], None] | None = None,
    ) -> None:
        """Args: on_garbage: takes non-messages. None: the SDK gets them."""
        super().__init__(stream, requests)
        self._on_end = on_end
        self._on_garbage = on_garbage

    @property
    def last_context(self) -> Any:
        """The context of the last message's sender, if the SDK's stream has it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        """Returns the next message."""
        while True:
            message = await self._stream.receive()
            if isinstance(message, SessionMessage):
                await self._requests.add(message.message)
                return SessionMessage(self._requests.ordered(_bounded(message.message)), message.metadata)
            if self._on_garbage is None:
                return message
            self._on_garbage(message)
            if (answer := _refusal(message)) is not None:
                return SessionMessage(answer)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            self._on_end()
            raise StopAsyncIteration from None


def _read_again(line: str) -> SessionMessage | None:
    """The message of a line that only a strict reader refuses, for half a character in its text. None: it is none."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_python(read_json(line), by_name=False))
    except ValueError:
        return None


def _bounded(message: JSONRPCMessage) -> JSONRPCMessage:
    """Replaces an answer by an error if checking it would block the event loop for seconds."""
    if isinstance(message, JSONRPCResponse):
        for name, value in message.result.items():
            if isinstance(value, list) and len(value) > MAX_PARTS:
                return _error(message.id, f"`{name}` of the answer has {len(value):,} parts, more than {MAX_PARTS:,}")
    return message


def _refusal(error: Exception) -> JSONRPCError | None:
    """The error for the request that an unreadable line answers. None: the line is no answer."""
    if not isinstance(error, ValidationError):
        return None
    problem = error.errors()[0]
    line = problem["input"]
    if not isinstance(line, str):
        return None
    head, tail = line[:KEPT_BYTES].encode(errors="replace"), line[-KEPT_BYTES:].encode(errors="replace")
    if b'"method"' in head or not (b'"result"' in head or b'"error"' in head):
        return None
    found = AT_BEGINNING.search(head) or AT_END.search(tail)
    return None if found is None else _error(json.loads(found[1]), f"the answer cannot be read: {problem['msg']}")


def _error(request_id: str | int, text: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=INTERNAL_ERROR, message=text))
