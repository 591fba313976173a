"""A real HTTP server that speaks the OpenAI chat protocol: streaming, tool calls, errors, and everything that goes wrong.

::

    def script(request: dict) -> Reply:
        return ["It is ", "done."] if is_tool_result(request) else [Call("add", {"a": 1, "b": 2})]

    async with ChatServer(script) as server:
        ...  # a client of `server.base_url`; what it asked stands in `server.requests`

The script is called once for each request. It keeps no cursor where several conversations run at once: what was said so
far stands in the request. Connections are kept open between requests, as real servers do.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeAlias

from support.serving import serving
from support.waiting import turns

PIECE_CHARS = 7
INPUT_TOKENS, OUTPUT_TOKENS = 11, 5


@dataclass(frozen=True)
class ChatCall:
    """A tool call; its arguments are streamed in pieces."""

    name: str
    args: dict[str, Any] = field(default_factory=dict)
    call_id: str = ""
    """Default: made from the place in the reply."""
    cut: int | None = None
    """Only so many characters of the arguments come. None: all."""


@dataclass(frozen=True)
class Drop:
    """The connection breaks here."""


@dataclass(frozen=True)
class Finish:
    """Why the reply ends, where it is not for the usual reason."""

    reason: str


@dataclass(frozen=True)
class HttpError:
    """Instead of an answer."""

    status: int
    message: str
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)
    """What the error object has besides the message."""


ChatItem: TypeAlias = str | ChatCall | asyncio.Event | Drop | Finish
"""A piece of text, a tool call, silence until the event is set, the end of the connection, or why the reply ends."""
ChatReply: TypeAlias = Sequence[ChatItem] | HttpError


def by_turn(*replies: ChatReply) -> Callable[[dict[str, Any]], ChatReply]:
    """A script: the reply to the n-th request of a conversation."""
    return lambda request: replies[sum(message["role"] == "assistant" for message in request["messages"])]


class ChatServer:
    """An async context manager. Leaving it breaks off what still runs."""

    def __init__(
        self, script: Callable[[dict[str, Any]], ChatReply], *, usage: bool = True, models: Sequence[dict[str, Any]] = ()
    ) -> None:
        """Args: usage: False: it tells no usage in a stream, like many local servers. models: what it lists."""
        self._models = list(models)
        self._script = script
        self._usage = usage
        self.requests: list[dict[str, Any]] = []
        """The bodies of all requests."""
        self.headers: list[dict[str, str]] = []
        """Their headers, names in lower case."""
        self.given_up = 0
        """Requests whose client left before the end of the answer."""

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def __aenter__(self) -> Self:
        self._serving = serving(self._serve)
        self._server = await self._serving.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._serving.__aexit__(kind, error, traceback)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read_request(reader)) is not None:
                await self._answer(request, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, _GoneError):
            self.given_up += 1

    async def _answer(self, request: "_Request", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._models and (request.method, request.path) == ("GET", "/v1/models"):
            await _write_json(writer, 200, {"object": "list", "data": self._models})
            return
        if (request.method, request.path) != ("POST", "/v1/chat/completions"):
            await _write_json(writer, 404, {"error": {"message": f"no such path: {request.path}"}})
            return
        body = json.loads(request.body)
        if not self._usage:
            body.pop("stream_options", None)
        self.requests.append(body)
        self.headers.append(request.headers)
        reply = self._script(body)
        if isinstance(reply, HttpError):
            error = {"message": reply.message, "type": "error", "code": None, "param": None, **reply.body}
            await _write_json(writer, reply.status, {"error": error}, reply.headers)
        elif body.get("stream"):
            await self._stream(body, reply, reader, writer)
        else:
            await _write_json(writer, 200, await _completion(body, reply, reader))

    async def _stream(
        self, body: dict[str, Any], reply: Sequence[ChatItem], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        async for chunk in _chunks(body, reply, reader):
            data = b"data: " + (chunk if isinstance(chunk, bytes) else json.dumps(chunk).encode()) + b"\n\n"
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
            await turns()  # so that the pieces go out one by one
        writer.write(b"0\r\n\r\n")
        await writer.drain()


class _GoneError(Exception):
    """The client has left, or the script wants it to be left."""


@dataclass(frozen=True)
class _Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


async def _read_request(reader: asyncio.StreamReader) -> _Request | None:
    """The next request; None where the client has closed the connection between two requests."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    first, *lines = head.rstrip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return _Request(method, path, headers, body)


async def _write_json(
    writer: asyncio.StreamWriter, status: int, content: dict[str, Any], headers: dict[str, str] | None = None
) -> None:
    data = json.dumps(content).encode()
    fields = {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    writer.write(f"HTTP/1.1 {status} Status\r\n{head}\r\n".encode() + data)
    await writer.drain()


async def _chunks(
    body: dict[str, Any], reply: Sequence[ChatItem], reader: asyncio.StreamReader
) -> AsyncIterator[dict[str, Any] | bytes]:
    head = {"id": "chat-1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    async for index, item in _spoken(reply, reader):
        if isinstance(item, str):
            yield chunk({"content": item})
            continue
        call = _call(index, item)
        arguments = call["function"]["arguments"]
        yield chunk({"tool_calls": [{**call, "function": {"name": item.name, "arguments": ""}}]})
        for start in range(0, len(arguments), PIECE_CHARS):
            piece = {"arguments": arguments[start : start + PIECE_CHARS]}
            yield chunk({"tool_calls": [{"index": index, "function": piece}]})
    yield chunk({}, _finish(reply))
    if body.get("stream_options", {}).get("include_usage"):
        yield {**head, "choices": [], "usage": _usage()}
    yield b"[DONE]"


async def _completion(body: dict[str, Any], reply: Sequence[ChatItem], reader: asyncio.StreamReader) -> dict[str, Any]:
    items = [(index, item) async for index, item in _spoken(reply, reader)]
    message = {
        "role": "assistant",
        "content": "".join(item for _, item in items if isinstance(item, str)) or None,
        "tool_calls": [_call(index, item) for index, item in items if isinstance(item, ChatCall)] or None,
    }
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
    head = {"id": "chat-1", "object": "chat.completion", "created": 1, "model": body["model"]}
    return {**head, "choices": [choice], "usage": _usage()}


async def _spoken(reply: Sequence[ChatItem], reader: asyncio.StreamReader) -> AsyncIterator[tuple[int, str | ChatCall]]:
    """Text and calls, each with the number of the calls before it; silence is kept, and broken connections break."""
    calls = 0
    for item in reply:
        if isinstance(item, Drop):
            raise _GoneError
        if isinstance(item, asyncio.Event):
            await _silence(item, reader)
        elif not isinstance(item, Finish):
            yield calls, item
            calls += isinstance(item, ChatCall)


async def _silence(released: asyncio.Event, reader: asyncio.StreamReader) -> None:
    """Wait until released; raise when the client leaves meanwhile."""
    waits = [asyncio.ensure_future(released.wait()), asyncio.ensure_future(reader.read(1))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)
    if not released.is_set():
        raise _GoneError


def _call(index: int, call: ChatCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.args)[: call.cut]}
    return {"index": index, "id": call.call_id or f"call-{index}", "type": "function", "function": function}


def _finish(reply: Sequence[ChatItem]) -> str:
    for item in reply:
        if isinstance(item, Finish):
            return item.reason
    return "tool_calls" if any(isinstance(item, ChatCall) for item in reply) else "stop"


def _usage() -> dict[str, int]:
    return {
        "prompt_tokens": INPUT_TOKENS,
        "completion_tokens": OUTPUT_TOKENS,
        "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
    }
