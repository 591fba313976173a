"""Handles `files`: a kernel reports used files after a cell that used some or started programs."""

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final, Protocol, runtime_checkable

from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.calls import FileWrite
from freeact_sub.events import Notice
from freeact_sub.features.files.attribution import CLOCK_STEP_NS, MAX_FILES, FileAttribution, RunFiles, changed_files
from freeact_sub.system.work_folders import NOT_LOOKED_INTO

MAX_PATH_CHARS: Final = 4096
MAX_TIMES: Final = 100
"""Times in which programs of one cell ran."""
MAX_LOOKING: Final = 2
"""Searches that may run at once. Each is for one cell, and a model takes longer to write the next cell."""


@runtime_checkable
class HearsUsed(Protocol):
    """A part of a run that hears of used files."""

    def used(self, agent: TreeAgent, names: Sequence[str]) -> None:
        """Code of an agent or a node has used files, and folders with a `/` behind them."""


class FileReports:
    """Notes the reports of one kernel about files in the workspace, for the run to which its code belongs."""

    def __init__(self, agent: TreeAgent) -> None:
        self._agent, self._searches = agent, 0

    async def note(
        self,
        params: Mapping[str, Any],
        files: RunFiles,
        writers: FileAttribution,
        looking: set[asyncio.Task[None]],
        outside: Sequence[int] = (),
    ) -> None:
        """Note a report.

        Args:
            params: The report.
            files: Of the run.
            writers: Of all runs.
            looking: Where the search is put that it may start.
            outside: When commands outside of the kernel began, in ns.
        """
        now = time.time_ns()
        for name in self._names(params.get("read")):
            if len(files.read) < MAX_FILES and not NOT_LOOKED_INTO.intersection(PurePath(name).parts[:-1]):
                files.read[name] = None
        written = self._names(params.get("written"))
        for name in written:
            path = str(self._agent.shared.config.workspace / name)
            self._agent.run.features.did(self._agent, FileWrite(path=path))
        for warning in writers.note(files, written, now):
            self._agent.emitter.put(Notice(content=warning))
        files.undo(frozenset(self._names(params.get("undone"))))
        writers.note_removed(files, self._names(params.get("removed")), certain=True)
        writers.note_removed(files, self._names(params.get("gone")), certain=False)
        self._used([*self._names(params.get("read")), *written, *(f"{name}/" for name in self._names(params.get("named")))])
        times = [*self._times(params.get("programs"), now), *((begin, now) for begin in outside)]
        if times and self._searches < MAX_LOOKING:
            self._searches += 1
            search = asyncio.create_task(self._look(files, writers, times, now))
            looking.add(search)
            search.add_done_callback(looking.discard)

    async def _look(self, files: RunFiles, writers: FileAttribution, times: Sequence[tuple[int, int]], until: int) -> None:
        """Find what programs wrote. Args: times: when they ran. Only the last change of a file is known."""
        since = min(begin for begin, _ in times)
        try:
            changed = await asyncio.to_thread(changed_files, self._agent.shared.config.workspace, since - CLOCK_STEP_NS)
        finally:
            self._searches -= 1
        found = {name: at for name, at in changed.items() if any(begin - CLOCK_STEP_NS <= at <= end for begin, end in times)}
        writers.note_found(files, found, until)
        self._used([name for name in found if name in files.written])

    def _used(self, names: Sequence[str]) -> None:
        for part in self._agent.run.features.all(HearsUsed):  # type: ignore[type-abstract]  # it only calls isinstance
            part.used(self._agent, names)

    def _names(self, paths: Any) -> list[str]:
        return list(_within(self._agent.shared.config.workspace, paths)) if isinstance(paths, list) else []

    def _times(self, reported: Any, now: int) -> list[tuple[int, int]]:
        """Return when programs ran, according to the kernel."""
        pairs = (
            [pair for pair in reported[:MAX_TIMES] if isinstance(pair, list) and len(pair) == 2]
            if isinstance(reported, list)
            else []
        )
        return [(self._time(begin, now), self._time(end, now) if end else now) for begin, end in pairs]

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
