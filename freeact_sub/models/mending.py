"""Has the HTTP clients of models repair streamed responses, before the providers' own clients read them.

`ServedEvents` reads the body of one streamed response and passes it on to the provider's client, repaired. It stands between
the wire and the client in each protocol that sends server-sent events, so that two rules hold in all of them. A reply counts
when its protocol's end was seen: a body that ends before that becomes an error, for which the request is made again. And
what a reply says does not depend on the pieces in which it comes: events are read as their standard has them, and each is
passed on in one piece.

- An event without data, such as a reconnection time or a keep-alive, is no event, and neither is a comment.
- A byte order mark before the first event is dropped, and bytes that are no UTF-8 are read as question marks.
- An event of one line of JSON ends with that line, also where the blank line behind it is missing.
- `[DONE]` ends a stream with blanks around it, too.
- A body that is no stream of events becomes an error that names the address and quotes it, unless its protocol reads it.

A subclass knows the events of one protocol: how to repair them, and which is the end.

`Chunks`: servers that follow OpenAI's Chat Completions loosely.

- A chunk, a choice, a delta or a call that is not an object carries nothing.
- Arguments of a call that come as texts and as objects become one of both, and empty ones are left out.
- Content that is an object or a number becomes a text, and a call in the old form (`function_call`) one in today's.
- Usage that is not an object of numbers is left out, and so is a time that no calendar has.
- An event of the kind `error`, and the finish reasons `error` and `abort`, become errors.
- A finish reason, the usage of all, an error or `[DONE]` is the end.
- A completion in one body, from a server that does not stream, is read as one chunk; so is a line of JSON without `data:`.

`MessageEvents`, `ResponseEvents`: servers that follow Anthropic's Messages or OpenAI's Responses loosely.

- The kind of an event stands in its data; where it does not, the name of the event counts. Neither client reads both.
- Events, and pieces of content, of a kind that the client does not know carry nothing: it would take them for others.
- Fields that the client takes for granted are added where they are missing. Usage that is missing is estimated later.
- An error, or the event that the protocol ends with, is the end.

`odd_streams` makes the repairs that need the whole response.
"""

import codecs
import json
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from functools import cache
from typing import Any, Final, get_args

import httpx2
from pydantic_ai.models import Model

from freeact_sub.models.borrowed_stream import http_client_of
from freeact_sub.models.observers import models_in
from freeact_sub.text import one_line

QUOTED_CHARS: Final = 150
"""The characters of an invalid body that an error quotes."""
NO_END: Final = "the server broke off its answer: it has no end"
BASE_URL: Final = "(check `base_url`)"
_FIELD: Final = re.compile(rb"(?:data|event|id|retry)?[:\r\n]")
"""How the first line of an event stream begins."""
_FIELD_BYTES: Final = len(b"event:")
_DATA: Final = re.compile(rb"^data:", re.MULTILINE)
_DONE: Final = b"[DONE]"
_NOTHING: Final[dict[str, Any]] = {"choices": []}
_BROKEN: Final = ("error", "abort")
"""Finish reasons of servers whose answer broke off."""
_MOST: Final = 2**53
"""Larger numbers, infinity and what is no number count nothing."""
_LATEST: Final = 253_402_300_799_000
"""The last moment of the year 9999, in milliseconds."""
_OF_MESSAGES: Final = {
    "message_start": "message",
    "content_block_start": "content_block",
    "content_block_delta": "delta",
    "content_block_stop": None,
    "message_delta": "delta",
    "message_stop": None,
}
"""The events of the Messages protocol, with the object that each carries."""
_PIECES: Final = {
    "text_delta": ("text", str),
    "thinking_delta": ("thinking", str),
    "signature_delta": ("signature", str),
    "input_json_delta": ("partial_json", str),
    "citations_delta": ("citation", dict),
    "compaction_delta": (None, object),
}
"""The pieces of content in the Messages protocol, with the field that each carries."""
_BLOCKS: Final[dict[str, dict[str, Any]]] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
}
"""The fields of a block of content that servers leave out."""
_LAST: Final = ("response.completed", "response.failed", "response.incomplete")
"""The events that a stream of Responses ends with."""
_ABOUT: Final = {
    "response.created": "in_progress",
    "response.in_progress": "in_progress",
    "response.queued": "queued",
    **{kind: kind.removeprefix("response.") for kind in _LAST},
}
"""The events that carry the whole response, with its status."""
_ITEMS: Final[dict[str, dict[str, Any]]] = {
    "function_call": {"arguments": "", "call_id": "", "name": ""},
    "message": {"role": "assistant", "content": [], "status": "in_progress"},
    "reasoning": {"summary": []},
}
"""The fields of a part of the output that servers leave out."""


