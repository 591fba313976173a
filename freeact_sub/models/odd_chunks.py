"""Repairs responses of servers that follow OpenAI's chat protocol loosely, before openai's client reads them.

- A chunk, a choice, a delta or a call that is not an object carries nothing.
- Arguments of a call that come as texts and as objects become one of both, and empty ones are left out.
- A byte order mark before the first chunk is dropped, and bytes that are no UTF-8 are read as question marks.
- Each chunk ends its event, also where the blank line behind it is missing.
- Content that is an object or a number becomes a text, and a call in the old form (`function_call`) one in today's.
- Usage that is not an object of numbers is left out, and so is a time that no calendar has.
- An event of the kind `error`, and the finish reasons `error` and `abort`, become errors.
- A body without a finish reason, the usage of all or `[DONE]` has broken off: the request is made once more.
- A completion in one body, from a server that does not stream, is read as one chunk; so is a line of JSON without `data:`.
- Any other body, such as a page for browsers, becomes an error that names the address and quotes the body.

`odd_streams` makes the repairs that need the whole response.
"""

import codecs
import json
import re
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx2
from pydantic_ai.models import Model

from freeact_sub.models.borrowed_stream import http_client_of
from freeact_sub.models.observers import models_in
from freeact_sub.text import one_line

QUOTED_CHARS: Final = 150
"""The characters of an invalid body that an error quotes."""
_PATH: Final = "/chat/completions"
_NOTHING: Final[dict[str, Any]] = {"choices": []}
_FIELD: Final = re.compile(rb"(?:data|event|id|retry)?[:\r\n]")
"""How the first line of an event stream begins."""
_FIELD_BYTES: Final = len(b"event:")
_DATA: Final = re.compile(rb"^data:", re.MULTILINE)
_BROKEN: Final = ("error", "abort")
"""Finish reasons of servers whose answer broke off."""
_BAD_GATEWAY: Final = 502
_MOST: Final = 2**53
"""Larger numbers, infinity and what is no number count nothing."""
_LATEST: Final = 253_402_300_799_000
"""The last moment of the year 9999, in milliseconds."""


def mend_chunks(model: Model) -> None:
    """Makes the HTTP client of a model repair streamed responses, if openai's client uses it."""
    for inner in models_in(model):
        client = http_client_of(inner)
        if client is not None and _mend not in client.event_hooks["response"]:
            client.event_hooks["response"].append(_mend)


async def _mend(response: httpx2.Response) -> None:
    """A hook for responses of an HTTP client."""
    request = response.request
    if not response.is_success or not request.url.path.endswith(_PATH):
        return
    kind = response.headers.get("content-type", "")
    if "event-stream" not in kind and not json.loads(await request.aread()).get("stream"):
        return
    response.stream = _Mended(response, f"{request.url.scheme}://{request.url.netloc.decode()}{request.url.path}")
    response.headers.pop("content-encoding", None)


class _Mended(httpx2.AsyncByteStream):
    """The body of a response, decoded and repaired."""

    def __init__(self, response: httpx2.Response, address: str) -> None:
        self._rest = response.stream
        self._decoded = httpx2.Response(
            response.status_code, headers=response.headers, stream=response.stream, request=response.request
        )
        self._chunks = _Chunks(address, response.headers.get("content-type", "no content type"))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._decoded.is_stream_consumed:  # openai's client reads the end of the body once more, for nothing but its end
            async for piece in self._rest:  # type: ignore[union-attr]  # asynchronous, as the client is
                yield piece
            return
        async for piece in self._decoded.aiter_bytes():
            yield self._chunks.read(piece)
        yield self._chunks.end()

    async def aclose(self) -> None:
        await self._decoded.aclose()


