"""Attributes files to the runs that read, wrote or removed them, and warns if two agents of one root wrote the same file.

What Python writes in a kernel has a certain author. What programs write is found in the workspace afterwards (`changed`) and
is a guess: it goes to the agent whose programs were running. The guess yields to another agent whose own Python wrote the
file at that time, and to a program of a descendant; it counts as certain if the cell names the file.

If programs of two agents ran at the same time, nobody can tell which of them wrote a file that no cell names: it counts for
both, without a warning, which would be wrong for nearly all such files. There is no warning either while another agent's
cell runs: its files are reported when it ends.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Final

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

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """The warnings, including one on written files that other programs obey."""
        return (*self.warnings, *obeyed(self.written))

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
    """A run wrote a file between two times."""

    work: RunFiles
    since_ns: int
    until_ns: int
    certain: bool

    def overlaps(self, other: "Writing") -> bool:
        """Whether both may have happened at the same time."""
        return self.since_ns <= other.until_ns and other.since_ns <= self.until_ns

    def yields_to(self, other: "Writing") -> bool:
        """Whether this is a guess and the other is certain or a descendant's, whose ancestors only wait."""
        better = other.certain or other.work.key.startswith(f"{self.work.key}:")
        return not self.certain and better and self.overlaps(other)


class FileAttribution:
    """Which agent of a root wrote which file."""

    def __init__(self) -> None:
        self._files: dict[str, dict[str, Writing]] = {}
        """The last writing, by name and by the agent's key."""
        self._removed: dict[str, tuple[RunFiles, bool]] = {}
        """By name: the agent that removed it last, and whether that is certain."""
        self._warned_pairs: set[tuple[str, frozenset[str]]] = set()
        self._at_work: Counter[str] = Counter()
        """Running cells, by the agent's key."""

    @contextmanager
    def at_work(self, key: str) -> Iterator[None]:
        """Note during the block that a cell of this agent runs."""
        self._at_work[key] += 1
        try:
            yield
        finally:
            self._at_work[key] -= 1

    def clear(self) -> None:
        """Forget everything, for a new run of the root."""
        self._files.clear()
        self._removed.clear()
        self._warned_pairs.clear()

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

    def note(self, writing: Writing, names: Iterable[str]) -> list[str]:
        """Note what a run wrote, and return a warning for each other agent that wrote the same files."""
        shared: dict[str, tuple[RunFiles, list[str]]] = {}
        for name in names:
            for other in self._note(writing, name):
                shared.setdefault(other.key, (other, []))[1].append(name)
        warnings = []
        for other, files in shared.values():
            text = _warning(files, other.label, writing.work.label)
            other.warn(text)
            writing.work.warn(text)
            warnings.append(text)
        return warnings

    def _note(self, writing: Writing, name: str) -> list[RunFiles]:
        """Note one file, and return the other writers that no warning has named yet."""
        work = writing.work
        if name not in work.written and len(work.written) >= MAX_FILES:
            return []
        known = self._files.get(name, {})
        others = [other for key, other in known.items() if key != work.key]
        if any(writing.yields_to(other) for other in others):
            return []
        work.written[name] = None
        work.removed.pop(name, None)
        found = []
        tell = writing.certain or self._is_alone(work.key)
        for other in others:
            if tell and (other.certain or not other.overlaps(writing)):
                pair = (name, frozenset((work.key, other.work.key)))
                if pair not in self._warned_pairs:
                    self._warned_pairs.add(pair)
                    found.append(other.work)
            elif other.yields_to(writing):
                other.work.written.pop(name, None)
                del known[other.work.key]
        mine = known.get(work.key)
        if (name in self._files or len(self._files) < MAX_SHARED) and (mine is None or writing.certain or not mine.certain):
            known[work.key] = writing
            self._files[name] = known
        return found

    def _is_alone(self, key: str) -> bool:
        """Whether only cells of this agent and of its waiting ancestors run."""
        return not any(count and other != key and not key.startswith(f"{other}:") for other, count in self._at_work.items())


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
    .tool-versions mise.toml Vagrantfile Jenkinsfile .mcp.json mcp.json"""
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
