"""A real HTTP server that speaks Anthropic's protocol, streams, and keeps a cache of prompts as the provider does."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from support.chat_server import ChatCall, ChatServer, _Request, _write_json


class MessagesServer(ChatServer):
    """Answers with texts and calls. Its usage tells what of a request it had read before, see `prompt_of`."""

    def __init__(
        self,
        script: Callable[[dict[str, Any]], Sequence[str | ChatCall]],
        *,
        answers_after: Callable[[], Awaitable[object]] | None = None,
        forgets: bool = False,
    ) -> None:
        """Args: script: see `ChatServer`. answers_after: is waited for before an answer begins. forgets: it has no cache."""
        super().__init__(script)
        self._answers_after, self._forgets = answers_after, forgets
        self._known: list[str] = []
        self.usages: list[dict[str, int]] = []
        """What it said that each request took."""

    @property
    def base_url(self) -> str:
        return super().base_url.removesuffix("/v1")

    async def _answer(self, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (request.method, request.path.partition("?")[0]) != ("POST", "/v1/messages"):
            await _write_json(writer, 404, {"error": {"message": f"no such path: {request.path}"}})
            return
        body = json.loads(request.body)
        self.requests.append(body)
        usage = self._usage_of(body)
        self.usages.append(usage)
        if self._answers_after is not None:
            await self._answers_after()
        self._known += [] if self._forgets else prefixes_of(body)  # others read it once the answer begins
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for event in _events(body, self._script(body), usage):
            data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _usage_of(self, body: dict[str, Any]) -> dict[str, int]:
        """Tokens are characters. Only a request that asks for it is kept; what is neither read nor written is plain input."""
        prompt = prompt_of(body)
        if "cache_control" not in json.dumps(body):
            return {"input_tokens": len(prompt), "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
        read = max((len(known) for known in self._known if prompt.startswith(known)), default=0)
        return {"input_tokens": 0, "cache_read_input_tokens": read, "cache_creation_input_tokens": len(prompt) - read}


def prefixes_of(body: dict[str, Any]) -> list[str]:
    """What the provider keeps: all up to each mark for the cache; up to the end if the request itself is marked."""
    parts = [body.get("tools", []), body.get("system", []), *body["messages"]]
    marked = [number for number, part in enumerate(parts, 1) if "cache_control" in json.dumps(part)]
    ends = [*marked, *([len(parts)] if "cache_control" in body else [])]
    return ["".join(f"{json.dumps(_bare(part))}\n" for part in parts[:end]) for end in ends]


def prompt_of(body: dict[str, Any]) -> str:
    """All that the model reads, in its order: tools, system prompt, then each message; without marks for the cache."""
    bare = _bare(body)
    parts = [bare.get("tools", []), bare.get("system", []), *bare["messages"]]
    return "".join(f"{json.dumps(part)}\n" for part in parts)


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _bare(item) for name, item in value.items() if name != "cache_control"}
    return [_bare(item) for item in value] if isinstance(value, list) else value


def _events(body: dict[str, Any], reply: Sequence[str | ChatCall], usage: dict[str, int]) -> list[dict[str, Any]]:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 1},
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, item in enumerate(reply):
        if isinstance(item, str):
            block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": item}
        else:
            block = {"type": "tool_use", "id": f"toolu_{len(body['messages'])}_{index}", "name": item.name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(item.args)}
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    reason = "tool_use" if any(isinstance(item, ChatCall) for item in reply) else "end_turn"
    end = {"stop_reason": reason, "stop_sequence": None}
    return [*events, {"type": "message_delta", "delta": end, "usage": {"output_tokens": 9}}, {"type": "message_stop"}]
