"""Reaches entries of a workspace while an agent's code may be changing it: folder by folder, without following a link."""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Final

from freeact_sub.kernels.files.layer import FOLDER, pour

NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
PERMISSIONS: Final = 0o777
"""Permissions of a file that are kept. One that is written again never gets the set-id bits of its owner or group."""


@contextmanager
def around(root: int, path: str) -> Iterator[tuple[int, str]]:
    """Open the folder of an entry; yield it with the entry's name. Raises: OSError: There is none."""
    folder = open_below(root, path)
    try:
        yield folder, path.rsplit("/", 1)[-1]
    finally:
        os.close(folder)


@contextmanager
def opened_workspace(path: Path) -> Iterator[int]:
    """Open a workspace, which may be named by a link. Raises: OSError: There is none."""
    descriptor = os.open(path, FOLDER & ~os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def opened_file(folder: int, name: str) -> BufferedReader:
    """Open a file in a folder, to read it; never waits for a pipe. Raises: OSError: There is none, or a link."""
    return open(name, "rb", opener=lambda name, _: os.open(name, READ, dir_fd=folder))


def open_below(root: int, path: str) -> int:
    """Open the folder of a path, reached without a link.

    Raises:
        OSError: There is none.
    """
    at = os.dup(root)
    for name in path.split("/")[:-1]:
        try:
            inner = os.open(name, FOLDER, dir_fd=at)
        finally:
            os.close(at)
        at = inner
    return at


def found_at(root: int, path: str) -> os.stat_result | None:
    """Return an entry, if one can be reached without a link."""
    with contextlib.suppress(OSError, ValueError), around(root, path) as (folder, name):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    return None


def mode_of(root: int, path: str) -> int:
    """Return kind and permission bits of an entry. 0: there is none that can be reached without a link."""
    found = found_at(root, path)
    return 0 if found is None else found.st_mode


def set_mode(root: int, path: str, mode: int) -> bool:
    """Set the permission bits of an entry, which is no link. Return whether it is of this kind, and has all of them.

    Raises:
        OSError: They cannot be set.
    """
    given = stat.S_IMODE(mode) if stat.S_ISDIR(mode) else mode & PERMISSIONS
    with around(root, path) as (folder, name):
        has_name = hasattr(os, "O_PATH") and os.path.isdir("/proc/self/fd")  # also of what nobody may read
        if not has_name and os.chmod in os.supports_follow_symlinks:
            os.chmod(name, given, dir_fd=folder, follow_symlinks=False)
            return given == stat.S_IMODE(mode)
        how = os.O_PATH if has_name else os.O_RDONLY | os.O_NONBLOCK
        entry = os.open(name, how | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            if stat.S_IFMT(os.fstat(entry).st_mode) != stat.S_IFMT(mode):
                return False
            os.chmod(f"/proc/self/fd/{entry}" if has_name else entry, given)
        finally:
            os.close(entry)
    return given == stat.S_IMODE(mode)


def identity_of(folder: int, name: str) -> list[int] | None:
    """Return the identity of a file, link or folder, which changes with it. None: it does not exist."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return [found.st_ino, found.st_mtime_ns]


def move(source: int, name: str, target: int, new: str) -> None:
    """Move an entry from a folder to another one, which may be on another file system."""
    try:
        os.rename(name, new, src_dir_fd=source, dst_dir_fd=target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        aside = f".{new[:100]}.{secrets.token_hex(4)}"
        copy(source, name, target, aside)
        os.rename(aside, new, src_dir_fd=target, dst_dir_fd=target)
        os.unlink(name, dir_fd=source)


def link(source: int, name: str, target: int, new: str) -> None:
    """Give an entry a second name in a folder, or copy it there: the folder may be on another file system."""
    try:
        os.link(name, new, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy(source, name, target, new)


def copy(source: int, name: str, target: int, new: str) -> None:
    """Make a file, a link or a FIFO in another folder. Raises: OSError: It is of another kind."""
    mode = os.stat(name, dir_fd=source, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(name, dir_fd=source), new, dir_fd=target)
        return
    if stat.S_ISFIFO(mode):
        os.mkfifo(new, 0o600, dir_fd=target)
        set_mode(target, new, mode)
        return
    with opened_file(source, name) as reading:
        found = os.fstat(reading.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, f"{name} is not a file")
        with open(new, "wb", opener=lambda new, _: os.open(new, NEW_FILE, 0o600, dir_fd=target)) as writing:
            pour(reading.fileno(), writing.fileno(), found.st_size)
            os.fsync(writing.fileno())  # a full disk may say so only now
            os.fchmod(writing.fileno(), found.st_mode & PERMISSIONS)
