"""A conversation that a program gives an agent to go on with."""

from collections.abc import Sequence

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, repair_messages

from freeact_sub.errors import ConfigError


def checked_history(history: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The conversation; calls in it that were never answered get an answer, or no model would take it.

    Raises:
        ConfigError: It is no list of messages.
    """
    for message in history:
        if not isinstance(message, ModelRequest | ModelResponse):
            raise ConfigError(
                f"`history` must be messages of pydantic-ai, and holds a {type(message).__name__}: of JSON, "
                "`ModelMessagesTypeAdapter.validate_json` makes them"
            )
    return repair_messages(list(history))
