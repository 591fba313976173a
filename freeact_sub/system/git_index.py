"""Reads the list of a repository's tracked files (gitformat-index(5), versions 2 and 3)."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from freeact_sub.system.safe_files import read_file

MAX_BYTES: Final = 50_000_000
SUBMODULE: Final = 0o160000
FOLDER: Final = 0o040000
EXTENDED: Final = 0x4000
HEADER_BYTES: Final = 12
MODE_AT: Final = 24
FLAGS_AT: Final = 60
NAME_AT: Final = 62


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
