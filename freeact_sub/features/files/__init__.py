"""`FilesFeature`: knows the files of the workspace that Python of a run has read, written and removed.

Kernels report them after their cells (`reports.py`); `attribution.py` finds files that Python of two agents has written. A
part of a run that is a `HearsUsed` is told of each use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from freeact_sub.agents.feature import Feature, Handler, RunPart
from freeact_sub.agents.requested_call import FeatureAgent
from freeact_sub.agents.runs.results import RunResult
from freeact_sub.agents.tree_agent import TreeAgent, tree_agent
from freeact_sub.features.files.attribution import FileAttribution, RunFiles, obeyed
from freeact_sub.features.files.reports import FileReports, HearsUsed

__all__ = ["FilesFeature", "FilesPart", "HearsUsed", "RunFiles"]


class FilesPart(RunPart):
    """The files of one run."""

    def __init__(self, agent: TreeAgent, attribution: FileAttribution) -> None:
        self.files, self.attribution = RunFiles(key=agent.key, label=agent.label), attribution

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


class FilesFeature(Feature):
    """Knows who used which files, in one tree of agents."""

    def __init__(self) -> None:
        self._attribution = FileAttribution()

    def run(self, agent: FeatureAgent) -> RunPart:
        """Make the part; a run of the root begins a new account of who wrote what."""
        if agent.parent_id is None:
            self._attribution = FileAttribution()
        return FilesPart(tree_agent(agent), self._attribution)

    def requests(self, agent: FeatureAgent) -> Mapping[str, Handler]:
        """Take the reports of a kernel on the files that its code has used."""
        whole = tree_agent(agent)
        reports = FileReports(whole)

        async def files(params: Mapping[str, Any], _clock: Any) -> None:
            for part in whole.run.features.all(FilesPart):
                reports.note(params, part.files, part.attribution)

        return {"files": files}
