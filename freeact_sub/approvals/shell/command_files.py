"""Judges the files that a command may open: those of its words, its wildcards and its folders."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Final, TypeAlias

from freeact_sub.approvals.access import (
    MAX_FILES,
    FileRules,
    TooManyError,
    denies_files,
    expanded,
    judge_files,
    judge_folder,
    judge_read,
    may_look,
    possible_paths,
    too_many,
    with_home,
)
from freeact_sub.approvals.git_files import UnknownFilesError, tracked_files
from freeact_sub.approvals.patterns import UNKNOWN, WILD
from freeact_sub.approvals.policy import Policy, Ruling
from freeact_sub.approvals.shell.folder_readers import (
    entered,
    leaves_folders,
    of_module,
    read_words,
    reads_folders,
    reads_here,
    reads_lists,
    shows_tracked,
    skips_hidden,
)
from freeact_sub.approvals.shell.script import SimpleCommand
from freeact_sub.approvals.shell.words import names

OPEN_NOTHING: Final = names("echo printf true false : cd seq sleep exit return basename dirname")
"""Shell builtins that do not open the files that their arguments name."""
ONLY_NAME: Final = names("ls stat du df find tree realpath readlink")
"""Programs that do not read the content of the files that a wildcard finds."""
EDITORS: Final = names("sed gsed ssed ed red ex vi vim nvim view")
"""Programs whose commands have letters of which a file's name follows at once: `rFILE`, `$wFILE`, `s/a/b/wFILE`."""
MAX_WILDCARDS: Final = 20
"""Words with wildcards of a command before a person is asked instead."""
MAX_LETTERS: Final = 40
"""Letters of a word with options after which a file's name may begin."""
MAX_NAMES: Final = 2_000
"""Names of files to look for in a command; with more, one of them may be any file."""
Found: TypeAlias = Mapping[str, dict[str, list[str]] | None]
"""By folder that a command starts in, the names that each of its words with a wildcard finds there. None: too many."""
_MARKS: Final = re.compile(r"[=:,@'\"()\s<>!{}\[\]|;&^`]")
_TEXT: Final = re.compile(r"[\s'\"()]")


def about_files(command: SimpleCommand, found: Found, policy: Policy) -> Iterator[Ruling]:
    """Judges what a command reads.

    Args:
        command: The command.
        found: What its wildcards find; empty if they are replaced by it.
        policy: The agent's policy.
    """
    program = command.words[0].rpartition("/")[2].lower()  # some disks do not distinguish capitals
    if program in OPEN_NOTHING:
        return
    words = of_module((program, *command.words[1:]))
    for folder in command.folders:
        there = found.get(folder, {}) if program not in ONLY_NAME else {}
        if there is None:
            yield too_many(policy)
            return  # what they name as folders are too many as well
        yield from _about_names(words, folder, there, policy)
    if reads_lists(words):  # where a rule only asks, a person's own rule for the program has said yes
        yield judge_read(UNKNOWN, "", replace(policy, mode="full"))
    places = [joined(start, inner) for start in command.folders for inner in ("", *entered(words))]
    if reads_folders(words):
        inside = [name for word in read_words(words) for name in _names_in(word) if name and not name.startswith("-")]
        yield from _about_folders(words, inside, _existing(words, places, policy), places, policy)
    elif denies_files(policy):
        denying = replace(policy, mode="full")  # what only asks does not count for programs that may not read at all
        inside = [name for word in words[1:] if not _TEXT.search(word) for name in _names_in(word)]
        folders = () if leaves_folders(words) else _about_folders(words, inside, (), places, denying)
        tracked = _about_tracked(places, denying) if shows_tracked(words) else ()
        yield from (_as_possible(ruling) for ruling in (*folders, *tracked))


def what_is_found(command: SimpleCommand, policy: Policy) -> Found:
    """What the wildcards of a command find."""
    bases = {folder: possible_paths("", folder, policy.workspace)[-1] for folder in command.folders}
    return {folder: _found(command.words, base) for folder, base in bases.items()}


def with_options_found(command: SimpleCommand, found: Found) -> Iterator[SimpleCommand]:
    """The command with the files that its wildcards find, where the name of one may be an option: `-r`, `@list`, `+cmd`."""
    for folder, there in found.items():
        words = tuple(name for word in command.words for name in (there or {}).get(word) or [word])
        if any(word.startswith(("-", "@", "+")) for word in set(words).difference(command.words)):
            words = words if len(words) <= MAX_NAMES else (words[0], UNKNOWN)
            yield replace(command, words=words, folders=(folder,))


