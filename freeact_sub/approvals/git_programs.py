"""What git would start in a work tree: read from the settings and attributes there as they are now.

Filters, textconv and external diffs have names of their own, so a kernel's environment cannot switch them off. The files are
read here as git reads them; nothing is started for it. What cannot be read counts as if it named a program.
The list of tracked files is gitformat-index(5), versions 2 and 3.
"""

import os
import struct
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from freeact_sub.approvals.paths import is_within, may_look, possible_paths
from freeact_sub.approvals.rules.patterns import UNKNOWN
from freeact_sub.system.git_settings import files_of_user, named_path, pointed_folder, settings_of, text_of
from freeact_sub.system.safe_files import read_file

MAX_BYTES: Final = 50_000_000
SUBMODULE: Final = 0o160000
FOLDER: Final = 0o040000
EXTENDED: Final = 0x4000
HEADER_BYTES: Final = 12
MODE_AT: Final = 24
FLAGS_AT: Final = 60
NAME_AT: Final = 62

FILTERS: Final = ("clean", "smudge", "process")
"""Settings that name a program for files with an attribute."""
OTHERS: Final = {
    ("diff", "external"): "",
    ("diff", "command"): "",  # the driver `default` needs no attribute
    ("diff", "textconv"): "",
    ("diff", "submodule"): "diff",
    ("attr", "tree"): "",
    ("extensions", "objectformat"): "sha256",
}
"""Settings that name a program for all files, or hide something from this look, and the value that does; empty: any."""
SHOWING: Final = frozenset({"filter", "diff"})
"""The sections for what shows files of the work tree."""
MAX_REPOSITORIES: Final = 100
"""A repository with its submodules and what is around it."""
LOOK_SECONDS: Final = 3.0
"""Bound on one look; a person is asked instead."""
ATTRIBUTES: Final = ".gitattributes"


class StartsProgramError(Exception):
    """git may start a program here; says why."""


def tracked_files(folder: str, workspace: Path, sections: AbstractSet[str], operands: Sequence[str]) -> list[str]:
    """The paths of the tracked files, if a command of git starts no program.

    Args:
        folder: Where git runs: absolute, or relative to the workspace.
        workspace: The agent's workspace.
        sections: The settings that count: `filter` where git looks at the work tree, `diff` where it shows patches.
        operands: The words that may be paths: outside of the work tree they are compared, without a repository.

    Raises:
        StartsProgramError: git may start a program there.
    """
    start = possible_paths("", folder, workspace)[-1]
    around = () if UNKNOWN in start or not may_look() else (start, *map(str, Path(start).parents))
    trees = deque(tree for tree in around if os.path.lexists(f"{tree}/.git") or os.path.isdir(f"{tree}/objects"))
    if not trees:
        raise StartsProgramError("no repository is seen there")
    paths = [path for word in operands for path in possible_paths(word, folder, workspace)]
    if sections >= SHOWING and not all(is_within(path, Path(trees[0])) for path in paths):
        raise StartsProgramError("it may read what is outside of the work tree")
    files, until = list[str](), time.monotonic() + LOOK_SECONDS
    for _ in range(MAX_REPOSITORIES):
        if not trees:
            return files
        tree = trees.popleft()
        for path, is_submodule in _look_at(tree, sections, until):
            if not is_submodule:
                files.append(f"{tree}/{path}")
            elif os.path.lexists(f"{tree}/{path}/.git"):
                trees.append(os.path.realpath(f"{tree}/{path}"))
    raise StartsProgramError("there are too many submodules to check")


