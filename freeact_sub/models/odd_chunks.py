"""Repairs responses of servers that follow OpenAI's chat protocol loosely, before openai's client reads them.

- A chunk, a choice, a delta or a call that is not an object carries nothing.
- Arguments of a call that come as texts and as objects become one of both, and empty ones are left out.
- A byte order mark before the first chunk is dropped.
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
            return b"".join(map(self._line, body.splitlines(keepends=True)))
        body = body.removeprefix(codecs.BOM_UTF8).strip()
        if not body:
            return b""
        documents = _documents(body)
        if not all(isinstance(document, dict) and document.keys() & {"choices", "error"} for document in documents):
            quoted = one_line(body.decode(errors="replace"), QUOTED_CHARS)
            problem = f"{self._address} answered with something else than a completion ({self._kind}): {quoted}"
            documents = [{"error": {"message": f"{problem} (check `base_url`)"}}]
        return b"".join(b"data: %s\n\n" % json.dumps(self._chunk(document)).encode() for document in documents)

    def _line(self, line: bytes) -> bytes:
        name, _, data = line.partition(b":")
        if name != b"data" or data.strip().startswith(b"[DONE]"):
            return line
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            return line  # openai's client tells what is wrong with it, or the chunk has several lines
        mended = self._chunk(chunk)
        ending = line[len(line.rstrip(b"\r\n")) :]
        return line if mended == chunk else b"data: " + json.dumps(mended).encode() + ending

    def _chunk(self, chunk: Any) -> dict[str, Any]:
        if not isinstance(chunk, dict):
            return _NOTHING
        if "choices" not in chunk:
            return chunk
        return {**chunk, "choices": [self._choice(choice) for choice in _objects(chunk["choices"])]}

    def _choice(self, choice: dict[str, Any]) -> dict[str, Any]:
        delta, message = choice.get("delta"), choice.get("message")
        if not isinstance(delta, dict):
            # a message after deltas repeats them
            delta = _delta_of(message) if isinstance(message, dict) and not self._has_begun else {}
        self._has_begun = self._has_begun or bool(delta)
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


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _delta_of(message: dict[str, Any]) -> dict[str, Any]:
    """A whole message as the only delta of a stream, whose calls are told apart by numbers."""
    calls = _objects(message.get("tool_calls"))
    return {**message, "tool_calls": [{**call, "index": number} for number, call in enumerate(calls)]}