def _found(words: tuple[str, ...], base: str) -> dict[str, list[str]] | None:
    """The names that each word with a wildcard finds in a folder. None: more than a decision may take the time for."""
    wild = [word for word in words if WILD in word and UNKNOWN not in word + base]
    if len(wild) > MAX_WILDCARDS:
        return None
    try:
        found = {word: sorted(expanded(with_home(word), base)) for word in dict.fromkeys(wild)}
    except TooManyError:
        return None
    return found if sum(len(found[word]) for word in wild) <= MAX_FILES else None


def _about_names(words: tuple[str, ...], folder: str, there: dict[str, list[str]], policy: Policy) -> Iterator[Ruling]:
    rules = FileRules(policy)
    written = [word if UNKNOWN in word else word.replace(WILD, "*") for word in words[1:]]
    # who names hidden files may mean one that is not there yet
    written += [word for word in there if word.rpartition("/")[2].startswith(".")]
    found = dict.fromkeys(name for word in written for name in _names_in(word) if name)
    if words[0] in EDITORS:
        found |= dict.fromkeys(name for word in words[1:] for name in re.findall(r"(?=[rRwWe+]([^\s;}]+))", word))
    most = [*found][:MAX_NAMES] + [UNKNOWN] * (len(found) > MAX_NAMES)
    for name in dict.fromkeys((*most, *(name for word in chain(*there.values()) for name in _names_in(word) if name))):
        paths = possible_paths(name, folder, policy.workspace)
        if any(UNKNOWN in path or WILD in path or rules.may_be_about(path) for path in paths):
            yield judge_read(name, folder, policy)


def _about_folders(
    words: tuple[str, ...], inside: list[str], named: tuple[str, ...], places: list[str], policy: Policy
) -> Iterator[Ruling]:
    """Judges the folders among the names in a command's words, and the one that it starts in if it reads that."""
    is_place = os.path.lexists if words[0] == "git" else os.path.isdir
    has_place = may_look() and any(is_place(path) for name in inside for path in _paths(name, places, policy))
    here = ["."] if reads_here(words, named, has_place=has_place) else []
    hidden = not skips_hidden(words)
    yield from (
        judge_folder(name, place, policy, hidden=hidden)
        for name in dict.fromkeys((*inside[:MAX_NAMES], *here))
        for place in places
        if name
    )


def _about_tracked(folders: list[str], policy: Policy) -> Iterator[Ruling]:
    for folder in folders:
        try:
            yield judge_files(tracked_files(folder, policy.workspace), policy)
        except UnknownFilesError as error:
            yield Ruling(verdict="ask", rule=f"which files git shows is not known: {error}", lasting=False)


def _as_possible(ruling: Ruling) -> Ruling:
    """Of what a program may read: a denial asks."""
    possible = replace(ruling, verdict="ask", rule=f"it may read what is denied: {ruling.rule}", lasting=False)
    return possible if ruling.verdict == "deny" else ruling


def _existing(words: tuple[str, ...], folders: list[str], policy: Policy) -> tuple[str, ...]:
    """The first word that is no option, and those after it that are paths of files which are there."""
    first, *others = [word for word in words[1:] if not word.startswith("-")] or [""]
    return (first, *(word for word in others if may_look() and any(map(os.path.lexists, _paths(word, folders, policy)))))


def _paths(name: str, folders: list[str], policy: Policy) -> list[str]:
    return [path for folder in folders for path in possible_paths(name, folder, policy.workspace)] if name else []


def _names_in(word: str) -> Iterator[str]:
    """The possible file names in a word: after an option's letters, `=`, `:`, `,` or `@`, or in quotes."""
    yield word
    if not _MARKS.search(word) and not word.startswith("-"):
        return
    for mark in "=:,@":
        yield word.rpartition(mark)[2]
        yield word.partition(mark)[2]
    yield from _MARKS.split(word)
    if word.startswith("-") and not word.startswith("--"):
        yield from (word[at:] for at in range(2, min(len(word), MAX_LETTERS)))


def joined(cwd: str, folder: str) -> str:
    """A folder relative to another, either of which may be empty or unknown."""
    if not folder:
        return cwd
    return f"{cwd}/{folder}" if cwd and folder[:1] not in ("/", "~", UNKNOWN) else folder