class _Chunks:
    """Repairs the chunks of one response."""

    def __init__(self, address: str, kind: str) -> None:
        self._address, self._kind = address, kind
        self._held: list[bytes] = []
        """The unread data: an unfinished line, or a body that is not an event stream."""
        self._is_stream: bool | None = None
        """None: not known yet."""
        self._has_begun = False
        """Whether a delta has arrived."""
        self._has_ended = False
        """Whether a finish reason, an error, the usage of the whole answer or `[DONE]` has arrived."""
        self._event = b""
        """The kind of the event whose data comes next."""
        self._kinds: dict[str, type] = {}
        """Whether the arguments at an index are texts or objects; pydantic-ai does not join one to the other."""

    def read(self, piece: bytes) -> bytes:
        """Return the repaired lines that this piece completes."""
        self._held.append(piece)
        if self._is_stream is None:
            start = b"".join(self._held).removeprefix(codecs.BOM_UTF8).lstrip()
            self._held = [start] if not codecs.BOM_UTF8.startswith(start) else self._held
            if _FIELD.match(start):
                self._is_stream = True
            elif len(start) >= _FIELD_BYTES:
                self._is_stream = False
        if not self._is_stream or not (b"\n" in self._held[-1] or b"\r" in self._held[-1]):
            return b""
        lines = b"".join(self._held).splitlines(keepends=True)
        self._held = [] if lines[-1].endswith((b"\n", b"\r")) else [lines.pop()]
        return b"".join(map(self._line, lines))

    def end(self) -> bytes:
        """Return the rest at the end of the body."""
        body, self._held = b"".join(self._held), []
        if self._is_stream or _DATA.search(body):
            lines = b"".join(map(self._line, body.splitlines(keepends=True)))
            if self._has_ended or not (self._has_begun or body.startswith(b"data")):
                return lines
            return b"\n\n" + _sent(_broken_off("it has no end"))  # what came of the last chunk is no JSON
        body = body.removeprefix(codecs.BOM_UTF8).strip()
        if not body:
            return b""
        self._has_ended = True
        documents = _documents(body)
        if not all(isinstance(document, dict) and document.keys() & {"choices", "error"} for document in documents):
            quoted = one_line(body.decode(errors="replace"), QUOTED_CHARS)
            problem = f"{self._address} answered with something else than a completion ({self._kind}): {quoted}"
            documents = [{"error": {"message": f"{problem} (check `base_url`)"}}]
        return b"".join(_sent(self._chunk(document)) for document in documents)

    def _line(self, line: bytes) -> bytes:
        name, _, data = line.partition(b":")
        if name != b"data":
            self._event = data.strip() if name == b"event" else b"" if not line.strip() else self._event
            return line
        if data.strip().startswith(b"[DONE]"):
            self._has_ended = True
            return line
        try:
            chunk = json.loads(data.decode(errors="replace"))
        except (ValueError, RecursionError):
            if self._event != b"error":
                return line  # openai's client tells what is wrong with it, or the chunk has several lines
            chunk = {"message": data.decode(errors="replace").strip()}
        if self._event == b"error" and not (isinstance(chunk, dict) and "error" in chunk):
            chunk = {"error": chunk if isinstance(chunk, dict) else {"message": str(chunk)}}
        return _sent(self._chunk(chunk))

    def _chunk(self, given: Any) -> dict[str, Any]:
        if not isinstance(given, dict):
            return _NOTHING
        if given.get("error"):
            self._has_ended = True
        if "choices" not in given:
            return given
        choices = [self._choice(choice) for choice in _objects(given["choices"])]
        chunk: dict[str, Any] = {**given, "choices": choices}
        if "usage" in chunk:
            chunk["usage"] = _usage(chunk["usage"])
            self._has_ended = self._has_ended or (chunk["usage"] is not None and not choices)
        if not _is_count(chunk.get("created", 0)) or chunk.get("created", 0) > _LATEST:
            del chunk["created"]
        reason = next((choice["finish_reason"] for choice in choices if choice.get("finish_reason")), None)
        self._has_ended = self._has_ended or reason is not None
        if reason in _BROKEN and not chunk.get("error"):
            chunk |= _broken_off(f"finish reason {reason!r}")
        return chunk

    def _choice(self, choice: dict[str, Any]) -> dict[str, Any]:
        delta, message = choice.get("delta"), choice.get("message")
        if not isinstance(delta, dict):
            # a message after deltas repeats them
            delta = _delta_of(message) if isinstance(message, dict) and not self._has_begun else {}
        self._has_begun = self._has_begun or bool(delta)
        if delta.get("finish_reason") and not choice.get("finish_reason"):
            choice = {**choice, "finish_reason": delta["finish_reason"]}
        if isinstance(delta.get("content"), dict | int | float):
            delta = {**delta, "content": _text_of(delta["content"])}
        if isinstance(delta.get("function_call"), dict) and not delta.get("tool_calls"):
            delta = {**delta, "tool_calls": [{"index": 0, "function": delta["function_call"]}]}
        if "tool_calls" in delta:
            delta = {**delta, "tool_calls": [self._call(call) for call in _objects(delta["tool_calls"])]}
        return {**choice, "delta": delta}

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        function = call.get("function")
        if not isinstance(function, dict):
            return {**call, "function": None}
        arguments = function.get("arguments") or None
        if arguments is not None:
            if not isinstance(arguments, str | dict):
                arguments = json.dumps(arguments)
            kind = self._kinds.setdefault(str(call.get("index")), type(arguments))
            if kind is str and isinstance(arguments, dict):
                arguments = json.dumps(arguments)
            elif kind is dict and isinstance(arguments, str):
                arguments = next((value for value in _documents(arguments.encode()) if isinstance(value, dict)), arguments)
        return {**call, "function": {**function, "arguments": arguments}}


def _documents(body: bytes) -> list[Any]:
    """The JSON of the body, or of each of its lines. Empty texts stand for what is no JSON."""
    try:
        return [json.loads(body)]
    except (ValueError, RecursionError):
        pass
    try:
        return [json.loads(line) for line in body.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return [""]


def _sent(chunk: dict[str, Any]) -> bytes:
    return b"data: %s\n\n" % json.dumps(chunk).encode()


def _broken_off(how: str) -> dict[str, Any]:
    """An error for which the request is made once more."""
    return {"error": {"message": f"the server broke off its answer: {how}", "code": _BAD_GATEWAY}}


def _text_of(content: dict[str, Any] | float) -> str:
    """The text of a content that is none: of a part such as `{"type": "text", "text": "…"}`, or its JSON."""
    text = content.get("text") if isinstance(content, dict) else None
    return text if isinstance(text, str) else json.dumps(content)


def _usage(usage: Any) -> dict[str, Any] | None:
    """The numbers of a usage. None: it has no tokens of the prompt, so all is estimated."""
    numbers = _numbers(usage) if isinstance(usage, dict) else {}
    return numbers if "prompt_tokens" in numbers else None


def _numbers(counts: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, count in counts.items():
        if isinstance(count, dict):
            found[name] = _numbers(count)
        elif isinstance(count, str) and count.isdecimal():
            found[name] = int(count)
        elif _is_count(count):
            found[name] = count
    return found


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= _MOST


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _delta_of(message: dict[str, Any]) -> dict[str, Any]:
    """A whole message as the only delta of a stream, whose calls are told apart by numbers."""
    calls = _objects(message.get("tool_calls"))
    return {**message, "tool_calls": [{**call, "index": number} for number, call in enumerate(calls)]}
