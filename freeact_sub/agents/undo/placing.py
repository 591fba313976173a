"""Makes, changes and removes entries of a workspace, while an agent's code may be changing it.

So a place is reached folder by folder without following links, and a link at the end is replaced. Nothing is ever open to
more people than it is to be in the end: files are made for their owner alone and get their mode before their name.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from freeact_sub.agents.undo.entries import ROOT, FileChange, folders_above

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FOR_OWNER: Final = 0o700
PERMISSIONS: Final = 0o777
"""Of a file. One that is written again never gets the rights of its owner or group for whoever runs it."""


def removed(root: Path, change: FileChange) -> bool:
    """Remove an entry that goes or becomes another kind; return whether it worked. A folder in use may stay."""
    try:
        with _around(root, change.path) as (at, name):
            if not stat.S_ISDIR(change.before):
                os.unlink(name, dir_fd=at)
                return True
            try:
                os.rmdir(name, dir_fd=at)
            except OSError as error:
                return error.errno in (errno.ENOENT, errno.ENOTEMPTY) and not change.mode
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return True


def was_made(root: Path, change: FileChange) -> bool:
    """Make a folder for its owner alone, or a FIFO; return whether it worked. Sockets and devices cannot be made again."""
    try:
        with _around(root, change.path) as (at, name):
            if stat.S_ISDIR(change.mode):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, FOR_OWNER, dir_fd=at)
            elif stat.S_ISFIFO(change.mode):
                os.mkfifo(name, 0o600, dir_fd=at)
                _set_mode(at, name, change.mode)
            else:
                return False
    except (OSError, ValueError):
        return False
    return True


def was_put(root: Path, change: FileChange, content: bytes) -> bool:
    """Write a file or a link; return whether it worked."""
    try:
        with _around(root, change.path) as (at, name):
            new = f".{name[:100]}.{secrets.token_hex(4)}"
            try:
                if stat.S_ISLNK(change.mode):
                    os.symlink(content, os.fsencode(new), dir_fd=at)
                else:
                    _write(at, new, content, change.mode)
                os.rename(new, name, src_dir_fd=at, dst_dir_fd=at)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(new, dir_fd=at)
                raise
    except (OSError, ValueError):
        return False
    return True


def _write(at: int, new: str, content: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(new, flags, 0o600, dir_fd=at), "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode & PERMISSIONS)


def has_mode(root: Path, path: str, mode: int) -> bool:
    """Give an entry of this kind its permission bits; return whether it has them."""
    try:
        with _around(root, path) as (at, name):
            return _set_mode(at, name, mode)
    except (OSError, ValueError):
        return False


def opened_up(root: Path, paths: Iterable[str]) -> dict[str, int]:
    """Let the owner into the folders above paths, and nobody else. Return the modes that were changed."""
    closed = {}
    for path in sorted({ROOT}.union(*map(folders_above, paths)), key=_depth):
        with contextlib.suppress(OSError, ValueError), _around(root, path) as (at, name):
            mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode) and mode & FOR_OWNER != FOR_OWNER:
                _set_mode(at, name, mode | FOR_OWNER)
                closed[path] = mode
    return closed


def closed_again(root: Path, modes: Mapping[str, int]) -> set[str]:
    """Give folders their modes, those in a folder before the folder. Return which do not have them."""
    return {path for path in sorted(modes, key=_depth, reverse=True) if not has_mode(root, path, modes[path])}


def _depth(path: str) -> int:
    return -1 if path == ROOT else path.count("/")


def _set_mode(at: int, name: str, mode: int) -> bool:
    """Set the permission bits of an entry, which is no link. Return whether it is of this kind, and has all of them."""
    given = stat.S_IMODE(mode) if stat.S_ISDIR(mode) else mode & PERMISSIONS
    if hasattr(os, "O_PATH"):
        entry = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)  # opens what nobody may read, too
        try:
            if stat.S_IFMT(os.fstat(entry).st_mode) != stat.S_IFMT(mode):
                return False
            os.chmod(f"/proc/self/fd/{entry}", given)  # noqa: PTH101
        finally:
            os.close(entry)
    else:
        os.chmod(name, given, dir_fd=at, follow_symlinks=False)
    return given == stat.S_IMODE(mode)


@contextmanager
def _around(root: Path, path: str) -> Iterator[tuple[int, str]]:
    """Open the folder of an entry without following a link below the workspace; with the entry's name in it."""
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if path != ROOT else os.open(root.parent, FOLDER)
    *folders, name = path.split("/") if path != ROOT else (root.name,)
    try:
        for folder in folders:
            inner = os.open(folder, FOLDER, dir_fd=at)
            os.close(at)
            at = inner
        yield at, name
    finally:
        os.close(at)
