"""Instructions of folders (AGENTS.md or CLAUDE.md) for a model that uses a file there (`InstructionsFeature`).

The instructions of the workspace itself stand in the system prompt (`agents/prompt.py`). Parts of this feature are
`HearsUsed` (`features/files.py`): without `FilesFeature` they hear of none.
"""

from collections.abc import Collection, Iterable
from functools import cached_property
from pathlib import PurePosixPath
from typing import Final

from freeact_sub.agents.feature import Feature, FeatureAgent, RunPart
from freeact_sub.agents.prompt import is_folder, loaded_in, named_text
from freeact_sub.config.project_texts import MAX_CHARS, instructions_by_folder
from freeact_sub.events import Notice

MAX_FOLDERS: Final = 50
"""Folders in one conversation, within `MAX_CHARS` of texts; others are only named, then left out."""
FOR: Final = (
    "You use files in {folder}/: these instructions are for them, and count more than those for the whole project.\n\n"
)
NO_ROOM: Final = (
    "You use files in {folder}/. That folder has instructions of its own, for which this conversation has no room: read its "
    "AGENTS.md or CLAUDE.md before you go on there."
)


class InstructionsPart(RunPart):
    """The instructions of folders in one run.

    The nearest folder above the file counts. Only texts that `load_config` has read count, so code writes no
    instructions for the same program.
    """

    def __init__(self, agent: FeatureAgent, feature: "InstructionsFeature") -> None:
        self._agent, self._feature = agent, feature

    def used(self, agent: FeatureAgent, names: Iterable[str]) -> None:
        """Note files that code has used. Args: names: relative to the workspace; folders end with a `/`."""
        if agent is not self._agent:  # code in a node has no model that could read them
            return
        by_folder = self._feature.by_folder
        needed = dict.fromkeys(filter(None, (_nearest(name, by_folder) for name in names))) if by_folder else {}
        present = loaded_in(self._agent.run.conversation) if needed else {}
        there = {name: text.content for name, text in present.items() if is_folder(name)}
        for folder in needed:
            if f"{folder}/" not in there and len(there) < MAX_FOLDERS:
                text = FOR.format(folder=folder) + by_folder[folder]
                if there and sum(map(len, there.values())) + len(text) > MAX_CHARS:
                    text = NO_ROOM.format(folder=folder)
                if self._agent.run.tell(named_text(f"{folder}/", text)) is not True:
                    return
                there[f"{folder}/"] = text
                self._agent.emitter.put(Notice(content=f"reads the instructions for {folder}/"))


def _nearest(name: str, by_folder: Collection[str]) -> str | None:
    used = PurePosixPath(name)
    folders = (used, *used.parents) if name.endswith("/") else used.parents
    return next((str(above) for above in folders if str(above) in by_folder), None)


class InstructionsFeature(Feature):
    """The instructions of folders in one workspace."""

    @cached_property
    def by_folder(self) -> dict[str, str]:
        """The texts, by folder relative to the workspace."""
        config = self.root.agent.config
        return instructions_by_folder(config.instruction_contents, config.workspace)

    def run(self, agent: FeatureAgent) -> RunPart | None:
        """Hear of the files that a run uses, if there are instructions."""
        return InstructionsPart(agent, self) if agent.config.instruction_files else None
