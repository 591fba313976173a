"""Repairs the events of servers that follow Anthropic's Messages or OpenAI's Responses loosely.

- The kind of an event stands in its data; where it does not, the name of the event counts. Neither client reads both.
- Events, and pieces of content, of a kind that the client does not know carry nothing: it would take them for others.
- Fields that the client takes for granted are added where they are missing. Usage that is missing is estimated later.
- An error, or the event that the protocol ends with, is the end.
"""

import json
from functools import cache
from typing import Any, Final, get_args

from freeact_sub.models.served_events import ServedEvents

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
