"""Lays a copy on write over a workspace, in the mount namespace of a kernel. Linux; standard library only.

A process that the fork server forks for it does so, outside of any wall: it enters the namespaces of the kernel and mounts
an overlay in the private folder of the kernel's branch. (A Python that is started for it takes some 40 ms of CPU.) Code in
the kernel may have put anything into that folder, so that each step goes through descriptors, follows no link, and begins at
a folder that is known by its device and its number.

Settings: `pid` (of the kernel), `workspace`, `folder` with `identity` (device, number), and `origin` (`path`, `identity`):
the private folder of the kernel where that has a copy itself, whose changes are the first of the branch's; or null.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Callable
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_NOSUID, MS_NODEV = 2, 4
FICLONE = 0x40049409
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CHANGES, WORK, COPY = "up", "work", "ws"
"""Names in the private folder of a branch: its changes, the overlay's work folder, its view of the workspace."""
OPAQUE = "user.overlay.opaque"
MAX_CHANGES, MAX_CHANGED_BYTES = 20_000, 1 << 30
"""The bound on changes copied when a branch is branched again."""
MAX_DEPTH = 100
"""The bound on nested folders: each takes a descriptor."""


class CopyLimitError(Exception):
    """There is more to copy than the bound."""


class Copying:
    """Copies a folder; follows no link, and leaves out what is no file, link or folder."""

    def __init__(self, files: int, size: int, *, layers: bool = False) -> None:
        """Args: files, size: bounds; what is cloned has no size. layers: keep what means something to an overlay."""
        self.files, self.size, self.layers = files, size, layers

    def folder(self, source: int, target: int, depth: int = 0) -> None:
        """Copies what is in a folder into another.

        Raises:
            CopyLimitError: It is more than the bounds.
            OSError: It cannot be copied.
        """
        if depth > MAX_DEPTH:
            raise CopyLimitError(f"folders {MAX_DEPTH} deep")
        for name in os.listdir(source):
            self.files -= 1
            if self.files < 0:
                raise CopyLimitError("too many files")
            with contextlib.suppress(FileNotFoundError):  # it has just been removed
                self.entry(source, target, name, depth)

    def entry(self, source: int, target: int, name: str, depth: int) -> None:
        """Copies one of them."""
        found = os.stat(name, dir_fd=source, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            with opened(source, name) as inner:
                os.mkdir(name, 0o700, dir_fd=target)
                with opened(target, name) as copy:
                    self.folder(inner, copy, depth + 1)
                    if self.layers:
                        self.attribute(inner, copy)
                    like(found, copy)
        elif stat.S_ISREG(found.st_mode):
            self.file(source, target, name)
        elif stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        elif self.layers and stat.S_ISCHR(found.st_mode) and found.st_rdev == 0:
            os.mknod(name, stat.S_IFCHR, 0, dir_fd=target)

    def file(self, source: int, target: int, name: str) -> None:
        """Copies a file; shares its blocks where the file system can."""
        reading = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=source)
        try:
            found = os.fstat(reading)
            if not stat.S_ISREG(found.st_mode):
                return
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            writing = os.open(name, flags, 0o600, dir_fd=target)
            try:
                try:
                    fcntl.ioctl(writing, FICLONE, reading)
                except OSError:
                    self.size -= found.st_size
                    if self.size < 0:
                        raise CopyLimitError("too many bytes") from None
                    pour(reading, writing, found.st_size)
                like(found, writing)
            finally:
                os.close(writing)
        finally:
            os.close(reading)

    def attribute(self, source: int, target: int) -> None:
        """Whether a folder hides what is below it in the workspace."""
        with contextlib.suppress(OSError):
            os.setxattr(f"/proc/self/fd/{target}", OPAQUE, os.getxattr(f"/proc/self/fd/{source}", OPAQUE))


@contextlib.contextmanager
def opened(folder: int, name: str) -> Any:
    """A folder in a folder."""
    descriptor = os.open(name, FOLDER, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def pour(reading: int, writing: int, size: int) -> None:
    """Copies the content of a file, up to what it had when it was looked at."""
    while size > 0 and (data := os.read(reading, min(size, 1 << 20))):
        view = memoryview(data)
        while view:
            view = view[os.write(writing, view) :]
        size -= len(data)


def like(found: os.stat_result, descriptor: int) -> None:
    """Gives a copy the mode, the times and, if possible, the owner of its original."""
    with contextlib.suppress(OSError):
        os.fchown(descriptor, found.st_uid, found.st_gid)
    os.fchmod(descriptor, found.st_mode & 0o1777)
    os.utime(descriptor, ns=(found.st_atime_ns, found.st_mtime_ns))


def checked(call: Callable[..., int], *arguments: Any) -> None:
    """A function of the C library; raises OSError with its error."""
    if call(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{call.__name__}: {os.strerror(number)}")


def enter(pid: int) -> None:
    """Enters the namespaces of a process."""
    spaces = [(kind, os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)) for kind in ("user", "mnt")]
    same = os.readlink("/proc/self/ns/mnt") == os.readlink(f"/proc/{pid}/ns/mnt")
    if same:
        raise OSError(errno.EXDEV, "the kernel has no mounts of its own")
    for kind, descriptor in spaces:
        if kind == "mnt" or os.fstat(descriptor).st_ino != os.stat("/proc/self/ns/user").st_ino:
            checked(LIBC.setns, descriptor, CLONE_NEWNS if kind == "mnt" else CLONE_NEWUSER)


def known(path: str, identity: list[int]) -> int:
    """Opens a folder that is the one that the host knows."""
    descriptor = os.open(path, FOLDER)
    found = os.fstat(descriptor)
    if [found.st_dev, found.st_ino] != identity:
        raise OSError(errno.ESTALE, f"another folder stands at {path}")
    return descriptor


def lay(settings: dict[str, Any]) -> None:
    """See the top of this file."""
    enter(settings["pid"])
    workspace = os.open(settings["workspace"], FOLDER)
    folder = known(settings["folder"], settings["identity"])
    for name in (CHANGES, WORK, COPY):
        os.mkdir(name, 0o755, dir_fd=folder)
    changes, work, copy = (os.open(name, FOLDER, dir_fd=folder) for name in (CHANGES, WORK, COPY))
    if settings["origin"] is not None:
        with opened(known(**settings["origin"]), CHANGES) as before:
            Copying(MAX_CHANGES, MAX_CHANGED_BYTES, layers=True).folder(before, changes)
    like(os.fstat(workspace), changes)
    layers = {"lowerdir": workspace, "upperdir": changes, "workdir": work}
    options = ",".join([*(f"{name}=/proc/self/fd/{number}" for name, number in layers.items()), "userxattr"])
    where = f"/proc/self/fd/{copy}".encode()
    checked(LIBC.mount, b"overlay", where, b"overlay", ctypes.c_ulong(MS_NOSUID | MS_NODEV), options.encode())


def reason_against(settings: dict[str, Any]) -> str:
    """Does it; returns why that was not possible, or nothing."""
    try:
        lay(settings)
    except (OSError, CopyLimitError) as error:
        return f"{error}"
    return ""
