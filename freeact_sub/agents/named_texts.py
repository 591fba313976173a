"""Texts with names in a conversation: what features let a model read, and what is known again later.

Such a text is a `TextContent` of pydantic-ai, whose metadata names it. So it is known by what put it there and not by its
words, is never there twice, and stays when the rest is summarised (`features/compaction.py`). A name that ends with `/` is
that of a folder.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, TextContent, UserPromptPart

KEY: Final = "freeact_text"


def named_text(name: str, text: str) -> TextContent:
    """Return a text as a part of a prompt."""
    return TextContent(text, metadata={KEY: name})


def name_in(part: Any) -> str:
    """Return the name of the text that a part of a prompt is; empty if it is none."""
    metadata = part.metadata if isinstance(part, TextContent) else None
    name = metadata.get(KEY) if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def is_folder(name: str) -> bool:
    """Whether a text is about a folder: it is there again when the folder is used again."""
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
    """Whether a part of a message holds named texts and nothing else."""
    content = part.content if isinstance(part, UserPromptPart) else ""
    return not isinstance(content, str) and all(map(name_in, content))
