"""Handles `files`: a kernel reports used files after a cell that used some."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final, Protocol, runtime_checkable

from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.calls import FileWrite
from freeact_sub.events import Notice
from freeact_sub.features.files.attribution import MAX_FILES, FileAttribution, RunFiles
from freeact_sub.system.work_folders import NOT_LOOKED_INTO

MAX_PATH_CHARS: Final = 4096


@runtime_checkable
class HearsUsed(Protocol):
    """A part of a run that hears of used files."""

    def used(self, agent: TreeAgent, names: Sequence[str]) -> None:
        """Code of an agent or a node has used files, and folders with a `/` behind them."""


class FileReports:
    """Notes the reports of one kernel about files in the workspace, for the run to which its code belongs."""

    def __init__(self, agent: TreeAgent) -> None:
        self._agent = agent

    def note(self, params: Mapping[str, Any], files: RunFiles, writers: FileAttribution) -> None:
        """Note a report. Args: files: Of the run. writers: Of all runs."""
        for name in self._names(params.get("read")):
            if len(files.read) < MAX_FILES and not NOT_LOOKED_INTO.intersection(PurePath(name).parts[:-1]):
                files.read[name] = None
        written = self._names(params.get("written"))
        for name in written:
            path = str(self._agent.shared.config.workspace / name)
            self._agent.run.features.did(self._agent, FileWrite(path=path))
        for warning in writers.note(files, written):
            self._agent.emitter.put(Notice(content=warning))
        files.undo(frozenset(self._names(params.get("undone"))))
        files.remove(self._names(params.get("removed")))
        self._used([*self._names(params.get("read")), *written, *(f"{name}/" for name in self._names(params.get("named")))])

    def _used(self, names: Sequence[str]) -> None:
        for part in self._agent.run.features.all(HearsUsed):  # type: ignore[type-abstract]  # it only calls isinstance
            part.used(self._agent, names)

    def _names(self, paths: Any) -> list[str]:
        return list(_within(self._agent.shared.config.workspace, paths)) if isinstance(paths, list) else []


def _within(workspace: Path, paths: list[Any]) -> Iterator[str]:
    """Return the paths in the workspace, relative to it. Only names are compared; no file is touched."""
    for path in paths[:MAX_FILES]:
        if isinstance(path, str) and len(path) <= MAX_PATH_CHARS:
            whole = Path(os.path.normpath(workspace / path))
            if workspace in whole.parents:
                yield str(whole.relative_to(workspace))