class ServedEvents(ABC):
    """Repairs the events of one response."""

    def __init__(self, address: str, kind: str, model: str) -> None:
        """Args: address: of the server. kind: the content type of the response. model: the name that was asked for."""
        self._address, self._kind, self._model = address, kind, model
        self.has_begun = False
        """Whether a part of a reply has arrived."""
        self.has_ended = False
        """Whether the end of the protocol has arrived, or an error."""
        self._held: list[bytes] = []
        """The unread bytes: an unfinished line, or a body that is not an event stream."""
        self._is_stream: bool | None = None
        """None: not known yet."""
        self._event = ""
        """The kind of the event that is being read."""
        self._data: list[bytes] = []
        """Its lines of data, none of which is JSON by itself."""

    def read(self, piece: bytes) -> bytes:
        """Return the repaired events that this piece completes."""
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
        # a carriage return at the end of a piece may be the first half of a line's end
        self._held = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        return b"".join(map(self._line, lines))

    def end(self) -> bytes:
        """Return the rest at the end of the body."""
        body, self._held = b"".join(self._held), []
        if not self._is_stream and not _DATA.search(body):
            return self._whole_body(body.removeprefix(codecs.BOM_UTF8).strip())
        rest = b"".join(map(self._line, body.splitlines(keepends=True)))
        is_cut = bool(self._data)  # what came of the last event is no JSON
        if self.has_ended or not (self.has_begun or is_cut):
            return rest
        return rest + self._sent(self._error(NO_END))

    def _whole_body(self, body: bytes) -> bytes:
        if not body:
            return b""
        self.has_ended = True
        documents = self._in_one_body(documents_in(body))
        if documents is None:
            quoted = one_line(body.decode(errors="replace"), QUOTED_CHARS)
            problem = f"{self._address} answered with something else than a completion ({self._kind}): {quoted}"
            documents = [self._error(f"{problem} {BASE_URL}", code=None)]
        return b"".join(map(self._sent, documents))

    def _line(self, line: bytes) -> bytes:
        name, _, value = line.rstrip(b"\r\n").partition(b":")
        if not line.strip():
            return self._dispatched()
        if name == b"event":
            self._event = value.strip().decode(errors="replace")
        if name != b"data" or not (data := value.strip()):
            return b""
        if data.startswith(_DONE):
            return self._done()
        if not self._data:
            try:
                return self._passed(json.loads(data.decode(errors="replace")))
            except (ValueError, RecursionError):
                pass
        self._data.append(value.removeprefix(b" "))
        return b""

    def _dispatched(self) -> bytes:
        """The event that a blank line ends, if its data is not passed on yet."""
        data, self._data, kind = b"\n".join(self._data), [], self._event
        try:
            if not data:
                return b""
            return self._passed(json.loads(data.decode(errors="replace")))
        except (ValueError, RecursionError):
            text = data.decode(errors="replace")
            if kind == "error":
                return self._passed({"message": text.strip()})
            problem = f"{self._address} sent an event that is no JSON: {one_line(text, QUOTED_CHARS)}"
            return self._sent(self._error(problem) if self.has_begun else self._error(f"{problem} {BASE_URL}", code=None))
        finally:
            self._event = ""

    def _passed(self, value: Any) -> bytes:
        event = self._repaired(self._event, value)
        return b"" if event is None else self._sent(event)

    def _kind_of(self, value: dict[str, Any]) -> str:
        """The kind of an event: it stands in its data, or else in its name."""
        return str(value.get("type") or self._event)

    def _done(self) -> bytes:
        self.has_ended = True
        return b"data: [DONE]\n\n"

    def _sent(self, event: dict[str, Any]) -> bytes:
        return b"data: %s\n\n" % json.dumps(event).encode()

    @abstractmethod
    def _repaired(self, kind: str, value: Any) -> dict[str, Any] | None:
        """Return an event as the client reads it. None: it carries nothing. Args: kind: empty where it is not told."""

    @abstractmethod
    def _error(self, message: str, *, code: int | None = 502) -> dict[str, Any]:
        """Return an error as the protocol has it. Args: code: the status. None: the request is not to be made again."""

    def _in_one_body(self, documents: list[Any]) -> list[dict[str, Any]] | None:
        """Return the events for the JSON documents of a body that is no stream. None: it cannot be read."""
        if all(isinstance(document, dict) and document.get("error") for document in documents):
            return [event for document in documents if (event := self._repaired("error", document)) is not None]
        return None


