"""Judges a command that names a folder or a wildcard by the files that are there now; a secret counts as if it were named.

What code makes meanwhile is judged when it is made, by the same rules.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from freeact_sub.approvals.access import judge_read
from freeact_sub.approvals.paths import possible_paths, real_path
from freeact_sub.approvals.policy import Policy, Ruling, strictest, unless_full
from freeact_sub.approvals.rules.patterns import UNKNOWN, WILD

MAX_FILES: Final = 10_000
"""Files to look at before a person is asked instead."""
READ: Final = Ruling(verdict="allow", rule="it is read")


class TooManyError(Exception):
    """A folder or wildcard has more than `MAX_FILES` files."""


def judge_folder(word: str, folder: str, policy: Policy, *, hidden: bool = True) -> Ruling:
    """Judges the reading of all files below the path of a word. Args: hidden: include files with a leading dot."""
    return _judge(word, folder, policy, below=True, hidden=hidden)


def judge_wildcard(word: str, folder: str, policy: Policy) -> Ruling:
    """Judges the reading of the files that a word with a wildcard names."""
    return _judge(word, folder, policy, below=False)


def _judge(word: str, folder: str, policy: Policy, *, below: bool, hidden: bool = True) -> Ruling:
    paths = possible_paths(word, folder, policy.workspace)
    if any(UNKNOWN in path for path in paths):
        return judge_read(f"{word}/{UNKNOWN}" if below else word, folder, policy)
    try:
        starts = [start for path in paths for start in expanded(path)]
        files = (
            (file for start in starts for file in files_below(start, hidden=hidden))
            if below
            else (*starts, *map(real_path, starts))
        )
        return judge_files(files, policy)
    except TooManyError:
        sentence = "it reads files that are too many to look at"
        denied = any(
            rule.verdict == "deny" and rule.pattern.kind == "file" for level in policy.rules.levels for rule in level
        )
        return Ruling(verdict="ask", rule=sentence, lasting=False) if denied else unless_full(sentence, policy)


def judge_files(paths: Iterable[str], policy: Policy) -> Ruling:
    """Judges the reading of all these files."""
    secrets = _Secrets(policy)
    return strictest([READ, *(_read(path, policy) for path in paths if secrets.may_have(path))])


def _read(path: str, policy: Policy) -> Ruling:
    return replace(judge_read(path, "/", policy), part=f"reads {path}")


class _Secrets:
    """Tests quickly whether a rule may match a path."""

    def __init__(self, policy: Policy) -> None:
        self._places = [(re.compile(inside, re.DOTALL), name) for inside, name in _places(policy)]
        self._names: dict[str, re.Pattern[str] | None] = {}

    def may_have(self, path: str) -> bool:
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


def expanded(path: str) -> Iterator[str]:
    """The existing paths that a wildcard matches."""
    found = [""]
    for part in path.split("/")[1:]:
        if WILD not in part:
            found = [f"{place}/{part}" for place in found]
            continue
        form = re.compile("[^/]*".join(map(re.escape, part.split(WILD))), re.DOTALL)
        hidden = part.startswith(".")
        found = [
            f"{place}/{name}"
            for place in found
            for name in _names(place or "/")
            if form.fullmatch(name) and (hidden or not name.startswith("."))
        ]
        if len(found) > MAX_FILES:
            raise TooManyError
    yield from found


def files_below(start: str, *, hidden: bool = True) -> Iterator[str]:
    """All files below a folder, links followed. Args: hidden: include files with a leading dot."""
    todo, seen, left = [start], set[str](), MAX_FILES
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
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (OSError, ValueError):
        return []  # no folder, or one that what is started cannot read either


def _names(folder: str) -> list[str]:
    return [entry.name for entry in _entries(folder)]
