"""Compares a branch's copy of the workspace with its original.

The copy was written by code of a model and may hold anything: it is walked from folder to folder without following a link,
and what is not a file, link or folder is left out. What stood in the workspace when the copy was made is known by stamps.
"""

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from freeact_sub.errors import FreeactError
from freeact_sub.kernels.workspaces.layer import MAX_DEPTH, OPAQUE, opened

MAX_ENTRIES: Final = 200_000
"""Files and folders of a workspace, or of a copy."""
RIGHTS: Final = 0o777
"""The permissions of a folder that are compared, and taken over."""


class Stamp(NamedTuple):
    """The state of a file, a link or a folder at one time; of a folder, only its permissions, which are in `kind`."""

    kind: int
    number: int = 0
    size: int = 0
    modified: int = 0
    changed: int = 0

    @property
    def is_folder(self) -> bool:
        """Whether it was a folder."""
        return stat.S_ISDIR(self.kind)


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Paths relative to the workspace, sorted; a folder that is empty, or has other permissions, ends with a slash."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Whether a path is never taken over: settings of freeact and git, and anything but files, links and folders."""
    touched: tuple[str, ...] = field(default=(), compare=False)
    """In a layer: files whose content and permissions are the same, and perhaps not their owner, attributes or times."""

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths that a promotion would write or delete."""
        return (*self.added, *self.changed, *self.deleted)


@dataclass(kw_only=True)
class Found:
    """Return the contents of a copy."""

    entries: dict[str, Stamp] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    """Folders that the copy replaces whole, and paths that are gone."""
    special: set[str] = field(default_factory=set)


def stamp_of(found: os.stat_result) -> Stamp:
    """See `Stamp`."""
    if stat.S_ISDIR(found.st_mode):
        return Stamp(stat.S_IFDIR | found.st_mode & RIGHTS)
    return Stamp(stat.S_IFMT(found.st_mode), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def stamps(folder: int) -> dict[str, Stamp]:
    """All files, links and folders in a folder, by relative path.

    Raises:
        FreeactError: There are too many.
    """
    found = Found()
    _walk(folder, "", found, depth=0)
    return found.entries


def found_in(folder: int) -> Found:
    """Return the changes in an overlay."""
    found = Found()
    _walk(folder, "", found, depth=0)
    return found


def difference(before: Mapping[str, Stamp], found: Found, *, is_layer: bool) -> tuple[set[str], set[str], set[str]]:
    """Return what was added, perhaps changed, and deleted.

    Args:
        before: The files of the workspace.
        found: The files of the copy.
        is_layer: The copy holds only what differs from the workspace.
    """
    here = found.entries
    if is_layer:
        gone = {path for path in before if path not in here and any(above in found.hidden for above in _with_above(path))}
        files = {path for path, stamp in here.items() if not stamp.is_folder}
        gone |= {path for path in before if path not in here and any(above in files for above in _above(path))}
    else:
        gone = {path for path in before if path not in here}
    gone |= {path for path, stamp in here.items() if path in before and before[path].is_folder is not stamp.is_folder}
    full = {above for path in here for above in _above(path)}
    added, changed = set[str](), set[str]()
    for path, stamp in here.items():
        if stamp.is_folder:
            if path in before and before[path].is_folder:
                if stamp != before[path]:
                    changed.add(f"{path}/")
            elif path not in full:
                added.add(f"{path}/")
        elif path not in before or before[path].is_folder:
            added.add(path)
        else:
            changed.add(path)
    return added, changed, {path for path in gone if not (path in before and before[path].is_folder and path in full)}


def _walk(folder: int, prefix: str, found: Found, depth: int) -> None:
    for name in sorted(os.listdir(folder)):
        path = f"{prefix}{name}"
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # it has just been removed, or replaced
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
                found.hidden.add(path)
                continue
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                found.special.add(path)
                continue
            if len(found.entries) >= MAX_ENTRIES or depth > MAX_DEPTH:
                raise FreeactError(
                    f"the workspace has more than {MAX_ENTRIES:,} files, or folders more than {MAX_DEPTH} deep"
                )
            found.entries[path] = stamp_of(status)
            if stat.S_ISDIR(status.st_mode):
                try:
                    with opened(folder, name) as inner:
                        if _is_opaque(inner):
                            found.hidden.add(path)
                        _walk(inner, f"{path}/", found, depth + 1)
                except PermissionError:
                    found.special.add(path)


def _is_opaque(folder: int) -> bool:
    try:
        return os.getxattr(f"/proc/self/fd/{folder}", OPAQUE) == b"y"
    except OSError:
        return False


def _above(path: str) -> Iterator[str]:
    while (end := path.rfind("/")) > 0:
        path = path[:end]
        yield path


def _with_above(path: str) -> Iterator[str]:
    yield path
    yield from _above(path)
