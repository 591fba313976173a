"""The content of files in a folder whose files code of a model may change, or replace, at any moment."""

import contextlib
import fcntl
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from freeact_sub.errors import KernelSnapshotError
from freeact_sub.kernels.workspaces.layer import FICLONE, write_all

NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
COPY_BYTES: Final = 4 * 2**20


@contextmanager
def regular(folder: int, name: str) -> Iterator[int]:
    """Opens a regular file to read it; never waits for a pipe."""
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise KernelSnapshotError("the kernel has put something else in place of a file of its snapshot")
        yield handle
    finally:
        os.close(handle)


def copy(source: int, target: int, size: int, given_up: threading.Event) -> None:
    """Copies the content of a file; shares its blocks where the file system can.

    Raises:
        KernelSnapshotError: It is not of this size, or nobody waits for it any more.
        OSError: There is no room.
    """
    with contextlib.suppress(OSError):
        fcntl.ioctl(target, FICLONE, source)
        return
    for data in pieces(source, size, given_up):
        write_all(target, data)


def pieces(handle: int, size: int, given_up: threading.Event) -> Iterator[bytes]:
    """The content of a file, which is to be of this size."""
    done = 0
    while data := os.read(handle, COPY_BYTES):
        done += len(data)
        check(done <= size and not given_up.is_set())
        yield data
    check(done == size)


@contextmanager
def new(folder: int, name: str) -> Iterator[int]:
    """Makes a file, to write and read it. Raises: FileExistsError: there is something of this name."""
    handle = os.open(name, NEW, 0o600, dir_fd=folder)
    try:
        yield handle
    finally:
        os.close(handle)


def check(is_right: bool) -> None:
    """Refuses a file. Raises: KernelSnapshotError."""
    if not is_right:
        raise KernelSnapshotError("a file of the snapshot is not what its manifest says, or nobody waits for it any more")