def _look_at(tree: str, sections: AbstractSet[str], until: float) -> list[tuple[str, bool]]:
    """The paths in the index of one repository, each with whether it is a submodule."""
    pointer = f"{tree}/.git"
    named = pointed_folder(pointer) if os.path.lexists(pointer) else tree
    folder = os.path.realpath(named)
    common = os.path.realpath(os.path.join(folder, (text_of(f"{folder}/commondir") or "").rstrip("\r\n")))
    if not named or not os.path.isdir(f"{common}/objects"):
        raise StartsProgramError(f"{pointer} is not understood")
    attributes = [f"{common}/info/attributes", *files_of_user("attributes")]
    drivers: list[str] = []
    for path, section, name, value in _settings(f"{common}/config", f"{folder}/config.worktree", until=until):
        if (section, name) == ("core", "attributesfile"):
            attributes.append(named_path(value, tree))
        if (section, name) == ("core", "worktree") and os.path.realpath(os.path.join(folder, value)) != tree:
            raise StartsProgramError(f"core.worktree in {path} names another folder")
        if section == "filter" and section in sections and name in FILTERS:
            drivers.append(f"{section}.*.{name} in {path} names a program")
        if (section != "diff" or section in sections) and OTHERS.get((section, name)) in ("", value.lower()):
            raise StartsProgramError(f"{section}.{name} is set in {path}")
    try:
        entries = read_index(f"{folder}/index")
    except (OSError, ValueError) as error:
        raise StartsProgramError(f"the index of {tree} cannot be read: {error}") from error
    if drivers and (place := _named_by(attributes, tree, dict(entries), until)):
        raise StartsProgramError(f"{drivers[0]}, {place} for which files")
    return entries


def _settings(*paths: str, until: float) -> Iterator[tuple[str, str, str, str]]:
    """Each setting of the files and of the user, with the file that it stands in."""
    for path, settings in settings_of(*paths, *files_of_user("config")):
        _check_time(until)
        if settings is None:
            raise StartsProgramError(f"{path} cannot be read")
        for setting in settings:
            yield path, *setting


def _named_by(attributes: Iterable[str], tree: str, entries: dict[str, bool], until: float) -> str:
    """The first file with attributes that may name a driver; empty: none does."""
    folders = {""}
    for path in entries:
        while (path := path.rpartition("/")[0]) not in folders:
            folders.add(path)
    inner = [f"{folder}/{ATTRIBUTES}".lstrip("/") for folder in folders]
    missing = (name for name in inner if name in entries and not os.path.lexists(f"{tree}/{name}"))
    if name := next(missing, ""):
        return f"the {name} in the index"  # which git reads where there is none in the work tree
    for file in (*attributes, *(f"{tree}/{name}" for name in inner)):
        _check_time(until)
        text = text_of(file)
        if text is None or "filter=" in text or "diff=" in text:
            return file
    return ""


def _check_time(until: float) -> None:
    if time.monotonic() > until:
        raise StartsProgramError("there are too many files to check")


def read_index(path: str) -> list[tuple[str, bool]]:
    """The paths of an index, each with whether it is a submodule; none if there is no index.

    Raises:
        ValueError: It has another form: names that are shortened, folders in place of files, parts in another file.
        OSError: It cannot be read.
    """
    try:
        content = read_file(Path(path), MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return []
    try:
        return list(_entries(content))
    except struct.error as error:
        raise ValueError("it is damaged") from error


def _entries(content: bytes) -> Iterator[tuple[str, bool]]:
    signature, version, count = struct.unpack_from(">4sII", content)
    if signature != b"DIRC" or version not in (2, 3):
        raise ValueError("its format is not supported")
    at = HEADER_BYTES
    for _ in range(count):
        (mode,) = struct.unpack_from(">I", content, at + MODE_AT)
        (flags,) = struct.unpack_from(">H", content, at + FLAGS_AT)
        start = at + NAME_AT + (2 if flags & EXTENDED else 0)
        end = content.index(b"\0", start)
        if mode == FOLDER:
            raise ValueError("it lists folders instead of files")
        yield os.fsdecode(content[start:end]), mode == SUBMODULE
        at += (end - at + 8) & ~7
    while at + 8 <= len(content) - 20:
        kind, size = struct.unpack_from(">4sI", content, at)
        if kind == b"link":
            raise ValueError("parts of it are in another file")
        at += 8 + size
