"""Handles `files`: a kernel reports used files after a cell that used some or started programs."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, Final

from freeact_sub.agents.attribution import CLOCK_STEP_NS, MAX_FILES, changed_files
from freeact_sub.agents.hooks import note_action
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.calls import FileWrite
from freeact_sub.events import Notice
from freeact_sub.kernels import CellClock
from freeact_sub.system.work_folders import NOT_LOOKED_INTO

MAX_PATH_CHARS: Final = 4096
MAX_LOOKING: Final = 2
"""Searches that may run at once. Each is for one cell, and a model takes longer to write the next cell."""


class FileRequests:
    """Notes the files of an agent's run that lie in the workspace."""

    def __init__(self, agent: TreeAgent, on_used: Callable[[Iterable[str]], None]) -> None:
        """Args: on_used: called with what the agent has used: files, and folders with a `/` behind them."""
        self._agent, self._used = agent, on_used
        self._looking: set[asyncio.Task[None]] = set()
        self.handlers = {"files": self._files}

    async def settle(self) -> None:
        """Wait until all reports are processed."""
        if self._looking:
            await asyncio.wait(self._looking)

    async def _files(self, params: Mapping[str, Any], _clock: CellClock | None) -> None:
        files, now = self._agent.run.files, time.time_ns()
        for name in self._names(params.get("read")):
            if len(files.read) < MAX_FILES and not NOT_LOOKED_INTO.intersection(PurePath(name).parts[:-1]):
                files.read[name] = None
        writers = self._agent.shared.file_attribution
        written = self._names(params.get("written"))
        for name in written:
            note_action(self._agent, FileWrite(path=str(self._agent.shared.config.workspace / name)))
        for warning in writers.note(files, written, now):
            self._agent.emitter.put(Notice(content=warning))
        files.undo(frozenset(self._names(params.get("undone"))))
        writers.note_removed(files, self._names(params.get("removed")), certain=True)
        writers.note_removed(files, self._names(params.get("gone")), certain=False)
        self._used([*self._names(params.get("read")), *written, *(f"{name}/" for name in self._names(params.get("named")))])
        if params.get("programs") is not None and len(self._looking) < MAX_LOOKING:
            looking = asyncio.create_task(self._look(self._time(params["programs"], now), now))
            self._looking.add(looking)
            looking.add_done_callback(self._looking.discard)

    async def _look(self, since: int, until: int) -> None:
        """Find what programs wrote. Only the last change of a file is known."""
        work, workspace = self._agent.run.files, self._agent.shared.config.workspace
        changed = await asyncio.to_thread(changed_files, workspace, since - CLOCK_STEP_NS)
        found = {name: at for name, at in changed.items() if at <= until}
        self._agent.shared.file_attribution.note_found(work, found, until)
        self._used([name for name in found if name in work.written])

    def _names(self, paths: Any) -> list[str]:
        return list(_within(self._agent.shared.config.workspace, paths)) if isinstance(paths, list) else []

    def _time(self, reported: Any, now: int) -> int:
        """Return when it began, according to the kernel, but not before the run."""
        earliest = now - int(self._agent.run.age * 1e9)
        return min(max(reported, earliest), now) if isinstance(reported, int) else earliest


def _within(workspace: Path, paths: list[Any]) -> Iterator[str]:
    """Return the paths in the workspace, relative to it. Only names are compared; no file is touched."""
    for path in paths[:MAX_FILES]:
        if isinstance(path, str) and len(path) <= MAX_PATH_CHARS:
            whole = Path(os.path.normpath(workspace / path))
            if workspace in whole.parents:
                yield str(whole.relative_to(workspace))
