"""Streams between an MCP server and the SDK: they bound messages, and log one line where the SDK logs a thousand."""

import json
import logging
import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, Self

import anyio
import httpx2
import mcp
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION
from pydantic import ValidationError

from freeact_sub.mcp.envelopes import sealed
from freeact_sub.system.bounded_pipes import AT_BEGINNING, AT_END, KEPT_BYTES
from freeact_sub.text import ERROR_CHARS, error_words, one_line

SDK: Final = str(Path(mcp.__file__).parent)
MAX_OPEN_REQUESTS: Final = 200
"""Maximum requests of a server that we have not responded to."""
MAX_PARTS: Final = 50_000
"""Maximum parts of a response: the SDK checks each one, and blocks the event loop meanwhile."""

HALVES: Final = re.compile(
    r"""
    \\\\ | \\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}
    | (\\u[dD][89a-fA-F][0-9a-fA-F]{2})
    """,
    re.VERBOSE,
)
"""Backslashes and characters in JSON: a backslash, a character in two halves, or (the group) half a character."""
USUAL: Final = (400, 404)
"""Statuses with which the protocol sends its own errors."""
GARBAGE_SECONDS: Final = 60.0
"""Seconds between two log lines about one fault."""

logger = logging.getLogger(__name__)


class Garbage:
    """Logger of non-messages on a server's standard output: one line, then one a minute."""

    def __init__(self, server: str) -> None:
        """Args: server: the server's name."""
        self._server = server
        self._count = 0
        self._logged_at = -math.inf

    def add(self, error: Exception) -> None:
        """Count a line; log it if a minute has passed."""
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
    """A filter that passes one log line a minute from each place in the SDK: servers cause them at will."""

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


class NoGarbage(logging.Filter):
    """A filter that drops the lines of `Garbage`."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        return not (record.exc_info and isinstance(record.exc_info[1], ValueError))


logging.getLogger("mcp.client.stdio").addFilter(NoGarbage())
for _name in ("client", *(f"mcp.{name}" for name in ("client.client", "client.streamable_http", "client.caching"))):
    logging.getLogger(_name).addFilter(SELDOM)
for _name in ("jsonrpc_dispatcher", "dispatcher", "tool_name_validation"):
    logging.getLogger(f"mcp.shared.{_name}").addFilter(SELDOM)


class Body(httpx2.AsyncByteStream):
    """The body of a response, line by line: bounded, and with the text that the SDK can read.

    A response may be one line. The SDK bounds the events of a stream itself.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, most: int) -> None:
        """Args: most: bound in bytes."""
        self._stream = stream
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        begun: list[bytes] = []
        size, is_first = 0, True
        async for chunk in self._stream:
            end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
            size = len(chunk) - end if end else size + len(chunk)
            if size > self._most:
                raise httpx2.StreamError(f"a response exceeds the {self._most:,} bytes of the setting `max_message_bytes`")
            if end:
                begun.append(chunk[:end])
                yield readable(b"".join(begun), is_first=is_first)
                begun, is_first = [], False
            begun.append(chunk[end:])
        yield readable(b"".join(begun), is_first=is_first)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()


def readable(data: bytes, *, is_first: bool = False) -> bytes:
    """Return JSON as a strict reader takes it: no wrong bytes, no half characters, and no mark at the beginning."""
    text = data.decode(errors="replace")
    if is_first:
        text = text.removeprefix("\ufeff")
    if "\\ud" in text or "\\uD" in text:
        text = HALVES.sub(lambda found: f"\\{found[0]}" if found[1] else found[0], text)
    return text.encode()


class RefusedBody(httpx2.AsyncByteStream):
    """The body of a response by which a server refuses a request: an error of the protocol, with the status and its words.

    The SDK drops both where the body is no such error.
    """

    def __init__(self, body: httpx2.AsyncByteStream, response: httpx2.Response) -> None:
        """Args: body: the server's body."""
        self._body = body
        self._status = f"{response.status_code} {response.reason_phrase}".strip()
        self._retry_after = response.headers.get("retry-after", "")
        in_session = "mcp-session-id" in response.request.headers
        self._code = {404: INVALID_REQUEST if in_session else METHOD_NOT_FOUND}.get(response.status_code, INTERNAL_ERROR)
        self._is_usual = response.status_code in USUAL

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            sent = b"".join([chunk async for chunk in self._body])
        except httpx2.HTTPError:  # the status says enough
            sent = b""
        yield self._error(sent).model_dump_json(by_alias=True).encode()

    async def aclose(self) -> None:
        """Close the stream."""
        await self._body.aclose()

    def _error(self, sent: bytes) -> JSONRPCError:
        try:
            message = jsonrpc_message_adapter.validate_json(sent, by_name=False)
        except ValidationError:
            message = None
        if not isinstance(message, JSONRPCError):
            return JSONRPCError(
                jsonrpc="2.0", id=None, error=ErrorData(code=self._code, message=self._with(error_words(sent)))
            )
        if self._is_usual and not self._retry_after:
            return message
        error = message.error.model_copy(update={"message": self._with(message.error.message)})
        return message.model_copy(update={"error": error})

    def _with(self, words: str) -> str:
        """Return the status before a server's words."""
        wait = f" (retry-after: {one_line(self._retry_after, 40)})" if self._retry_after else ""
        return f"{self._status}{wait}{words and ': '}{words}"


