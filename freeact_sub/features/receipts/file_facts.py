"""Facts about the files of a run at its end: their digests, and whether the files that its answer names exist."""

import asyncio
import hashlib
import os
import re
import stat
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from freeact_sub.events.receipts import FileReceipt
from freeact_sub.features.files.attribution import RunFiles
from freeact_sub.kernels.files.places import READ, around
from freeact_sub.kernels.workspaces.own_files import opened_workspace
from freeact_sub.system.work_folders import work_folders

MAX_FILES: Final = 50
"""Files read, and files written, that get a receipt."""
MAX_BYTES: Final = 32 << 20
"""A larger file has no digest."""
MAX_SECONDS: Final = 0.3
"""Files that are not read within this time have no digest."""
MAX_NAMES: Final = 20
ANSWER_CHARS: Final = 100_000
"""Characters of an answer in which names are looked for."""
WORD_CHARS: Final = 500
"""A longer word is no name; the pattern takes a time that grows with its square."""
SUFFIXES: Final = frozenset(
    """bib bmp bz2 c cfg conf cpp css csv doc docx feather gif gz h h5 hdf5 html ini ipynb jpeg jpg json jsonl md mp3 mp4
    npy npz odt parquet pdf pickle pkl png ppt pptx ps1 py rs rst sh sql sqlite svg tar tex tif tiff toml ts tsv txt wav
    webp xls xlsx xml yaml yml zip""".split()  # noqa: SIM905  # a list of words
)
"""Ends of names that are files. Not among them: what is often the name of a function, an attribute or a product."""
_NAME: Final = re.compile(
    r"(?<![\w*?{}<>$@%\\./~+-])"  # not the end of a pattern, a template or an address
    r"(?P<name>(?:\.{0,2}/)?[\w.+-]+(?:/[\w.+-]+)*\.(?P<suffix>[A-Za-z][A-Za-z0-9]{0,7}))"
    r"(?![\w(*?{<$@/\\-]|\.\w)"
)


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """The facts about the files of one run."""

    read: tuple[FileReceipt, ...] = ()
    written: tuple[FileReceipt, ...] = ()
    left_out: int = 0
    """Files that are in neither list."""
    missing: tuple[str, ...] = ()
    """The files that the answer names, if none of them exists."""


async def file_facts(files: RunFiles, answer: str, workspace: Path) -> FileFacts:
    """Look at the files of a run, for about half a second at most. Args: answer: may name files."""
    names = named_files(answer)
    if not (names or files.read or files.written):
        return FileFacts()
    return await asyncio.to_thread(_look, files, names, workspace)


def _look(files: RunFiles, names: Collection[str], workspace: Path) -> FileFacts:
    deadline = time.monotonic() + MAX_SECONDS
    read, written = [*files.read], [*files.written]
    try:
        with opened_workspace(workspace) as root:
            receipts = {name: _receipt(name, root, deadline) for name in [*written[:MAX_FILES], *read[:MAX_FILES]]}
        missing = missing_files(names, workspace, {*files.read, *files.written, *files.removed})
    except OSError:  # the workspace is gone; the answer is not
        return FileFacts()
    return FileFacts(
        written=tuple(receipts[name] for name in written[:MAX_FILES]),
        read=tuple(receipts[name] for name in read[:MAX_FILES]),
        left_out=len(read[MAX_FILES:]) + len(written[MAX_FILES:]),
        missing=missing,
    )


def named_files(text: str) -> tuple[str, ...]:
    """The file names in a text, by their form alone: letters, digits and slashes that end in the suffix of a file."""
    found: dict[str, None] = {}
    for word in text[:ANSWER_CHARS].split():
        if "://" in word or len(word) > WORD_CHARS:
            continue
        for match in _NAME.finditer(word):
            if match["suffix"].lower() in SUFFIXES and len(found) < MAX_NAMES:
                found[match["name"]] = None
    return tuple(found)


def missing_files(names: Collection[str], workspace: Path, known: Collection[str]) -> tuple[str, ...]:
    """All these names, if none of them is a file in the workspace; otherwise none.

    A path outside the workspace may be a file that only the kernel sees. So it counts as one that exists.

    Args:
        names: As an answer has them.
        workspace: The folder.
        known: Files that the run has used or removed, relative to the workspace.
    """
    if not names or any(_is_there(name, workspace) for name in names):
        return ()
    wanted = {PurePosixPath(name).name for name in names}
    if wanted & {PurePosixPath(name).name for name in known} or wanted & _all_names(workspace):
        return ()  # an answer need not name the folder
    return tuple(names)


def _is_there(name: str, workspace: Path) -> bool:
    path = os.path.realpath(workspace / name)
    return not path.startswith(f"{os.path.realpath(workspace)}/") or os.path.lexists(path)


def _all_names(workspace: Path) -> set[str]:
    return {entry.name for _, entries in work_folders(workspace) for entry in entries}


def _receipt(name: str, root: int, deadline: float) -> FileReceipt:
    if time.monotonic() > deadline:
        return FileReceipt(path=name)
    try:
        # an opener, because a descriptor of a folder would stay open
        with (
            around(root, name) as (folder, last),
            open(last, "rb", opener=lambda at, _: os.open(at, READ, dir_fd=folder)) as file,
        ):
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
                return FileReceipt(path=name)
            return FileReceipt(path=name, sha256=hashlib.file_digest(file, "sha256").hexdigest(), size=found.st_size)
    except (OSError, ValueError):
        return FileReceipt(path=name)
