"""Checks a conversation that a program passes to an agent."""

from collections.abc import Sequence

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, repair_messages

from freeact_sub.errors import ConfigError


def checked_history(history: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the conversation; unanswered calls get an answer, because providers reject them otherwise.

    Raises:
        ConfigError: An item is not a message.
    """
    for message in history:
        if not isinstance(message, ModelRequest | ModelResponse):
            raise ConfigError(
                f"`history` must be messages of pydantic-ai, and holds a {type(message).__name__}: for JSON, use "
                "`ModelMessagesTypeAdapter.validate_json`"
            )
    return repair_messages(list(history))
