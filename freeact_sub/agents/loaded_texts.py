"""Loads texts into conversations: skills and the instructions of folders.

Code in a cell loads a skill by `agent.skill`, a person by `Agent.skill`; `agents/folder_instructions.py` loads the others.

Such a text stands in a conversation as a `TextContent` of pydantic-ai, whose metadata names it: a skill by its name, a
folder as `sub/folder/`. So it is known by what put it there and not by its words, is never there twice, and stays when the
rest is summarised (`agents/context/summary.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, TextContent, UserContent, UserPromptPart

from freeact_sub.channel import Emitter
from freeact_sub.events import SkillLoaded
from freeact_sub.skills import Skill, loaded_text

KEY: Final = "freeact_text"
KNOWN: Final = "(The text of the skill {name} stands above, in this conversation.)"


@dataclass(frozen=True)
class LoadedTexts:
    """What an agent's conversation holds, or will before the next request."""

    history: Callable[[], Iterable[ModelMessage]]
    """Returns it."""
    send: Callable[[TextContent], bool | None]
    """See `AgentLoop.send`."""

    @property
    def present(self) -> dict[str, TextContent]:
        """The texts, by name."""
        return loaded_in(self.history())

    def load(self, text: TextContent) -> bool:
        """Load a text; returns False if no model is at work that could read it."""
        return self.send(text) is True


def content_of(skill: Skill) -> TextContent:
    """Return a skill as a part of a prompt."""
    return named_text(skill.name, loaded_text(skill))


def named_text(name: str, text: str) -> TextContent:
    """Return a text as a part of a prompt."""
    return TextContent(text, metadata={KEY: name})


def name_in(part: Any) -> str:
    """Return the name of the text that a part of a prompt is; empty if it is none."""
    metadata = part.metadata if isinstance(part, TextContent) else None
    name = metadata.get(KEY) if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def is_folder(name: str) -> bool:
    """Whether a text is that of a folder; otherwise it is a skill."""
    return name.endswith("/")


def in_words(name: str) -> str:
    """Return what a text is, for a model that reads a transcript."""
    return f"the instructions for {name}" if is_folder(name) else f"the skill {name}"


def title_of(part: TextContent) -> str:
    """Return a part of a prompt as people read it: a skill as what loads it."""
    name = name_in(part)
    return f"/{name}" if name else part.content


def loaded_in(messages: Iterable[ModelMessage]) -> dict[str, TextContent]:
    """Return the texts in a conversation, by name, the newest last."""
    return {name_in(part): part for message in messages for part in _texts_in(message)}


def _texts_in(message: ModelMessage) -> Iterator[TextContent]:
    for part in message.parts:
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
            for item in part.content:
                if isinstance(item, TextContent) and name_in(item):
                    yield item


def loaded_only(part: Any) -> bool:
    """Whether a part of a message holds loaded texts and nothing else."""
    content = part.content if isinstance(part, UserPromptPart) else ""
    return not isinstance(content, str) and all(map(name_in, content))


async def with_skills(
    content: Sequence[UserContent], history: Sequence[ModelMessage], emitter: Emitter
) -> list[UserContent]:
    """Return the parts of a prompt; a skill that the conversation has already becomes a note, and others are announced."""
    known, parts = set(loaded_in(history)), list[UserContent]()
    for part in content:
        name = name_in(part)
        parts.append(KNOWN.format(name=name) if name in known else part)
        if name and name not in known:
            known.add(name)
            await emitter.emit(SkillLoaded(name=name))
    return parts
