"""Which files of the workspace a run has read, written and removed, and which agent wrote which (`attribution.py`).

Kernels report them after their cells (`reports.py`). A part of a run that is a `HearsUsed` is told of each use.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from freeact_sub.agents.feature import Feature, Handler, RunPart
from freeact_sub.agents.ports import UsedKernel
from freeact_sub.agents.runs.results import RunResult
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.features.files.attribution import FileAttribution, RunFiles, obeyed
from freeact_sub.features.files.reports import FileReports, HearsUsed

__all__ = ["Files", "FilesOfRun", "HearsUsed", "RunFiles"]


class FilesOfRun(RunPart):
    """The files of one run."""

    def __init__(self, agent: TreeAgent, attribution: FileAttribution) -> None:
        self.files, self.attribution = RunFiles(key=agent.key, label=agent.label), attribution
        self.looking: set[asyncio.Task[None]] = set()
        """Searches for what programs wrote."""

    async def closing(self, ending: RunResult, kernel: UsedKernel) -> None:
        """Wait until all reports are processed."""
        del ending, kernel
        if self.looking:
            await asyncio.wait(self.looking)

    def facts(self, ending: RunResult) -> RunResult:
        """Name the files, and warn of those that other programs obey."""
        files = self.files
        other: Sequence[str] = obeyed(files.written) if files.written else ()
        return replace(
            ending,
            files_read=tuple(files.read),
            files_written=tuple(files.written),
            files_removed=tuple(files.removed),
            warnings=(*files.warnings, *other, *ending.warnings),
        )


class Files(Feature):
    """See the module."""

    def __init__(self) -> None:
        self._attribution = FileAttribution()

    def run(self, agent: TreeAgent) -> RunPart:
        """A run of the root begins a new account of who wrote what."""
        if agent.parent is None:
            self._attribution = FileAttribution()
        return FilesOfRun(agent, self._attribution)

    def requests(self, agent: TreeAgent) -> Mapping[str, Handler]:
        """A kernel reports what its code has used."""

        async def files(params: Mapping[str, Any], _clock: Any) -> None:
            for part in agent.run.features.all(FilesOfRun):
                await reports.note(params, part.files, part.attribution, part.looking)

        reports = FileReports(agent)
        return {"files": files}
