"""The model of `benchmarks.rlm` and `benchmarks.rlm_costs`: a server of an OpenAI-compatible API, as a process of its own.

`python -P rlm_model.py` prints its port. `/d200/v1` answers after 200 ms and says that each answer took 1,100 tokens;
`/c0/v1` counts them, four characters each. `POST /program` sets what a root runs, and `/stats` tells what was answered
since the last look. Whoever offers tools is answered by calls of them, whoever does not by a fenced block. A prompt of
records, in which only the number of each name tells its kind, is answered by their kinds.
"""

import asyncio
import json
import re
from typing import Any

INPUT_TOKENS, OUTPUT_TOKENS = 1000, 100
DOLLARS = 0.0035
"""Of one answer: what gpt-4o costs for so many tokens."""
CHARS_PER_TOKEN = 4
LEAF, CHILD, LOOP, WORDS = "@@LEAF", "@@CHILD", "@@LOOP", "@@WORDS"
KINDS = ("river", "painter", "year")
"""Of the records, by the rest of their number."""

state: dict[str, Any] = {"program": "", "answered": 0, "tokens": 0}


def answer(request: dict[str, Any]) -> tuple[str, str | None]:
    """Text, and code for a tool call."""
    messages = request["messages"]
    said = [str(message.get("content") or "") for message in messages if message["role"] == "user"]
    if WORDS in said[-1]:
        return "word " * int(said[-1].partition(WORDS)[2].split()[0]), None
    if request.get("tools"):
        ran = messages[-1]["role"] == "tool"
        if LOOP in said[0]:
            return "", "print('again')"
        if CHILD in said[0]:
            return ("ok", None) if ran else ("", "res = 'ok'")
        return (str(messages[-1]["content"])[-400:], None) if ran else ("", state["program"])
    if messages[0]["role"] != "system":
        if LEAF in said[-1]:
            return "ok", None
        if numbers := re.findall(r"N(\d+)\?", said[-1]):
            return " ".join(KINDS[int(number) % len(KINDS)] for number in numbers), None
    return f"```repl\n{state['program']}\n```", None


def usage_of(request: dict[str, Any], text: str, *, counted: bool) -> dict[str, Any]:
    """What the answer says that it took."""
    read, written = INPUT_TOKENS, OUTPUT_TOKENS
    if counted:
        read = sum(len(str(message.get("content") or "")) for message in request["messages"]) // CHARS_PER_TOKEN
        written = len(text) // CHARS_PER_TOKEN
    state["tokens"] += read + written
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written, "cost": DOLLARS}


def body_of(request: dict[str, Any], *, counted: bool) -> tuple[str, bytes]:
    """Content type and body of an answer."""
    text, code = answer(request)
    usage = usage_of(request, text, counted=counted)
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if code is not None:
        function = {"name": "execute_ipython_cell", "arguments": json.dumps({"code": code})}
        call = {"index": 0, "id": f"call-{len(request['messages'])}", "type": "function", "function": function}
        message["tool_calls"] = [call]
    finish = "stop" if code is None else "tool_calls"
    base = {"id": "answer", "created": 0, "model": request["model"]}
    if not request.get("stream"):
        choice = {"index": 0, "finish_reason": finish, "message": message}
        whole = base | {"object": "chat.completion", "choices": [choice], "usage": usage}
        return "application/json", json.dumps(whole).encode()
    base["object"] = "chat.completion.chunk"
    deltas = [message | {"content": word} for word in text.split(" ")] if text.startswith("word ") else [message]
    chunks = [
        *(base | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas),
        base | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        base | {"choices": [], "usage": usage},
    ]
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "text/event-stream", "".join([*lines, "data: [DONE]\n\n"]).encode()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection, which is kept open between requests."""
    try:
        while line := await reader.readline():
            path, length = line.decode().split()[1], 0
            while (header := await reader.readline()) not in (b"\r\n", b""):
                if header.lower().startswith(b"content-length:"):
                    length = int(header.split(b":")[1])
            sent = json.loads(await reader.readexactly(length)) if length else {}
            kind, body = "application/json", b"{}"
            if path == "/stats":
                body = json.dumps({name: state[name] for name in ("answered", "tokens")}).encode()
                state["answered"] = state["tokens"] = 0
            elif path == "/program":
                state["program"] = sent["program"]
            elif path.endswith("/chat/completions"):
                way = path.split("/")[1]
                await asyncio.sleep(int(way[1:]) / 1000)
                kind, body = body_of(sent, counted=way.startswith("c"))
                state["answered"] += 1
            else:
                body = b'{"object": "list", "data": []}'
            head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def main() -> None:
    """Serves until it is ended."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
