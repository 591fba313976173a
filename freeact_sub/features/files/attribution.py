"""Attributes files to the runs that read, wrote or removed them, and warns if two agents of one root wrote the same file.

What Python writes in a kernel has a certain author. What programs write is found in the workspace after their cell
(`changed_files`), by the time of its last change (ctime, which the system sets and no program can set back). So nothing is
remembered in advance, and a cell that starts no program costs nothing. A file that has changed since they began counts for
their run, unless another agent's Python or a descendant has written it since. Programs of siblings that run at the same time
cannot be told apart: what they write counts for each of them, without a warning.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Final

from freeact_sub.system.work_folders import work_folders

MAX_FILES: Final = 1000
"""Files of each kind that are kept for one run, because code in a kernel can report anything."""
MAX_SHARED: Final = 20_000
"""Files that are kept for all agents of a root."""
MAX_WARNINGS: Final = 20
SHOWN: Final = 5


@dataclass(kw_only=True, eq=False)
class RunFiles:
    """The files of one run, relative to the workspace and in the order in which they were reported."""

    key: str
    """The agent's key, which shows its ancestors."""
    label: str
    """The agent's name for people."""
    read: dict[str, None] = field(default_factory=dict)
    written: dict[str, None] = field(default_factory=dict)
    removed: dict[str, None] = field(default_factory=dict)
    """Files and folders that existed before the run."""
    warnings: list[str] = field(default_factory=list)
    """One sentence each, for the parent."""

    def undo(self, gone: Collection[str]) -> set[str]:
        """Forget that the run wrote these paths or anything below them, because they are gone; return what was forgotten."""
        undone = {name for name in self.written if name in gone or any(str(path) in gone for path in PurePath(name).parents)}
        for name in undone:
            del self.written[name]
        return undone

    def warn(self, text: str) -> None:
        """Add a warning to the run's result."""
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(text)


@dataclass(frozen=True, kw_only=True)
class Writing:
    """A run wrote a file, and nobody is known to have changed it later."""

    work: RunFiles
    known_ns: int
    """When it was reported or found."""
    by_python: bool


@dataclass(kw_only=True, eq=False)
class FileAttribution:
    """The writers of files in one run of a root, by agent."""

    _files: dict[str, dict[str, Writing]] = field(default_factory=dict)
    """The last writing, by name and by the agent's key."""
    _removed: dict[str, tuple[RunFiles, bool]] = field(default_factory=dict)
    """By name: the agent that removed it last, and whether that is certain."""
    _warned_pairs: set[tuple[str, frozenset[str]]] = field(default_factory=set)

    def note_removed(self, work: RunFiles, names: Collection[str], *, certain: bool) -> None:
        """Note what a run removed, or (not certain) what disappeared while its programs ran."""
        undone = work.undo(frozenset(names))
        for name in names:
            other, other_certain = self._removed.get(name, (work, certain))
            if name in undone or len(work.removed) >= MAX_FILES or (other is not work and not certain):
                continue
            if other is not work and not other_certain:
                other.removed.pop(name, None)
            work.removed[name] = None
            if len(self._removed) < MAX_SHARED:
                self._removed[name] = work, certain

    def note(self, work: RunFiles, names: Iterable[str], at_ns: int) -> list[str]:
        """Note what Python wrote in a run's kernel, and return a warning for each agent whose Python wrote them too."""
        shared: dict[str, tuple[RunFiles, list[str]]] = {}
        for name in names:
            for other in self._others(work, name):
                pair = (name, frozenset((work.key, other.work.key)))
                if other.by_python and pair not in self._warned_pairs:
                    self._warned_pairs.add(pair)
                    shared.setdefault(other.work.key, (other.work, []))[1].append(name)
            self._note(Writing(work=work, known_ns=at_ns, by_python=True), name)
        warnings = []
        for theirs, files in shared.values():
            text = _warning(files, theirs.label, work.label)
            theirs.warn(text)
            work.warn(text)
            warnings.append(text)
        return warnings

    def note_found(self, work: RunFiles, found: Mapping[str, int], at_ns: int) -> None:
        """Note what has changed while a run had programs. Args: found: the last change of each file, in ns."""
        for name, changed in found.items():
            known = [other for other in self._others(work, name) if changed <= other.known_ns]
            if name not in work.written and not any(
                other.by_python or other.work.key.startswith(f"{work.key}:") for other in known
            ):
                self._note(Writing(work=work, known_ns=at_ns, by_python=False), name)

    def _others(self, work: RunFiles, name: str) -> list[Writing]:
        return [writing for key, writing in self._files.get(name, {}).items() if key != work.key]

    def _note(self, writing: Writing, name: str) -> None:
        work = writing.work
        if name not in work.written and len(work.written) >= MAX_FILES:
            return
        work.written[name] = None
        work.removed.pop(name, None)
        known = self._files.get(name, {})
        if known or len(self._files) < MAX_SHARED:
            self._files[name] = {**known, work.key: writing}


def _warning(files: list[str], one: str, other: str) -> str:
    more = f" and {len(files) - SHOWN:,} more" if len(files) > SHOWN else ""
    return f"{one} and {other} have both written {', '.join(files[:SHOWN])}{more}: one may have undone the other's work"


CLOCK_STEP_NS: Final = 20_000_000
"""File times come from a coarse clock, which may lag by this much."""


def changed_files(workspace: Path, since_ns: int) -> dict[str, int]:
    """Return the regular files changed since a time, by name relative to the workspace, each with its last change in ns.

    Sorted by name. Blocks for at most about 0.2 s, see `work_folders`.

    File times may lag by `CLOCK_STEP_NS`: begin that much earlier to miss none.
    """
    return dict(
        sorted(
            (f"{folder}{entry.name}", changed)
            for folder, entries in work_folders(workspace)
            for entry in entries
            if entry.is_file(follow_symlinks=False) and (changed := _changed(entry)) >= since_ns
        )
    )


def _changed(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_ctime_ns
    except OSError:
        return 0


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
"""Everything in these folders counts."""


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
