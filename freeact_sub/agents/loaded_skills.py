"""Loads skills into conversations: for code in a cell (`agent.skill`), and for a person (`Agent.skill`).

The text of a skill stands in a conversation as a `TextContent` of pydantic-ai, whose metadata names the skill. So it is
known by what put it there and not by its words, is never there twice, and stays when the rest is summarised
(`agents/context/summary.py`).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, TextContent, UserContent, UserPromptPart

from freeact_sub.channel import Emitter
from freeact_sub.events import SkillLoaded
from freeact_sub.skills import Skill, loaded_text

KEY: Final = "freeact_skill"
KNOWN: Final = "(The text of the skill {name} stands above, in this conversation.)"


def content_of(skill: Skill) -> TextContent:
    """Return a skill as a part of a prompt."""
    return TextContent(loaded_text(skill), metadata={KEY: skill.name})


def skill_in(part: Any) -> str:
    """Return the name of the skill that a part of a prompt is; empty if it is none."""
    metadata = part.metadata if isinstance(part, TextContent) else None
    name = metadata.get(KEY) if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def title_of(part: TextContent) -> str:
    """Return a part of a prompt as people read it: a skill as what loads it."""
    name = skill_in(part)
    return f"/{name}" if name else part.content


def loaded_in(messages: Iterable[ModelMessage]) -> dict[str, TextContent]:
    """Return the skills in a conversation, by name, the newest last."""
    return {skill_in(part): part for message in messages for part in skill_parts(message)}


def skill_parts(message: ModelMessage) -> Iterator[TextContent]:
    """Yield the skills in a message."""
    for part in message.parts:
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
            for item in part.content:
                if isinstance(item, TextContent) and skill_in(item):
                    yield item


def skills_only(part: Any) -> bool:
    """Whether a part of a message holds skills and nothing else."""
    content = part.content if isinstance(part, UserPromptPart) else ""
    return not isinstance(content, str) and all(map(skill_in, content))


async def with_skills(
    content: Sequence[UserContent], history: Sequence[ModelMessage], emitter: Emitter
) -> list[UserContent]:
    """Return the parts of a prompt; a skill that the conversation has already becomes a note, and others are announced."""
    known, parts = set(loaded_in(history)), list[UserContent]()
    for part in content:
        name = skill_in(part)
        parts.append(KNOWN.format(name=name) if name in known else part)
        if name and name not in known:
            known.add(name)
            await emitter.emit(SkillLoaded(name=name))
    return parts
