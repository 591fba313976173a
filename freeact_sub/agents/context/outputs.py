"""Replaces old outputs with notes that name the file of the whole output."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart

from freeact_sub.system.safe_files import write_new
from freeact_sub.tools import head_and_tail, output_file

KEPT_CHARS: Final = 160
"""Characters that stay of each output, so that the model recognises it."""
SMALL_CHARS: Final = 600
"""Shorter outputs stay: a note would not be much shorter."""
UNSAVED_CHARS: Final = 400
"""Characters that stay of an output that could not be written to a file."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class OutputFiles:
    """The folder for outputs."""

    folder: Path
    root: Path
    """The folder from which `folder` is reached without following a link."""

    async def without_outputs(self, messages: Sequence[ModelMessage], end: int) -> tuple[list[ModelMessage], int]:
        """Return the messages with notes instead of the long outputs before an index, and the number of notes."""
        shorter, replaced = list(messages), 0
        for index, message in enumerate(messages[:end]):
            if isinstance(message, ModelRequest):
                parts = [await self._shorter(part) if isinstance(part, ToolReturnPart) else part for part in message.parts]
                changed = sum(new is not old for new, old in zip(parts, message.parts, strict=True))
                if changed:
                    shorter[index], replaced = replace(message, parts=parts), replaced + changed
        return shorter, replaced

    async def _shorter(self, part: ToolReturnPart[Any]) -> ToolReturnPart[Any]:
        items = part.content_items(mode="str")
        text = "\n".join(item for item in items if isinstance(item, str))
        others = sum(not isinstance(item, str) for item in items)
        if len(text) <= SMALL_CHARS:
            return replace(part, content=f"{text}\n[{_files(others)} left out]") if others else part
        where = await self._file(part, text)
        if not where:
            return replace(part, content=head_and_tail(text, UNSAVED_CHARS))
        also = f" and {_files(others)}" if others else ""
        note = f"[… {len(text):,} characters of output{also} left out to make room; all of the output is in {where}]"
        return replace(part, content=f"{text[:KEPT_CHARS]}\n{note}")

    async def _file(self, part: ToolReturnPart[Any], text: str) -> str:
        """Return the file with the whole output; empty if it cannot be written."""
        known = part.metadata.get("file") if isinstance(part.metadata, dict) else None
        if isinstance(known, str) and known:
            return known
        file = output_file(self.folder, part.tool_call_id)
        try:
            await asyncio.to_thread(write_new, file, text.encode("utf-8", "backslashreplace"), root=self.root)
        except OSError:
            logger.warning("an output could not be written to %s", file, exc_info=True)
            return ""
        return str(file)


def _files(number: int) -> str:
    return "1 picture or file" if number == 1 else f"{number} pictures or files"
