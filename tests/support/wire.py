"""The bytes that servers of models send in three protocols, and a server that sends them as they are."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from support.agents import read
from support.serving import serving
from support.waiting import turns

from freeact_sub import Agent, Config, RunResult
from freeact_sub.testing import FakeKernelProvider

TOOL = "execute_ipython_cell"
HEAD = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
RESPONSE = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": [], "usage": None}


def data(value: Any) -> bytes:
    return f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode()


def chunk(delta: Any, finish: str | None = None) -> bytes:
    return data({**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def event(kind: str, **fields: Any) -> bytes:
    """Of Messages or Responses."""
    return f"event: {kind}\n".encode() + data({"type": kind, **fields})


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a reply is written in a protocol, in events."""

    model: str
    texts: Callable[[Sequence[str]], list[bytes]]
    call: Callable[[Sequence[str]], list[bytes]]
    """Of the tool for cells, with its arguments in pieces."""
    end: bytes
    end_of_call: bytes


def _blocks(block: dict[str, Any], deltas: list[dict[str, Any]]) -> list[bytes]:
    pieces = [event("content_block_delta", index=0, delta=delta) for delta in deltas]
    start = event("message_start", message={**MESSAGE, "usage": {"input_tokens": 5, "output_tokens": 1}})
    return [start, event("content_block_start", index=0, content_block=block), *pieces, event("content_block_stop", index=0)]


def _of_item(kind: str, item: dict[str, Any], pieces: Sequence[str]) -> list[bytes]:
    place = {"item_id": "i", "output_index": 0, "content_index": 0}
    begins = [event("response.created", sequence_number=0, response={**RESPONSE, "status": "in_progress"})]
    begins.append(event("response.output_item.added", sequence_number=1, output_index=0, item=item))
    return begins + [event(kind, sequence_number=n, delta=piece, **place) for n, piece in enumerate(pieces, 2)]


def _stop(reason: str) -> bytes:
    return event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 9}) + event("message_stop")


CHAT = Protocol(
    model="openai-chat:m",
    texts=lambda pieces: [chunk({"role": "assistant", "content": ""}), *(chunk({"content": piece}) for piece in pieces)],
    call=lambda pieces: [
        chunk({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": TOOL, "arguments": ""}}]}),
        *(chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in pieces),
    ],
    end=chunk({}, "stop") + data("[DONE]"),
    end_of_call=chunk({}, "tool_calls") + data("[DONE]"),
)
MESSAGES = Protocol(
    model="anthropic:m",
    texts=lambda pieces: _blocks({"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]),
    call=lambda pieces: _blocks(
        {"type": "tool_use", "id": "a", "name": TOOL, "input": {}},
        [{"type": "input_json_delta", "partial_json": piece} for piece in pieces],
    ),
    end=_stop("end_turn"),
    end_of_call=_stop("tool_use"),
)
RESPONSES = Protocol(
    model="openai-responses:m",
    texts=lambda pieces: _of_item(
        "response.output_text.delta", {"type": "message", "id": "i", "role": "assistant", "content": []}, pieces
    ),
    call=lambda pieces: _of_item(
        "response.function_call_arguments.delta",
        {"type": "function_call", "id": "i", "call_id": "a", "name": TOOL, "arguments": ""},
        pieces,
    ),
    end=event("response.completed", sequence_number=99, response={**RESPONSE, "status": "completed"}),
    end_of_call=event("response.completed", sequence_number=99, response={**RESPONSE, "status": "completed"}),
)
PROTOCOLS = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES}


@dataclass
class WireServer:
    """Answers the n-th request with the n-th reply, and the later ones with the last."""

    replies: Sequence[bytes | tuple[int, dict[str, str], bytes]]
    """Bodies of streams, or a status, headers and a body."""
    piece_bytes: int | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    """Of the requests, with their names in lower case."""
    address: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        content = await reader.readexactly(int(lengths[0].split(b":")[1])) if lengths else b""
        reply: bytes | tuple[int, dict[str, str], bytes] = (404, {}, b"")
        if head.startswith(b"POST"):  # else the program asks for the models
            reply = self.replies[min(len(self.requests), len(self.replies) - 1)]
            self.requests.append(json.loads(content))
            fields = (line.partition(":") for line in head.decode().split("\r\n")[1:])
            self.headers.append({name.lower(): value.strip() for name, _, value in fields})
        status, headers, body = (200, {"Content-Type": "text/event-stream"}, reply) if isinstance(reply, bytes) else reply
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {status} X\r\n{lines}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        for start in range(0, len(body), self.piece_bytes or len(body) or 1):
            writer.write(body[start : start + (self.piece_bytes or len(body))])
            await writer.drain()
            await turns()
        writer.close()
        await writer.wait_closed()

    def tools_read(self) -> list[str]:
        """What the model has read of its calls, in Chat Completions."""
        return [str(message["content"]) for message in self.requests[-1]["messages"] if message["role"] == "tool"]


@asynccontextmanager
async def wire_server(*replies: Any, piece_bytes: int | None = None) -> AsyncIterator[WireServer]:
    server = WireServer(replies, piece_bytes)
    async with serving(server.serve) as sockets:
        server.address = f"http://127.0.0.1:{sockets.sockets[0].getsockname()[1]}"
        yield server


async def answered(
    folder: Path, *replies: Any, protocol: Protocol = CHAT, piece_bytes: int | None = None, **settings: Any
) -> tuple[RunResult, WireServer]:
    """The result of a run that a server answers so, and the server."""
    async with wire_server(*replies, piece_bytes=piece_bytes) as server:
        base = server.address + ("" if protocol is MESSAGES else "/v1")
        config = Config(
            workspace=folder, mode="full", code_actions="tool", **{"model": protocol.model, "base_url": base, **settings}
        )
        async with Agent(config, kernel_provider=FakeKernelProvider()) as agent:
            _, result = await read(agent.run("go"))
    return result, server


class _Body(httpx2.AsyncByteStream):
    """The body of an answer, as it comes."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


def client_of(*pieces: bytes) -> httpx2.AsyncClient:
    """A client whose server answers with a stream in these pieces."""

    async def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=_Body(*pieces))

    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
