"""Prompts: the instructions, the continued conversation and the prompt that a model reads before its first turn.

Features let a model read texts with names. Such a text is a `TextContent` of pydantic-ai, whose metadata names it. So it is
known by its maker and not by its words, is never there twice, and stays when the rest is summarised
(`features/compaction.py`). A name that ends with `/` is that of a folder.
"""

import functools
import importlib.resources
import mimetypes
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from string import Template
from typing import Any, Final, TypeAlias

from pydantic_ai import AudioUrl, BinaryContent, DocumentUrl, ImageUrl, VideoUrl
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextContent,
    UserContent,
    UserPromptPart,
    repair_messages,
)

from freeact_sub.agents.life import TreeAgent
from freeact_sub.agents.results import PictureUse
from freeact_sub.config.project_texts import instructions_for_all
from freeact_sub.errors import ConfigError, InvalidRequestError
from freeact_sub.modes import History
from freeact_sub.system.safe_files import read_file
from freeact_sub.text import one_line

KEY: Final = "freeact_text"
PICTURES: Final[dict[PictureUse, str]] = {
    "saved": "Pictures that a cell displays (matplotlib) are saved as files, and the user is told where.",
    "shown": "Pictures that a cell displays (matplotlib) are shown to the user.",
    "unseen": "The user sees no picture that a cell displays: save it to a file, and name that in your answer.",
}
Prompt: TypeAlias = str | Sequence[UserContent | Path]
"""A text; or texts, pictures and files in order: contents of pydantic-ai, and paths of files, which are read."""

SANDBOXED: Final = """
- Your kernel is in a sandbox: it writes the workspace only, and has no network unless told otherwise. For what it forbids, such as installing a package: `await agent.shell("pip install x", reason="...")` in a cell runs one command outside, if a person agrees."""  # noqa: E501  # one line for the model
KNOWS: Final = {
    "none": "You see nothing of its conversation and share no variables with it.",
    "all": "What stands before is its conversation, which you continue for this piece; you share no variables with it.",
}
"""Sentences for a child, by the share of its parent's conversation that it reads."""
MAX_FILE_BYTES: Final = 50_000_000
"""Bytes of the largest file in a prompt; providers take less."""
CONTENTS: Final = (BinaryContent, ImageUrl, AudioUrl, DocumentUrl, VideoUrl)
EMPTY: Final = "the prompt is empty: say what to do"
BRANCHED: Final = (
    "Your kernel started as a copy of your parent's: its variables, imports and functions are there. "
    "What you change in them stays with you."
)


def named_text(name: str, text: str) -> TextContent:
    """Return a text as a part of a prompt."""
    return TextContent(text, metadata={KEY: name})


def name_in(part: Any) -> str:
    """Return the name of a text in a prompt; empty if the part is none."""
    metadata = part.metadata if isinstance(part, TextContent) else None
    name = metadata.get(KEY) if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def is_folder(name: str) -> bool:
    """Return whether a text is about a folder: it comes again when the folder is used again."""
    return name.endswith("/")


def title_of(part: TextContent) -> str:
    """Return a part of a prompt as people read it: a named text as the command that loads it."""
    name = name_in(part)
    return f"/{name}" if name else part.content


def loaded_in(messages: Iterable[ModelMessage]) -> dict[str, TextContent]:
    """Return the named texts in a conversation, by name, the newest last."""
    return {name_in(part): part for message in messages for part in _texts_in(message)}


def _texts_in(message: ModelMessage) -> Iterator[TextContent]:
    for part in message.parts:
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
            for item in part.content:
                if isinstance(item, TextContent) and name_in(item):
                    yield item


