"""Reads streamed responses before the providers' own clients do, in each protocol that sends server-sent events.

Two rules hold in all of them. A reply counts when its protocol's end was seen: a body that ends before that becomes an
error, for which the request is made again. And a reply does not depend on the pieces in which it comes: events are read as
their standard has them, and each is passed on in one piece. An event without data is no event, a byte order mark is dropped,
bytes that are no UTF-8 are read as question marks, an event of one line of JSON needs no blank line behind it, and `[DONE]`
may have blanks around it. A body that is no stream becomes an error that names the address and quotes it.

A subclass of `ServedEvents` knows one protocol: where a reply begins, how it ends, and how an error is written. An event
passes as it came, unless one of the `repairs` of its protocol is needed.
"""

import codecs
import json
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any, ClassVar, Final

import httpx2
from pydantic_ai.models import Model

from freeact_sub.models.borrowed_stream import http_client_of
from freeact_sub.models.observers import models_in
from freeact_sub.models.repairs import CHAT, LAST, MESSAGES, RESPONSES, Repair, carried, choice_of, of_error
from freeact_sub.text import one_line

logger = logging.getLogger(__name__)

QUOTED_CHARS: Final = 150
"""Characters of an invalid body that an error quotes."""
LONGEST_BYTES: Final = 32 * 1024**2
"""Bytes of one line, or of a body that is no stream: more than any picture in an answer takes."""
NO_END: Final = "the server broke off its answer: it has no end"
BASE_URL: Final = "(check `base_url`)"
_FIELD: Final = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|[\r\n])((?:data|event|id|retry)?:)")
LONGEST_START: Final = 16
"""Bytes that are read once more in search of the first field: more than a mark of the byte order and the field take."""
_BROKEN: Final = ("error", "abort")
"""Finish reasons of servers whose answer broke off."""


