"""Loads texts into conversations: skills and the instructions of folders.

Code in a cell loads a skill by `agent.skill`, a person by `Agent.skill`; `FolderInstructions` loads the instructions of a
folder (its AGENTS.md or CLAUDE.md).

Such a text stands in a conversation as a `TextContent` of pydantic-ai, whose metadata names it: a skill by its name, a
folder as `sub/folder/`. So it is known by what put it there and not by its words, is never there twice, and stays when the
rest is summarised (`features/compaction.py`).
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, TextContent, UserContent, UserPromptPart

from freeact_sub.agents.feature import RunPart
from freeact_sub.agents.rights import only
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.channel import Emitter
from freeact_sub.config.instruction_files import MAX_CHARS, instructions_by_folder
from freeact_sub.events import Notice, SkillLoaded
from freeact_sub.skills import Skill, loaded_text

KEY: Final = "freeact_text"
KNOWN: Final = "(The text of the skill {name} stands above, in this conversation.)"

MAX_FOLDERS: Final = 50
"""Folders in one conversation, and `MAX_CHARS` of their texts; others are only named, then left out."""
FOR: Final = (
    "You use files in {folder}/: these instructions are for them, and count more than those for the whole project.\n\n"
)
NO_ROOM: Final = (
    "You use files in {folder}/. That folder has instructions of its own, for which this conversation has no room: read its "
    "AGENTS.md or CLAUDE.md before you go on there."
)


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


def skills_of(agent: TreeAgent) -> Mapping[str, Skill]:
    """Return the skills that an agent may load, by name."""
    return only(agent.shared.skills.skills, agent.rights.skills)


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


@dataclass
class FolderInstructions(RunPart):
    """Shows a model the instructions of a folder when a cell first uses a file there.

    The nearest folder above the file counts. Only what `load_config` has read counts, so nothing that code writes becomes an
    instruction in the same program.
    """

    _agent: TreeAgent
    _texts: LoadedTexts

    @functools.cached_property
    def _by_folder(self) -> dict[str, str]:
        config = self._agent.shared.config
        return instructions_by_folder(config.instruction_contents, config.workspace)

    def used(self, agent: TreeAgent, names: Iterable[str]) -> None:
        """Note files that code has used. Args: names: relative to the workspace; with a `/` behind it, of a folder."""
        if agent is not self._agent:  # code in a node has no model that could read them
            return
        needed = dict.fromkeys(filter(None, map(self._nearest, names))) if self._by_folder else {}
        present = self._texts.present if needed else {}
        there = {name: text.content for name, text in present.items() if is_folder(name)}
        for folder in needed:
            if f"{folder}/" not in there and len(there) < MAX_FOLDERS:
                text = FOR.format(folder=folder) + self._by_folder[folder]
                if there and sum(map(len, there.values())) + len(text) > MAX_CHARS:
                    text = NO_ROOM.format(folder=folder)
                if not self._texts.load(named_text(f"{folder}/", text)):
                    return
                there[f"{folder}/"] = text
                self._agent.emitter.put(Notice(content=f"reads the instructions for {folder}/"))

    def _nearest(self, name: str) -> str | None:
        used = PurePosixPath(name)
        folders = (used, *used.parents) if name.endswith("/") else used.parents
        return next((str(above) for above in folders if str(above) in self._by_folder), None)
