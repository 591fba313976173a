"""Conversations to continue: one that a program gives an agent, and what a child reads of its parent's."""

from collections.abc import Iterator, Sequence

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart, repair_messages

from freeact_sub.agents.named_texts import loaded_only
from freeact_sub.errors import ConfigError
from freeact_sub.modes import History


def checked_history(history: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the conversation; unanswered calls get an answer, because providers reject them otherwise.

    Raises:
        ConfigError: An item is not a message.
    """
    for message in history:
        if not isinstance(message, ModelRequest | ModelResponse):
            raise ConfigError(
                f"`history` must hold pydantic-ai messages, not {type(message).__name__}: for JSON, use "
                "`ModelMessagesTypeAdapter.validate_json`"
            )
    return repair_messages(list(history))


def last_exchanges(history: Sequence[ModelMessage], wanted: History) -> list[ModelMessage]:
    """Return what a child reads of a conversation: nothing, all, or the last exchanges; the present one is the last.

    An exchange begins with a prompt that follows a complete answer, so that no result stands without its call.
    """
    if wanted == "all":
        return [*history]
    begins = [number for number, message in enumerate(history) if _begins_exchange(message)]
    count = 0 if wanted == "none" else wanted
    return [] if count == 0 else [*history[begins[-count] if count <= len(begins) else 0 :]]


def texts_of_people(history: Sequence[ModelMessage]) -> Iterator[str]:
    """Return the texts of a conversation that people, or a parent, have sent to the model."""
    for part in (part for message in history for part in message.parts if isinstance(part, UserPromptPart)):
        content = [part.content] if isinstance(part.content, str) else part.content
        yield from (text for item in content if isinstance(text := getattr(item, "content", item), str))


def _begins_exchange(message: ModelMessage) -> bool:
    kinds = {part.part_kind for part in message.parts}
    is_prompt = isinstance(message, ModelRequest) and "user-prompt" in kinds and kinds <= {"user-prompt", "system-prompt"}
    return is_prompt and not all(map(loaded_only, message.parts))  # texts are loaded in the middle of one
