"""Repairs a conversation with unreadable messages, so that a model accepts it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    ToolReturnPart,
    UserPromptPart,
)

LOST: Final = "[A message of the conversation stood here, and cannot be read any more.]"
LOST_RESULT: Final = "[The result of this call cannot be read any more.]"


def mended(messages: Sequence[ModelMessage | None]) -> list[ModelMessage]:
    """Return the same number of messages, with a note for each None. Each call has a result, and each result a call."""
    found: list[ModelMessage] = []
    calls: dict[str, str] = {}
    for message in messages:
        if isinstance(message, ModelResponse):
            calls = {part.tool_call_id: part.tool_name for part in message.tool_calls}
            found.append(message)
            continue
        parts = [] if message is None else [part for part in message.parts if _call_of(part) in (None, *calls)]
        answered = {_call_of(part) for part in parts}
        lost = [
            ToolReturnPart(name, LOST_RESULT, call, outcome="failed") for call, name in calls.items() if call not in answered
        ]
        note = [] if parts else [UserPromptPart(LOST)]
        found.append(replace(ModelRequest(parts=[]) if message is None else message, parts=[*lost, *parts, *note]))
        calls = {}
    return found


def _call_of(part: object) -> str | None:
    """Return the call to which a part belongs as a result. None: it is not a result."""
    if isinstance(part, ToolReturnPart) or (isinstance(part, RetryPromptPart) and part.tool_name is not None):
        return part.tool_call_id
    return None