def loaded_only(part: Any) -> bool:
    """Return whether a part of a message holds named texts and nothing else."""
    content = part.content if isinstance(part, UserPromptPart) else ""
    return not isinstance(content, str) and all(map(name_in, content))


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
    """Return a child's share of a conversation: nothing, all, or the last exchanges, ending with the present one.

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


def opening_prompt(
    prompt: Sequence[UserContent], *, note: str, messages: Sequence[str], kernel_news: str, branched: bool, values: str
) -> str | list[UserContent]:
    """Return the prompt of a run, with the news for its model.

    Args:
        prompt: The task, in order: texts, pictures and files.
        note: The front end's addition.
        messages: Answers of children since the last run.
        kernel_news: News of a kernel that is younger than the conversation.
        branched: Whether the kernel started as a copy of the parent's.
        values: A description of the variables put into the kernel for this run.
    """
    content: list[UserContent] = []
    for part in (*messages, kernel_news, *prompt, note, BRANCHED if branched else "", values):
        if content and isinstance(part, str) and isinstance(content[-1], str):
            content[-1] += f"\n\n{part}" if part else ""
        elif part:
            content.append(part)
    return content[0] if len(content) == 1 and isinstance(content[0], str) else content


def read_prompt(prompt: Prompt) -> tuple[str, tuple[UserContent, ...]]:
    """Return a prompt as people read it, and its parts as the model does; no parts if it is one text.

    Raises:
        InvalidRequestError: The prompt is empty, a file is unreadable, or a part is no text, path or content of pydantic-ai.
    """
    if isinstance(prompt, str):
        if not prompt.strip():
            raise InvalidRequestError(EMPTY)
        return prompt, ()
    if not isinstance(prompt, Sequence):
        raise InvalidRequestError(f"a prompt is a text, or a list of texts, files and pictures, not {type(prompt).__name__}")
    texts, parts = [], list[UserContent]()
    for part in prompt:
        parts.append(_file(part) if isinstance(part, Path) else part)
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Path):
            texts.append(f"[{part.name}]")
        elif isinstance(part, TextContent):
            texts.append(title_of(part))
        elif isinstance(part, CONTENTS):
            texts.append(f"[{part.media_type if isinstance(part, BinaryContent) else part.kind.replace('-', ' ')}]")
        else:
            raise InvalidRequestError(
                f"a part of a prompt is a text, a `Path`, or content of pydantic-ai, not {part!r:.100}"
            )
    if all(isinstance(part, str) and not part.strip() for part in parts):
        raise InvalidRequestError(EMPTY)
    return "\n".join(texts), tuple(parts)


def _file(path: Path) -> UserContent:
    """Return a file as the model reads it: a text as text."""
    try:
        data = read_file(path, MAX_FILE_BYTES)
    except OSError as error:
        raise InvalidRequestError(f"the file {path} of the prompt cannot be read: {error.strerror or error}") from error
    kind = mimetypes.guess_type(path.name)[0] or ""
    if kind.startswith(("image/", "audio/", "video/")) or kind == "application/pdf":
        return BinaryContent(data, media_type=kind)
    try:
        return f"{path.name}:\n{data.decode()}"
    except UnicodeDecodeError:
        raise InvalidRequestError(f"the file {path} of the prompt is not text, a picture, audio, video or PDF") from None


def instructions(agent: TreeAgent, kernel: str) -> str:
    """Return the system prompt of a run; equal for all agents of a type, so that they read one prefix from a cache.

    Args:
        agent: The agent; one that continues its parent's conversation has its parent's system prompt.
        kernel: Tells the model where its kernel runs.
    """
    agent = agent.begins_as
    config = agent.shared.config
    own = ", ".join(name for name in agent.shared.own_tools.names if agent.rights.has_tool(name))
    text = _template("system.md").substitute(
        kernel=kernel,
        pictures=PICTURES[agent.shared.stream.pictures],
        outside=SANDBOXED if agent.policy.wall == "workspace" else "",
        own=f"\n- Your tools that code can call too, as `await agent.tools.NAME(...)`: {own}." if own else "",
        features=agent.shared.features.instructions(agent),
        spawning=_spawning(agent) if agent.may_spawn and agent.rights.has_tool("task") else "",
    )
    body = f"\n\n{agent.rights.prompt}" if agent.rights.prompt else ""
    contents = config.instruction_contents
    of_files = instructions_for_all(contents, config.workspace) if contents else ""
    return f"{text}{body}\n{config.instructions}{of_files}".strip()


def with_child_note(note: str, agent: TreeAgent) -> str:
    """Return the addition to the prompt of a run: for a child also its name and its budget."""
    if agent.parent is None:
        return note
    told = _template("child.md").substitute(
        depth=agent.depth,
        knows=KNOWS["all" if agent.run.record.history else "none"],
        budget=str(agent.run.account.budget) or "no bounds",
        levels=agent.run.account.budget.depth,
        scope=f"\nKeep to this: {agent.choices.scope}. Change nothing outside it." if agent.choices.scope else "",
    )
    return f"{note}\n\n{told.strip()}".strip()


def summary_prompt(conversation: str, *, words: int, keep: str) -> str:
    """Return the prompt for summarising a conversation. Args: keep: what the user wants kept above all; may be empty."""
    above_all = f"\nAbove all, keep what the user asks for: {keep}" if keep else ""
    return _template("summary.md").substitute(conversation=conversation, words=words, keep=above_all)


def _spawning(agent: TreeAgent) -> str:
    text = (
        f"\n- You can start child agents with task; {agent.shared.config.subagents.max_concurrent} work at the same time. "
        "Code can start them too, with values in and out: help(agent.task)."
    )
    models = ", ".join(agent.shared.config.models.names)
    text += f"\n- Models for children, by the argument `model` of task: {models}." if models else ""
    types = agent.rights.startable.values()
    lines = "".join(f"\n  - {agent_type.name}: {one_line(agent_type.description, 400)}" for agent_type in types)
    return f"{text}\n- Types of child agents, for the argument `agent` of task:{lines}" if lines else text


@functools.cache
def _template(name: str) -> Template:
    return Template(importlib.resources.files("freeact_sub.agents").joinpath("prompts", name).read_text(encoding="utf-8"))
