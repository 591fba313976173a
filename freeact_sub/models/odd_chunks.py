"""Repairs the chunks of servers that follow OpenAI's Chat Completions loosely, before openai's client reads them.

- A chunk, a choice or a delta that is not an object carries nothing.
- An event of the kind `error`, and the finish reasons `error` and `abort`, become errors.
- Usage without a number of tokens is left out, and estimated later.
- A finish reason, the usage of all, an error or `[DONE]` is the end.
- A completion in one body, from a server that does not stream, is read as one chunk.

`odd_streams` makes the repairs that need the whole response.
"""

from typing import Any, Final

from freeact_sub.models.served_events import ServedEvents

_BROKEN: Final = ("error", "abort")
"""Finish reasons of servers whose answer broke off."""


class Chunks(ServedEvents):
    """Repairs the chunks of one response."""

    def _repaired(self, kind: str, value: Any) -> dict[str, Any] | None:
        if kind == "error" and not (isinstance(value, dict) and "error" in value):
            value = {"error": value if isinstance(value, dict) else {"message": str(value)}}
        return self._chunk(value) if isinstance(value, dict) else None

    def _error(self, message: str, *, code: int | None = 502) -> dict[str, Any]:
        self.has_ended = True
        return {"error": {"message": message} if code is None else {"message": message, "code": code}}

    def _in_one_body(self, document: Any) -> dict[str, Any] | None:
        return self._chunk(document) if isinstance(document, dict) and document.keys() & {"choices", "error"} else None

    def _chunk(self, given: dict[str, Any]) -> dict[str, Any]:
        if given.get("error"):
            self.has_ended = True
        if "choices" not in given:
            return given
        choices = [self._choice(choice) for choice in _objects(given["choices"])]
        usage = given.get("usage")
        is_usage = isinstance(usage, dict) and isinstance(usage.get("prompt_tokens"), int)
        chunk: dict[str, Any] = {**given, "choices": choices, "usage": usage if is_usage else None}
        reason = next((choice["finish_reason"] for choice in choices if choice.get("finish_reason")), None)
        self.has_ended = self.has_ended or reason is not None or (is_usage and not choices)
        if reason in _BROKEN and not chunk.get("error"):
            chunk |= self._error(f"the server broke off its answer: finish reason {reason!r}")
        return chunk

    def _choice(self, choice: dict[str, Any]) -> dict[str, Any]:
        delta, message = choice.get("delta"), choice.get("message")
        if not isinstance(delta, dict):
            # a message after deltas repeats them
            delta = _delta_of(message) if isinstance(message, dict) and not self.has_begun else {}
        self.has_begun = self.has_begun or bool(delta)
        return {**choice, "delta": delta}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _delta_of(message: dict[str, Any]) -> dict[str, Any]:
    """A whole message as the only delta of a stream, whose calls are told apart by numbers."""
    calls = _objects(message.get("tool_calls"))
    return {**message, "tool_calls": [{**call, "index": number} for number, call in enumerate(calls)]}
