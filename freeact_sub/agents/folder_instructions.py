"""Shows a model the instructions of a folder (its AGENTS.md or CLAUDE.md) when a cell first uses a file there.

The nearest folder above the file counts. Only what `load_config` has read counts, so nothing that code writes becomes an
instruction in the same program.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from freeact_sub.agents.loaded_texts import LoadedTexts, is_folder, named_text
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.config.instruction_files import MAX_CHARS, instructions_by_folder
from freeact_sub.events import Notice

MAX_FOLDERS: Final = 50
"""Folders in one conversation, and `MAX_CHARS` of their texts; others are only named, then left out."""
FOR: Final = (
    "You use files in {folder}/: these instructions are for them, and count more than those for the whole project.\n\n"
)
NO_ROOM: Final = (
    "You use files in {folder}/. That folder has instructions of its own, for which this conversation has no room: read its "
    "AGENTS.md or CLAUDE.md before you go on there."
)


@dataclass
class FolderInstructions:
    """Follows the files that cells of one agent use."""

    _agent: TreeAgent
    _texts: LoadedTexts

    @functools.cached_property
    def _by_folder(self) -> dict[str, str]:
        config = self._agent.shared.config
        return instructions_by_folder(config.instruction_contents, config.workspace)

    def used(self, names: Iterable[str]) -> None:
        """Note used files. Args: names: relative to the workspace; with a `/` behind it, of a folder."""
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
