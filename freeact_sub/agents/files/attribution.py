"""Which files runs have read, written and removed, and which were written by two agents of one root.

Of what Python writes in a kernel it is certain who did it. What programs write is found in the workspace afterwards
(`changes`), and is a guess: it goes to the agent whose programs were at work. The guess gives way where another agent's
own Python has written the file in that time, or a program of an agent below; it counts as certain where the cell names
the file.

Where programs of two agents were at work side by side, nobody can tell which of them wrote a file that no cell names:
both are said to have written it, and there is no warning, which would be wrong for nearly all such files. Nor is there one
while a cell of another agent runs: what that has written is told of when it ends.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from freeact_sub.agents.files.obeyed import obeyed

MAX_FILES: Final = 1000
"""Kept of one run, of each kind; code in a kernel can say whatever it likes."""
MAX_SHARED: Final = 20_000
"""Kept of all agents of a root."""
MAX_WARNINGS: Final = 20
SHOWN: Final = 5


@dataclass(kw_only=True, eq=False)
class RunFiles:
    """What one run has done to files in the workspace; names are relative to it, in the order in which they were told of."""

    key: str
    """The agent's, which shows the chain above it."""
    label: str
    """The agent, as people see it."""
    read: dict[str, None] = field(default_factory=dict)
    written: dict[str, None] = field(default_factory=dict)
    removed: dict[str, None] = field(default_factory=dict)
    """What was there before the run; folders too."""
    warnings: list[str] = field(default_factory=list)
    """What the parent should know, one sentence each."""

    @property
    def told(self) -> tuple[str, ...]:
        """The warnings, and which of the files that were written other programs obey."""
        return (*self.warnings, *obeyed(self.written))

    def undo(self, gone: Collection[str]) -> set[str]:
        """These are gone: what the run has written of them, or below them, is as if it had never been; returns it."""
        undone = {name for name in self.written if name in gone or any(str(path) in gone for path in PurePath(name).parents)}
        for name in undone:
            del self.written[name]
        return undone

    def warn(self, text: str) -> None:
        """Keep it for the run's result."""
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(text)


@dataclass(frozen=True, kw_only=True)
class Writing:
    """Some files were written by a run, between two times."""

    work: RunFiles
    since_ns: int
    until_ns: int
    certain: bool

    def overlaps(self, other: "Writing") -> bool:
        """Both may have been at work at the same time."""
        return self.since_ns <= other.until_ns and other.since_ns <= self.until_ns

    def yields_to(self, other: "Writing") -> bool:
        """It is a guess, and the other is not, or is that of an agent below: whoever waits for a child does nothing."""
        better = other.certain or other.work.key.startswith(f"{self.work.key}:")
        return not self.certain and better and self.overlaps(other)


class FileAttribution:
    """Who has written which file, of all agents of one root."""

    def __init__(self) -> None:
        self._files: dict[str, dict[str, Writing]] = {}
        """By name, then by the agent's key: the last writing."""
        self._removed: dict[str, tuple[RunFiles, bool]] = {}
        """By name: who has removed it last, and whether that is certain."""
        self._told: set[tuple[str, frozenset[str]]] = set()
        self._at_work: Counter[str] = Counter()
        """Cells that run now, by the agent's key."""

    @contextmanager
    def at_work(self, key: str) -> Iterator[None]:
        """A cell of the agent with this key runs."""
        self._at_work[key] += 1
        try:
            yield
        finally:
            self._at_work[key] -= 1

    def clear(self) -> None:
        """A run of the root begins."""
        self._files.clear()
        self._removed.clear()
        self._told.clear()

    def note_removed(self, work: RunFiles, names: Collection[str], *, certain: bool) -> None:
        """Keep what a run has removed, or (not certain) what has gone while its programs were at work."""
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
        """Keep it, in the run's work too; returns a warning for each other agent that has written the same files."""
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
        """Keep one file; returns who has written it as well and was not told of."""
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
                if pair not in self._told:
                    self._told.add(pair)
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
        """No cell runs but of this agent, and of those above it, which wait for it."""
        return not any(count and other != key and not key.startswith(f"{other}:") for other, count in self._at_work.items())


def _warning(files: list[str], one: str, other: str) -> str:
    more = f" and {len(files) - SHOWN:,} more" if len(files) > SHOWN else ""
    return f"{one} and {other} have both written {', '.join(files[:SHOWN])}{more}: one may have undone the other's work"
