"""Conversations to continue: one that a program gives an agent, and those of children that have ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, repair_messages
from pydantic_ai.models import Model

from freeact_sub.agents.budgets.estimate import size_of
from freeact_sub.agents.loaded_texts import loaded_only
from freeact_sub.errors import ConfigError
from freeact_sub.modes import History

MAX_HISTORIES: Final = 100
MAX_BYTES: Final = 64 * 2**20
"""Bytes of all conversations together, as text."""


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


def _begins_exchange(message: ModelMessage) -> bool:
    kinds = {part.part_kind for part in message.parts}
    is_prompt = isinstance(message, ModelRequest) and "user-prompt" in kinds and kinds <= {"user-prompt", "system-prompt"}
    return is_prompt and not all(map(loaded_only, message.parts))  # texts are loaded in the middle of one


@dataclass(kw_only=True)
class KeptHistory:
    """The conversation of a child that has ended."""

    messages: list[ModelMessage]
    size: int
    model: Model | None
    """None: the child's model was closed with the root."""


class KeptHistories:
    """The conversations of the children of a root that ended last, for resuming them."""

    def __init__(self) -> None:
        self._by_id: dict[str, KeptHistory] = {}
        self._answered_by: dict[str, str] = {}

    def keep(self, agent_id: str, messages: list[ModelMessage], model: Model, reused_from: str = "") -> None:
        """Keeps a conversation; the oldest make room. Args: reused_from: the agent whose answer the child took over."""
        self._by_id.pop(agent_id, None)
        if reused_from:
            self.same_as(agent_id, reused_from)
            return
        size = sum(size_of(part) for message in messages for part in message.parts)
        self._by_id[agent_id] = KeptHistory(messages=messages, size=size, model=model)
        while len(self._by_id) > MAX_HISTORIES or sum(kept.size for kept in self._by_id.values()) > MAX_BYTES:
            del self._by_id[next(iter(self._by_id))]

    def same_as(self, agent_id: str, other: str) -> None:
        """A child was given the answer of another one."""
        self._answered_by[agent_id] = self.answered_by(other)

    def answered_by(self, agent_id: str) -> str:
        """The agent whose conversation led to a child's answer: the child, or the one whose answer was reused."""
        return self._answered_by.get(agent_id, agent_id)

    def get(self, agent_id: str) -> KeptHistory | None:
        """The conversation of a child. None: it is not kept."""
        return self._by_id.get(agent_id)

    def models_are_closed(self) -> None:
        """The root was closed, and with it the models that were made for children."""
        for kept in self._by_id.values():
            kept.model = None
