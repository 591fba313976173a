"""`ServedEvents` reads the body of one streamed response and passes it on to the provider's client, repaired.

It stands between the wire and the client in each protocol that sends server-sent events, so that two rules hold in all of
them. A reply counts when its protocol's end was seen: a body that ends before that becomes an error, for which the request
is made again. And what a reply says does not depend on the pieces in which it comes: events are read as their standard has
them, and each is passed on in one piece.

- An event without data, such as a reconnection time or a keep-alive, is no event, and neither is a comment.
- A byte order mark before the first event is dropped, and bytes that are no UTF-8 are read as question marks.
- An event of one line of JSON ends with that line, also where the blank line behind it is missing.
- `[DONE]` ends a stream with blanks around it, too.
- A body that is no stream of events becomes an error that names the address and quotes it, unless its protocol reads it.

A subclass knows the events of one protocol: how to repair them, and which is the end.
"""

import codecs
import json
import re
from abc import ABC, abstractmethod
from typing import Any, Final

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
