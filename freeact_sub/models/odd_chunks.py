"""Repairs the chunks of servers that follow OpenAI's Chat Completions loosely, before openai's client reads them.

- A chunk, a choice, a delta or a call that is not an object carries nothing.
- Arguments of a call that come as texts and as objects become one of both, and empty ones are left out.
- Content that is an object or a number becomes a text, and a call in the old form (`function_call`) one in today's.
- Usage that is not an object of numbers is left out, and so is a time that no calendar has.
- An event of the kind `error`, and the finish reasons `error` and `abort`, become errors.
- A finish reason, the usage of all, an error or `[DONE]` is the end.
- A completion in one body, from a server that does not stream, is read as one chunk; so is a line of JSON without `data:`.

`odd_streams` makes the repairs that need the whole response.
"""

import json
from typing import Any, Final

from freeact_sub.models.served_events import ServedEvents, documents_in

_NOTHING: Final[dict[str, Any]] = {"choices": []}
_BROKEN: Final = ("error", "abort")
"""Finish reasons of servers whose answer broke off."""
_MOST: Final = 2**53
"""Larger numbers, infinity and what is no number count nothing."""
_LATEST: Final = 253_402_300_799_000
"""The last moment of the year 9999, in milliseconds."""


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