class OpenRequests:
    """A server's open requests; past `MAX_OPEN_REQUESTS` nothing more is read from it. Knows ours, too."""

    def __init__(self) -> None:
        self._open: Counter[str | int] = Counter()
        self._room = anyio.Event()
        self._ours: dict[str, str] = {}
        """Methods of our requests by id, which some servers send back as a text."""

    def ask(self, message: JSONRPCMessage) -> None:
        """Note a request of ours."""
        if isinstance(message, JSONRPCRequest):
            self._ours[str(message.id)] = message.method

    def sealed(self, message: JSONRPCMessage) -> JSONRPCMessage:
        """Return the server's response to a request of ours, as the SDK takes it."""
        method = self._ours.pop(str(message.id), "") if isinstance(message, JSONRPCResponse | JSONRPCError) else ""
        if not isinstance(message, JSONRPCResponse):
            return message
        version = message.result.get("protocolVersion")
        if method == "initialize" and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            return _error(message.id, _unknown_version(version))
        for name, value in message.result.items():
            if isinstance(value, list) and len(value) > MAX_PARTS:
                return _error(message.id, f"`{name}` of the response has {len(value):,} parts, more than {MAX_PARTS:,}")
        return message.model_copy(update={"result": sealed(method, message.result)})

    async def add(self, message: JSONRPCMessage) -> None:
        """Count a request of the server; waits for room first."""
        if isinstance(message, JSONRPCRequest):
            while self._open.total() >= MAX_OPEN_REQUESTS:
                self._room = anyio.Event()
                await self._room.wait()
            self._open[message.id] += 1
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._end((message.params or {}).get("requestId"))  # which gets no response

    def respond(self, message: JSONRPCMessage) -> None:
        """Close the request that our message responds to."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._end(message.id)

    def _end(self, request_id: Any) -> None:
        if isinstance(request_id, str | int) and self._open[request_id] > 0:
            self._open[request_id] -= 1
            self._room.set()
        self._open = +self._open


class _Stream:
    def __init__(self, stream: Any, requests: OpenRequests) -> None:
        self._stream = stream
        self._requests = requests

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()


class RespondingStream(_Stream):
    """The stream of our messages to a server; it notes which requests they respond to."""

    async def send(self, message: SessionMessage) -> None:
        """Send a message."""
        self._requests.ask(message.message)
        try:
            await self._stream.send(message)
        finally:
            self._requests.respond(message.message)


class WatchedStream(_Stream):
    """The stream of a server's messages to the SDK; calls `on_end` when the server ends, before the requests fail."""

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
        """Return the next message."""
        while True:
            message = await self._stream.receive()
            if not isinstance(message, SessionMessage):
                message = _read_again(message) or message
            if isinstance(message, SessionMessage):
                await self._requests.add(message.message)
                return SessionMessage(self._requests.sealed(message.message), message.metadata)
            if self._on_garbage is None:
                return message
            self._on_garbage(message)
            if (response := _refusal(message)) is not None:
                return SessionMessage(response)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            self._on_end()
            raise StopAsyncIteration from None


def _read_again(error: Exception) -> SessionMessage | None:
    """Return the message of a line that only a strict reader refuses, if it is one."""
    line = _line_of(error)
    if line is None or (text := readable(line.encode(errors="replace"), is_first=True).decode()) == line:
        return None
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    except ValidationError:
        return None


def _line_of(error: Exception) -> str | None:
    """Return the line that is no JSON."""
    problem = error.errors()[0] if isinstance(error, ValidationError) else {"type": "", "input": None}
    return str(problem["input"]) if problem["type"] == "json_invalid" else None


def _refusal(error: Exception) -> JSONRPCError | None:
    """Return the error for the request that an unreadable line responds to. None: the line is no response."""
    if not isinstance(error, ValidationError):
        return None
    if (line := _line_of(error)) is None:
        sent = next(
            (each["input"] for each in error.errors() if isinstance(each["input"], dict) and "id" in each["input"]), {}
        )
        if "method" in sent or isinstance(sent.get("id"), bool) or not isinstance(sent.get("id"), str | int):
            return None
        return _error(sent["id"], f"the response does not follow the protocol: {one_line(json.dumps(sent), ERROR_CHARS)}")
    head, tail = line[:KEPT_BYTES].encode(errors="replace"), line[-KEPT_BYTES:].encode(errors="replace")
    if b'"method"' in head or not (b'"result"' in head or b'"error"' in head):
        return None
    found = AT_BEGINNING.search(head) or AT_END.search(tail)
    return None if found is None else _error(json.loads(found[1]), f"the response is unreadable: {error.errors()[0]['msg']}")


def _unknown_version(version: object) -> str:
    known = f"{HANDSHAKE_PROTOCOL_VERSIONS[0]} to {LATEST_MODERN_VERSION}"
    given = f"speaks version {one_line(version, 40)!r}" if isinstance(version, str) else "names no version"
    return f"it {given} of the protocol, which is not one of those known here ({known}): update the server or this program"


def _error(request_id: str | int, text: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=INTERNAL_ERROR, message=text))
