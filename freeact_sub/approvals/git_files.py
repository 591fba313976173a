"""The files that git tracks in a folder, read from its index; nothing is started for it.

The list is gitformat-index(5), versions 2 and 3.
"""

import os
import struct
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from freeact_sub.approvals.access import may_look, possible_paths
from freeact_sub.approvals.patterns import UNKNOWN
from freeact_sub.system.git_settings import pointed_folder
from freeact_sub.system.safe_files import read_file

MAX_BYTES: Final = 50_000_000
SUBMODULE: Final = 0o160000
FOLDER: Final = 0o040000
EXTENDED: Final = 0x4000
HEADER_BYTES: Final = 12
MODE_AT: Final = 24
FLAGS_AT: Final = 60
NAME_AT: Final = 62
MAX_REPOSITORIES: Final = 100
"""Maximum number of repositories: one with its submodules, and those around it."""
LOOK_SECONDS: Final = 3.0
"""Bound on one look; a person is asked instead."""


class UnknownFilesError(Exception):
    """Unknown tracked files; the message says why."""


def tracked_files(folder: str, workspace: Path) -> list[str]:
    """Return the paths of the tracked files of the repositories around a folder, with those of their submodules.

    Args:
        folder: Git's folder: absolute, or relative to the workspace.
        workspace: The agent's workspace.

    Raises:
        UnknownFilesError: They cannot be found out.
    """
    start = possible_paths("", folder, workspace)[-1]
    if UNKNOWN in start or not may_look():
        raise UnknownFilesError("its folder is known only when it runs")
    around = (start, *map(str, Path(start).parents))
    trees = deque(tree for tree in around if os.path.lexists(f"{tree}/.git") or os.path.isdir(f"{tree}/objects"))
    if not trees:
        raise UnknownFilesError("no repository is seen there")
    files, until = list[str](), time.monotonic() + LOOK_SECONDS
    for _ in range(MAX_REPOSITORIES):
        if not trees:
            return files
        if time.monotonic() > until:
            raise UnknownFilesError("there are too many files to check")
        tree = trees.popleft()
        for path, is_submodule in _index_of(tree):
            if not is_submodule:
                files.append(f"{tree}/{path}")
            elif os.path.lexists(f"{tree}/{path}/.git"):
                trees.append(os.path.realpath(f"{tree}/{path}"))
    raise UnknownFilesError("there are too many submodules to check")


def _index_of(tree: str) -> list[tuple[str, bool]]:
    pointer = f"{tree}/.git"
    named = pointed_folder(pointer) if os.path.lexists(pointer) else tree
    if not named:
        raise UnknownFilesError(f"{pointer} is not understood")
    try:
        return read_index(f"{os.path.realpath(named)}/index")
    except (OSError, ValueError) as error:
        raise UnknownFilesError(f"the index of {tree} cannot be read: {error}") from error


def read_index(path: str) -> list[tuple[str, bool]]:
    """Return the paths of an index, each with whether it is a submodule; none if there is no index.

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
