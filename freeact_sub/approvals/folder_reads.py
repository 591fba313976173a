"""Judges a command that names a folder or a wildcard by the files that are there now; a secret counts as if it were named.

What code makes meanwhile is judged when it is made, by the same rules.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from freeact_sub.approvals.access import judge_read
from freeact_sub.approvals.paths import may_look, possible_paths, real_path
from freeact_sub.approvals.policy import Policy, Ruling, strictest, unless_full
from freeact_sub.approvals.rules.patterns import UNKNOWN, WILD

MAX_FILES: Final = 10_000
"""Files to look at before a person is asked instead."""
READ: Final = Ruling(verdict="allow", rule="it is read")


class TooManyError(Exception):
    """A folder or wildcard has more than `MAX_FILES` files, or nobody may look."""


def judge_folder(word: str, folder: str, policy: Policy, *, hidden: bool = True) -> Ruling:
    """Judges the reading of all files below the path of a word. Args: hidden: include files with a leading dot."""
    paths = possible_paths(word, folder, policy.workspace)
    if any(UNKNOWN in path for path in paths):
        return judge_read(f"{word}/{UNKNOWN}", folder, policy)
    try:
        starts = [start for path in paths for start in expanded(path, "/")]
        return judge_files(files_below(*starts, hidden=hidden), policy)
    except TooManyError:
        return too_many(policy)


def too_many(policy: Policy) -> Ruling:
    """Asks about files that nobody looks at; in `full` only where one may be denied."""
    sentence = "it reads files that are too many to look at"
    return Ruling(verdict="ask", rule=sentence, lasting=False) if denies_files(policy) else unless_full(sentence, policy)


def denies_files(policy: Policy) -> bool:
    """Whether a rule denies files by their names."""
    return any(rule.verdict == "deny" and rule.pattern.kind == "file" for level in policy.rules.levels for rule in level)


def judge_files(paths: Iterable[str], policy: Policy) -> Ruling:
    """Judges the reading of all these files."""
    rules = FileRules(policy)
    return strictest([READ, *(_read(path, policy) for path in paths if rules.may_be_about(path))])


def _read(path: str, policy: Policy) -> Ruling:
    return replace(judge_read(path, "/", policy), part=f"reads {path}")


class FileRules:
    """The rules that ask about files or deny them, as a quick test of a path."""

    def __init__(self, policy: Policy) -> None:
        self._places = [(re.compile(inside, re.DOTALL), name) for inside, name in _places(policy)]
        self._names: dict[str, re.Pattern[str] | None] = {}

    def may_be_about(self, path: str) -> bool:
        """Args: path: absolute, and known."""
        place, slash, name = path.rpartition("/")
        if place not in self._names:
            forms = [f"(?:{form})" for inside, form in self._places if inside.fullmatch(place + slash)]
            self._names[place] = re.compile("|".join(forms), re.DOTALL) if forms else None
        form = self._names[place]
        return form is not None and form.fullmatch(name) is not None


def _places(policy: Policy) -> Iterator[tuple[str, str]]:
    """Expressions for the folders and the names of the files that a rule matches."""
    for level in policy.rules.levels:
        for rule in level:
            if rule.pattern.kind == "file" and rule.verdict != "allow":
                yield from rule.pattern.places(policy.workspace)


def expanded(word: str, folder: str) -> Iterator[str]:
    """The words that a shell makes now of a word with wildcards: the paths that match, as they are written in a folder.

    Raises:
        TooManyError: They are more than `MAX_FILES`.
    """
    first, *parts = word.split("/")
    start = "" if word.startswith("/") else f"{folder}/"
    found = [first] if WILD not in first else _bounded(_matching(first, folder))
    for part in parts:
        inner = ((place, _matching(part, f"{start}{place}/") if WILD in part else [part]) for place in found)
        found = _bounded(f"{place}/{name}" for place, names in inner for name in names)
    yield from found


def _bounded(paths: Iterable[str]) -> list[str]:
    found = list(islice(paths, MAX_FILES + 1))
    if len(found) > MAX_FILES:
        raise TooManyError
    return found


def _matching(part: str, folder: str) -> Iterator[str]:
    form, hidden = re.compile("[^/]*".join(map(re.escape, part.split(WILD))), re.DOTALL), part.startswith(".")
    names = (entry.name for entry in _entries(folder))
    return (name for name in names if form.fullmatch(name) and (hidden or not name.startswith(".")))


def files_below(*starts: str, hidden: bool = True) -> Iterator[str]:
    """All files below folders, links followed. Args: hidden: include files with a leading dot."""
    todo, seen, left = list(starts), set[str](), MAX_FILES
    while todo:
        path = real_path(todo.pop())
        if path in seen:
            continue
        seen.add(path)
        files: list[str] = []
        for entry in _entries(path):
            if not hidden and entry.name.startswith("."):
                continue
            (todo if _is_folder(entry) else files).append(entry.path)
            if entry.is_symlink():
                files.append(real_path(entry.path))
        left -= len(files) + 1
        if left < 0:
            raise TooManyError
        yield from files


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link that leads to itself


def _entries(folder: str) -> list[os.DirEntry[str]]:
    if not may_look():
        raise TooManyError
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (OSError, ValueError):
        return []  # no folder, or one that what is started cannot read either