def documents_in(body: bytes) -> list[Any]:
    """The JSON of the body, or of each of its lines. Empty texts stand for what is no JSON."""
    try:
        return [json.loads(body)]
    except (ValueError, RecursionError):
        pass
    try:
        return [json.loads(line) for line in body.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return [""]


class Chunks(ServedEvents):
    """Repairs the chunks of one response."""

    def __init__(self, address: str, kind: str, model: str) -> None:
        super().__init__(address, kind, model)
        self._kinds: dict[str, type] = {}
        """Whether the arguments at an index are texts or objects; pydantic-ai does not join one to the other."""

    def _repaired(self, kind: str, value: Any) -> dict[str, Any]:
        if kind == "error" and not (isinstance(value, dict) and "error" in value):
            value = {"error": value if isinstance(value, dict) else {"message": str(value)}}
        return self._chunk(value)

    def _error(self, message: str, *, code: int | None = 502) -> dict[str, Any]:
        self.has_ended = True
        return {"error": {"message": message} if code is None else {"message": message, "code": code}}

    def _in_one_body(self, documents: list[Any]) -> list[dict[str, Any]] | None:
        if all(isinstance(document, dict) and document.keys() & {"choices", "error"} for document in documents):
            return [self._chunk(document) for document in documents]
        return None

    def _chunk(self, given: Any) -> dict[str, Any]:
        if not isinstance(given, dict):
            return _NOTHING
        if given.get("error"):
            self.has_ended = True
        if "choices" not in given:
            return given
        choices = [self._choice(choice) for choice in _objects(given["choices"])]
        chunk: dict[str, Any] = {**given, "choices": choices}
        if "usage" in chunk:
            chunk["usage"] = _usage(chunk["usage"])
            self.has_ended = self.has_ended or (chunk["usage"] is not None and not choices)
        if not _is_count(chunk.get("created", 0)) or chunk.get("created", 0) > _LATEST:
            del chunk["created"]
        reason = next((choice["finish_reason"] for choice in choices if choice.get("finish_reason")), None)
        self.has_ended = self.has_ended or reason is not None
        if reason in _BROKEN and not chunk.get("error"):
            chunk |= self._error(f"the server broke off its answer: finish reason {reason!r}")
        return chunk

    def _choice(self, choice: dict[str, Any]) -> dict[str, Any]:
        delta, message = choice.get("delta"), choice.get("message")
        if not isinstance(delta, dict):
            # a message after deltas repeats them
            delta = _delta_of(message) if isinstance(message, dict) and not self.has_begun else {}
        self.has_begun = self.has_begun or bool(delta)
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
                arguments = next((value for value in documents_in(arguments.encode()) if isinstance(value, dict)), arguments)
        return {**call, "function": {**function, "arguments": arguments}}


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


class MessageEvents(ServedEvents):
    """Repairs the events of one response in Anthropic's Messages protocol."""

    def __init__(self, address: str, kind: str, model: str) -> None:
        super().__init__(address, kind, model)
        self._index = 0
        """Of the newest block."""

    def _passed(self, value: Any) -> bytes:
        had_begun, passed = self.has_begun, super()._passed(value)
        if had_begun or not self.has_begun or (isinstance(value, dict) and self._kind_of(value) == "message_start"):
            return passed
        return self._sent({"type": "message_start", "message": _message({}, self._model)}) + passed

    def _repaired(self, kind: str, value: Any) -> dict[str, Any] | None:
        if kind == "error" or (isinstance(value, dict) and (value.get("type") == "error" or value.get("error"))):
            return self._as_error(value)
        if not isinstance(value, dict):
            return None
        kind = self._kind_of(value)
        if kind not in _OF_MESSAGES:
            return None
        carried = _OF_MESSAGES[kind]
        if carried is not None and not isinstance(value.get(carried), dict):
            return None
        event = {**value, "type": kind}
        self.has_begun = True
        match kind:
            case "message_start":
                event["message"] = _message(event["message"], self._model)
            case "message_delta":
                event["usage"] = _counts(event.get("usage")) or {"output_tokens": 0}
                self.has_ended = self.has_ended or bool(event["delta"].get("stop_reason"))
            case "message_stop":
                self.has_ended = True
            case _:
                return self._of_block(event)
        return event

    def _of_block(self, event: dict[str, Any]) -> dict[str, Any] | None:
        index = event.get("index")
        event["index"] = self._index = index if isinstance(index, int) else self._index
        if event["type"] == "content_block_start":
            block = event["content_block"]
            event["content_block"] = {**_BLOCKS.get(str(block.get("type")), {}), **_told(block)}
        elif event["type"] == "content_block_delta":
            name, kind = _PIECES.get(str(event["delta"].get("type")), ("", str))
            if name is not None and not isinstance(event["delta"].get(name), kind):
                return None
        return event

    def _as_error(self, value: Any) -> dict[str, Any]:
        self.has_ended = True
        inner = value.get("error", value) if isinstance(value, dict) else value
        error = {**inner} if isinstance(inner, dict) else {"message": str(inner)}
        if error.get("type") == "error":
            del error["type"]
        return {"type": "error", "error": {"type": "error", "message": "the server tells no reason", **_told(error)}}

    def _error(self, message: str, *, code: int | None = 502) -> dict[str, Any]:
        return self._as_error({"type": "error" if code is None else "api_error", "message": message})

    def _sent(self, event: dict[str, Any]) -> bytes:
        return b"event: %s\n%s" % (event["type"].encode(), super()._sent(event))


class ResponseEvents(ServedEvents):
    """Repairs the events of one response in OpenAI's Responses protocol."""

    def __init__(self, address: str, kind: str, model: str) -> None:
        super().__init__(address, kind, model)
        self._number = -1
        """Of the newest event."""

    def _repaired(self, kind: str, value: Any) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            return None
        kind = self._kind_of(value)
        if kind == "error" or (value.get("error") and kind not in _LAST):
            return self._as_error(value)
        if kind not in _known_events():
            return None
        event = {**value, "type": kind}
        number = event.get("sequence_number")
        event["sequence_number"] = self._number = number if isinstance(number, int) else self._number + 1
        if kind.endswith(".delta") and not isinstance(event.get("delta"), str):
            return None
        index = event["output_index"] = event["output_index"] if isinstance(event.get("output_index"), int) else 0
        event = {"item_id": f"item-{index}", "content_index": 0, **_told(event)}
        if kind in _ABOUT:
            response = event.get("response")
            event["response"] = _response(response if isinstance(response, dict) else {}, _ABOUT[kind], self._model)
        elif kind.startswith("response.output_item."):
            item = event.get("item")
            if not isinstance(item, dict) or not isinstance(item.get("type"), str):
                return None
            event["item"] = {"id": f"item-{index}", **_ITEMS.get(item["type"], {}), **_told(item)}
        self.has_begun = True
        self.has_ended = self.has_ended or kind in _LAST
        return event

    def _as_error(self, value: dict[str, Any]) -> dict[str, Any]:
        self.has_ended = True
        self._number += 1
        inner = value.get("error") or value
        error = inner if isinstance(inner, dict) else {"message": str(inner)}
        code = error.get("code") or (error.get("type") if error.get("type") != "error" else None)
        message = error.get("message") or json.dumps(inner)
        code = None if code is None else str(code)
        return {"type": "error", "code": code, "message": str(message), "sequence_number": self._number, "param": None}

    def _error(self, message: str, *, code: int | None = 502) -> dict[str, Any]:
        return self._as_error({"message": message, "code": code})


@cache
def _known_events() -> frozenset[str]:
    """The kinds of events of Responses that openai's client knows."""
    from openai.types.responses import ResponseStreamEvent  # noqa: PLC0415  # slow, and loaded already where this is used

    return frozenset(_kinds_in(ResponseStreamEvent))


def _kinds_in(union: Any) -> list[str]:
    fields = getattr(union, "model_fields", None)
    if fields is not None:
        return [str(kind) for kind in get_args(fields["type"].annotation)]
    return [kind for inner in get_args(union) for kind in _kinds_in(inner)]


def _message(message: dict[str, Any], model: str) -> dict[str, Any]:
    """The message that a stream begins with, with all fields."""
    usual = {"id": "", "type": "message", "role": "assistant", "model": model, "content": []}
    usage = _counts(message.get("usage")) or {"input_tokens": 0, "output_tokens": 0}
    return {**usual, "stop_reason": None, "stop_sequence": None, **_told(message), "usage": usage}


def _response(response: dict[str, Any], status: str, model: str) -> dict[str, Any]:
    """A response in an event about it, with all fields."""
    usual = {"id": "", "object": "response", "created_at": 0, "model": model, "output": [], "status": status}
    output = [item for item in response.get("output") or () if isinstance(item, dict)]
    return {**usual, **_told(response), "output": output, "usage": _counts(response.get("usage"))}


def _counts(usage: Any) -> dict[str, Any] | None:
    """The usage without fields that hold nothing. None: there is no usage."""
    return _told(usage) if isinstance(usage, dict) and _told(usage) else None


def _told(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


_PROTOCOLS: Final[dict[str, type[ServedEvents]]] = {
    "/chat/completions": Chunks,
    "/messages": MessageEvents,
    "/responses": ResponseEvents,
}
"""By the end of the path that requests go to."""


def mend_streams(model: Model) -> None:
    """Makes the HTTP client of a model repair streamed responses, if openai's or anthropic's client uses it."""
    for inner in models_in(model):
        client = http_client_of(inner)
        if client is not None and _mend not in client.event_hooks["response"]:
            client.event_hooks["response"].append(_mend)


async def _mend(response: httpx2.Response) -> None:
    """A hook for responses of an HTTP client."""
    request = response.request
    protocol = next((found for path, found in _PROTOCOLS.items() if request.url.path.endswith(path)), None)
    if protocol is None or not response.is_success or request.method != "POST":
        return
    kind = response.headers.get("content-type", "")
    asked = json.loads(await request.aread())
    if "event-stream" not in kind and not asked.get("stream"):
        return
    address = f"{request.url.scheme}://{request.url.netloc.decode()}{request.url.path}"
    response.stream = _Mended(response, protocol(address, kind or "no content type", str(asked.get("model"))))
    response.headers.pop("content-encoding", None)


class _Mended(httpx2.AsyncByteStream):
    """The body of a response, decoded and repaired."""

    def __init__(self, response: httpx2.Response, events: ServedEvents) -> None:
        self._rest = response.stream
        self._decoded = httpx2.Response(
            response.status_code, headers=response.headers, stream=response.stream, request=response.request
        )
        self._events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._decoded.is_stream_consumed:  # openai's client reads the end of the body once more, for nothing but its end
            async for piece in self._rest:  # type: ignore[union-attr]  # asynchronous, as the client is
                yield piece
            return
        async for piece in self._decoded.aiter_bytes():
            yield self._events.read(piece)
        yield self._events.end()

    async def aclose(self) -> None:
        await self._decoded.aclose()