class ServedEvents(ABC):
    """Reader of the events of one response."""

    path: ClassVar[str]
    """The end of the path of the protocol's requests."""
    repairs: ClassVar[tuple[Repair, ...]]
    in_one_body: ClassVar[str] = "error"
    """The key of a body that is no stream and still is an answer."""

    def __init__(self, address: str, kind: str, model: str) -> None:
        """Args: address: the server's. kind: the content type of the response. model: the requested name."""
        self._address, self._kind = address, kind
        self.model: str = model
        self.has_begun = False
        """Whether a part of a reply has arrived."""
        self.has_ended = False
        """Whether the end of the protocol has arrived, or an error."""
        self.count: int = 0
        self._held = b""
        """The unread bytes: an unfinished line, or a body that is not a stream of events."""
        self._is_stream = False
        self._name = ""
        """The name of the event that is being read."""
        self._data: list[bytes] = []
        """Lines of the event's data, none of which is JSON by itself."""

    def read(self, piece: bytes) -> bytes:
        """Return the events that this piece completes."""
        read = len(self._held)
        if read + len(piece) > LONGEST_BYTES:
            self._held = b""
            return self._failed(f"{self._address} sent {LONGEST_BYTES // 1024**2} MiB without the end of a line", code=None)
        self._held += piece
        if not self._is_stream:
            start = _FIELD.search(self._held, 0 if read < LONGEST_START else read - LONGEST_START)
            if start is None:
                return b""
            self._is_stream, self._held, read = True, self._held[start.start(1) :], 0
        if self._held.find(b"\n", read) < 0 and self._held.find(b"\r", max(0, read - 1)) < 0:
            return b""
        lines = self._held.splitlines(keepends=True)
        # a carriage return at the end of a piece may be the first half of a line's end
        self._held = b"" if lines[-1].endswith(b"\n") else lines.pop()
        return b"".join(map(self._line, lines))

    def end(self) -> bytes:
        """Return the rest at the end of the body."""
        if not self._is_stream:
            return self._whole_body(self._held.removeprefix(codecs.BOM_UTF8).strip())
        rest = b"".join(map(self._line, self._held.splitlines(keepends=True)))
        if self.has_ended or not (self.has_begun or self._data):  # data that is left is an event that was cut off
            return rest
        return rest + self._failed(NO_END)

    def _whole_body(self, body: bytes) -> bytes:
        if not body:
            return b""
        self.has_ended = True
        text = body.decode(errors="replace")
        value = _json(text)
        if isinstance(value, dict) and (value.get("error") or self.in_one_body in value):
            return self._passed(value, text)
        quoted = one_line(text, QUOTED_CHARS)
        problem = f"{self._address} answered with something else than a completion ({self._kind}): {quoted}"
        return self._failed(f"{problem} {BASE_URL}", code=None)

    def _line(self, line: bytes) -> bytes:
        name, _, value = line.rstrip(b"\r\n").partition(b":")
        if not line.strip():
            return self._dispatched() if self._name or self._data else b""
        if name == b"event":
            self._name = value.strip().decode(errors="replace")
        if name != b"data" or not (data := value.strip()):
            return b""
        if data.startswith(b"[DONE]"):
            self.has_ended = True
            return b"data: [DONE]\n\n"
        text = data.decode(errors="replace")
        if not self._data and (event := _json(text)) is not _json:
            return self._passed(event, text)
        self._data.append(value.removeprefix(b" "))
        return b""

    def _dispatched(self) -> bytes:
        """Return the event that a blank line ends, if its data is not passed on yet."""
        text, self._data = b"\n".join(self._data).decode(errors="replace"), []
        try:
            if not text:
                return b""
            if (event := _json(text)) is not _json:
                return self._passed(event, json.dumps(event))
            if self._name == "error":
                return self._failed(text.strip(), code=None)
            problem = f"{self._address} sent an event that is no JSON: {one_line(text, QUOTED_CHARS)}"
            return self._failed(problem) if self.has_begun else self._failed(f"{problem} {BASE_URL}", code=None)
        finally:
            self._name = ""

    def _passed(self, given: Any, text: str) -> bytes:
        """Return an event as the client reads it. Args: text: its JSON."""
        if not isinstance(given, dict):  # it carries nothing
            return b""
        event = {**given, "type": self._name} if self._name and not given.get("type") else given
        try:
            repaired = self._repaired(event)
            if repaired is None:
                return b""
            self.count += 1
            event = self._noted(repaired)
            return self._sent(event, text if event is given else json.dumps(event))
        except (TypeError, LookupError, AttributeError, RecursionError):  # border: values may have any type, at any depth
            return self._failed(f"{self._address} sent an event of another form: {one_line(text, QUOTED_CHARS)}", code=None)

    def _repaired(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """Return an event after the repairs. None: it carries nothing."""
        content = carried(event)
        for repair in self.repairs:
            if repair.when(event, content):
                logger.debug("%s sends %s: repaired", self._address, repair.name)
                repaired = repair.make(event, self)
                if repaired is None:
                    return None
                event, content = repaired, carried(repaired)
        return event

    def _failed(self, message: str, *, code: int | None = 502) -> bytes:
        """Return an error. Args: code: its status. None: the request is not to be made again."""
        error = self._error(message, code)
        self.has_ended = True
        return self._sent(error, json.dumps(error))

    def _sent(self, event: dict[str, Any], text: str) -> bytes:
        del event
        return b"data: %s\n\n" % text.encode()

    @abstractmethod
    def _noted(self, event: dict[str, Any]) -> dict[str, Any]:
        """Note whether a reply begins or ends with an event, and return the event to pass on."""

    @abstractmethod
    def _error(self, message: str, code: int | None) -> dict[str, Any]:
        """Return an error in the form of the protocol."""


def _json(text: str) -> Any:
    """Return the value of a text; this function itself where the text is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _json


class Chunks(ServedEvents):
    """Chat Completions: a finish reason, the usage of all, an error or `[DONE]` is the end."""

    path, repairs, in_one_body = "/chat/completions", CHAT, "choices"

    def _noted(self, event: dict[str, Any]) -> dict[str, Any]:
        choice = choice_of(event)
        self.has_begun = self.has_begun or bool(choice.get("delta"))
        reason = choice.get("finish_reason")
        is_usage = event.get("usage") is not None and not event.get("choices")
        self.has_ended = self.has_ended or bool(event.get("error") or reason or is_usage)
        if reason in _BROKEN and not event.get("error"):
            return {**event, **self._error(f"the server broke off its answer: finish reason {reason!r}", 502)}
        return event

    def _error(self, message: str, code: int | None) -> dict[str, Any]:
        return {"error": {"message": message} if code is None else {"message": message, "code": code}}


class MessageEvents(ServedEvents):
    """Anthropic's Messages: a stop reason, `message_stop` or an error is the end. The client reads names of events only."""

    path, repairs = "/messages", MESSAGES

    def _noted(self, event: dict[str, Any]) -> dict[str, Any]:
        kind = str(event.get("type"))
        self.has_begun = self.has_begun or kind.startswith(("message_", "content_block_"))
        is_stop = kind == "message_delta" and bool(event["delta"].get("stop_reason"))
        self.has_ended = self.has_ended or is_stop or kind in ("message_stop", "error")
        return event

    def _error(self, message: str, code: int | None) -> dict[str, Any]:
        kind = "error" if code is None else "api_error"
        return {"type": "error", "error": {"type": kind, "message": message}}

    def _sent(self, event: dict[str, Any], text: str) -> bytes:
        return b"event: %s\n%s" % (str(event.get("type")).encode(), super()._sent(event, text))


class ResponseEvents(ServedEvents):
    """OpenAI's Responses: the event about the whole response, or an error, is the end."""

    path, repairs = "/responses", RESPONSES

    def _noted(self, event: dict[str, Any]) -> dict[str, Any]:
        self.has_begun = True
        self.has_ended = self.has_ended or event["type"] in (*LAST, "error")
        return event

    def _error(self, message: str, code: int | None) -> dict[str, Any]:
        return of_error({"message": message, "code": code}, self)


PROTOCOLS: Final[tuple[type[ServedEvents], ...]] = (Chunks, MessageEvents, ResponseEvents)


def read_streams(model: Model) -> None:
    """Let the HTTP client of a model read streamed responses here, if openai's or anthropic's client uses it."""
    for inner in models_in(model):
        client = http_client_of(inner)
        if client is not None and _read not in client.event_hooks["response"]:
            client.event_hooks["response"].append(_read)


async def _read(response: httpx2.Response) -> None:
    """Read a response of an HTTP client. Called by the client's hook."""
    request = response.request
    protocol = next((found for found in PROTOCOLS if request.url.path.endswith(found.path)), None)
    if protocol is None or not response.is_success or request.method != "POST":
        return
    kind = response.headers.get("content-type", "")
    asked = json.loads(await request.aread())
    if "event-stream" not in kind and not asked.get("stream"):
        return
    address = f"{request.url.scheme}://{request.url.netloc.decode()}{request.url.path}"
    response.stream = _ServedBody(response, protocol(address, kind or "no content type", str(asked.get("model"))))
    response.headers.pop("content-encoding", None)


class _ServedBody(httpx2.AsyncByteStream):
    """The body of a response, decoded and read."""

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
