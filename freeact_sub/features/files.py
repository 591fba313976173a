"""Files of the workspace that Python of a run has read, written and removed (`FilesFeature`).

Kernels report them after their cells (`files`). They are attributed to the runs whose Python wrote them, with a warning if
two agents of one root wrote the same file. A part of a run that is a `HearsUsed` is told of each use.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any, Final, Protocol, runtime_checkable

from freeact_sub.agents.feature import Feature, FeatureAgent, Handler, RunPart
from freeact_sub.agents.life import TreeAgent, tree_agent
from freeact_sub.agents.results import RunResult
from freeact_sub.calls import FileWrite
from freeact_sub.events import Notice
from freeact_sub.system.safe_files import NOT_LOOKED_INTO

MAX_FILES: Final = 1000
"""Files of each kind that are kept for one run, because code in a kernel can report anything."""
MAX_SHARED: Final = 20_000
"""Files that are kept for all agents of a root."""
MAX_WARNINGS: Final = 20
SHOWN: Final = 5
MAX_PATH_CHARS: Final = 4096
__all__ = ["FilesFeature", "FilesPart", "HearsUsed", "RunFiles"]


@dataclass(kw_only=True, eq=False)
class RunFiles:
    """The files of one run, relative to the workspace and in the order in which they were reported."""

    key: str
    """The agent's key, which shows its ancestors."""
    label: str
    read: dict[str, None] = field(default_factory=dict)
    written: dict[str, None] = field(default_factory=dict)
    removed: dict[str, None] = field(default_factory=dict)
    """Files and folders that existed before the run."""
    warnings: list[str] = field(default_factory=list)
    """Sentences for the parent."""

    def undo(self, gone: Collection[str]) -> set[str]:
        """Forget writes to these paths and below, because they are gone; return the forgotten names."""
        undone = {name for name in self.written if name in gone or any(str(path) in gone for path in PurePath(name).parents)}
        for name in undone:
            del self.written[name]
        return undone

    def remove(self, names: Collection[str]) -> None:
        """Note removals by the run; files that it had written itself are in neither list."""
        undone = self.undo(frozenset(names))
        for name in names:
            if name not in undone and len(self.removed) < MAX_FILES:
                self.removed[name] = None

    def warn(self, text: str) -> None:
        """Add a warning to the run's result."""
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(text)


@dataclass(kw_only=True, eq=False)
class FileAttribution:
    """The writers of files in one run of a root, by agent."""

    _files: dict[str, dict[str, RunFiles]] = field(default_factory=dict)
    """The runs whose Python wrote a file, by its name and by the agent's key."""
    _warned_pairs: set[tuple[str, frozenset[str]]] = field(default_factory=set)

    def note(self, work: RunFiles, names: Iterable[str]) -> list[str]:
        """Note files that Python wrote in a run's kernel; return a warning for each agent whose Python wrote them too."""
        shared: dict[str, tuple[RunFiles, list[str]]] = {}
        for name in names:
            for key, other in self._files.get(name, {}).items():
                pair = (name, frozenset((work.key, key)))
                if key != work.key and pair not in self._warned_pairs:
                    self._warned_pairs.add(pair)
                    shared.setdefault(key, (other, []))[1].append(name)
            self._note(work, name)
        warnings = []
        for theirs, files in shared.values():
            text = _warning(files, theirs.label, work.label)
            theirs.warn(text)
            work.warn(text)
            warnings.append(text)
        return warnings

    def _note(self, work: RunFiles, name: str) -> None:
        if name not in work.written and len(work.written) >= MAX_FILES:
            return
        work.written[name] = None
        work.removed.pop(name, None)
        known = self._files.get(name, {})
        if known or len(self._files) < MAX_SHARED:
            self._files[name] = {**known, work.key: work}


def _warning(files: list[str], one: str, other: str) -> str:
    more = f" and {len(files) - SHOWN:,} more" if len(files) > SHOWN else ""
    return f"{one} and {other} have both written {', '.join(files[:SHOWN])}{more}: one may have undone the other's work"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES: Final = _words(
    """.envrc .env Makefile makefile GNUmakefile *.mk Justfile justfile Taskfile.y*ml Rakefile CMakeLists.txt package.json
    .npmrc .yarnrc* Cargo.toml build.rs build.gradle* pom.xml Gemfile composer.json Dockerfile* pyproject.toml setup.py
    setup.cfg conftest.py noxfile.py tox.ini tasks.py sitecustomize.py usercustomize.py *.pth .pre-commit-config.yaml
    .gitmodules .gitattributes .gitlab-ci.yml docker-compose*.y*ml compose*.y*ml .bashrc .bash_profile .profile .zshrc
    .tool-versions mise.toml Vagrantfile Jenkinsfile .mcp.json mcp.json AGENTS.md AGENTS.override.md CLAUDE.md
    CLAUDE.local.md GEMINI.md"""
)
FOLDERS: Final = _words(".github .vscode .idea .husky .devcontainer .circleci .claude .cursor .git .venv")
"""Folders in which every file counts."""


def obeyed(written: Collection[str]) -> tuple[str, ...]:
    """Return a sentence for people, if there are files that other programs run or obey when a person uses the folder.

    Args:
        written: Names relative to the workspace.
    """
    found = [name for name in written if _is_obeyed(PurePath(name))]
    if not found:
        return ()
    more = f" and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
    return (
        f"other programs run or obey what was written: {', '.join(found[:SHOWN])}{more}: look at it before you use them",
    )


def _is_obeyed(path: PurePath) -> bool:
    return any(fnmatchcase(path.name, name) for name in NAMES) or any(part in FOLDERS for part in path.parts[:-1])


@runtime_checkable
class HearsUsed(Protocol):
    """A part of a run that hears of used files."""

    def used(self, agent: TreeAgent, names: Sequence[str]) -> None:
        """Note files that code of an agent or a node has used, and folders with a `/` behind them."""


class FileReports:
    """The reports of one kernel about files in the workspace, for the run to which its code belongs."""

    def __init__(self, agent: TreeAgent) -> None:
        self._agent = agent

    def note(self, params: Mapping[str, Any], files: RunFiles, writers: FileAttribution) -> None:
        """Note a report. Args: files: those of the run. writers: those of all runs."""
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
    """The uses of files in one tree of agents."""

    def __init__(self) -> None:
        self._attribution = FileAttribution()

    def run(self, agent: FeatureAgent) -> RunPart:
        """Make the part; a run of the root begins a new account of the writers."""
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
