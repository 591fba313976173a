"""Lays a copy on write over a workspace, for a branch of a kernel. Linux; standard library only.

A process that the fork server forks for it does so, outside of any wall. (A Python that is started for it takes some 40 ms
of CPU.) It makes an overlay, enters the namespaces of the kernel, makes copies of them, and puts the overlay over the
workspace there; the branch enters the copies itself (`detach.join`), as no other process could make it do. Code in the
kernel may have put anything into the branch's private folder, so that each step goes through descriptors, follows no link,
and begins at a folder that is known by its device and its number.

Settings: `pid` (of the kernel), `workspace`, `folder` with `identity` (device, number), `covers` (bool; else the overlay is
in the folder, in the kernel's own namespaces), `sealed` (bool, for `seal`), and `origin` (`path`, `identity`): the private
folder of the kernel where that has a copy itself, whose changes are the first of the branch's; or null.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
SPACES = {"user": CLONE_NEWUSER, "mnt": CLONE_NEWNS}
PINS = {"user": "k-user", "mnt": "k-mnt"}
"""Files in the private folder of a branch that lead to its namespaces, in the order in which it enters these. They are
removed with its sockets, once the host has connected."""
SYS_MOVE_MOUNT, SYS_FSOPEN, SYS_FSCONFIG, SYS_FSMOUNT = 429, 430, 431, 432
SET_FLAG, SET_STRING, CREATE = 0, 1, 6
FROM_DESCRIPTOR, TO_DESCRIPTOR = 4, 64
NO_SET_UID, NO_DEVICES = 2, 4
MS_BIND, PR_SET_PDEATHSIG = 4096, 1
FICLONE = 0x40049409
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CHANGES, WORK, COPY = "up", "work", "ws"
"""Names in the private folder of a branch: its changes, the overlay's work folder, its view of the workspace."""
OPAQUE = "user.overlay.opaque"
MAX_CHANGES, MAX_CHANGED_BYTES = 20_000, 1 << 30
"""Maximum changes, and bytes of them, that are copied when a branch is branched again."""
MAX_DEPTH = 100
"""Maximum nested folders: each takes a descriptor."""


class CopyLimitError(Exception):
    """An excess of files to copy, or of their bytes."""


class Copying:
    """Copying of a folder; follows no link, and leaves out all but files, links and folders."""

    def __init__(self, files: int, size: int, *, layers: bool = False) -> None:
        """Args: files, size: limits; cloned files have no size. layers: keep the marks of an overlay."""
        self.files, self.size, self.layers = files, size, layers

    def folder(self, source: int, target: int, depth: int = 0) -> None:
        """Copy the content of a folder into another.

        Raises:
            CopyLimitError: It is more than the limits.
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
        """Copy an entry."""
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
            os.symlink(self.link_target(os.readlink(name, dir_fd=source)), name, dir_fd=target)
        elif self.layers and stat.S_ISCHR(found.st_mode) and found.st_rdev == 0:
            os.mknod(name, stat.S_IFCHR, 0, dir_fd=target)

    def link_target(self, target: str) -> str:
        """Return the target of a symbolic link in the copy. Args: target: where the link leads."""
        return target

    def file(self, source: int, target: int, name: str) -> None:
        """Copy a file; shares its blocks where the file system can."""
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
        """Copy the mark that a folder hides all below it in the workspace, if it has the mark."""
        with contextlib.suppress(OSError):
            os.setxattr(f"/proc/self/fd/{target}", OPAQUE, os.getxattr(f"/proc/self/fd/{source}", OPAQUE))


@contextlib.contextmanager
def opened(folder: int, name: str) -> Iterator[int]:
    """Open a folder in a folder. Raises: OSError: There is none, or a link."""
    descriptor = os.open(name, FOLDER, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def pour(reading: int, writing: int, size: int) -> None:
    """Copy the content of a file, up to its size when it was looked at."""
    while size > 0 and (data := os.read(reading, min(size, 1 << 20))):
        write_all(writing, data)
        size -= len(data)


def write_all(handle: int, data: bytes) -> None:
    """Write at the position of a file. Raises: OSError: There is no room."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def like(found: os.stat_result, descriptor: int) -> None:
    """Give a copy the mode, the times and, if possible, the owner of its original."""
    with contextlib.suppress(OSError):
        os.fchown(descriptor, found.st_uid, found.st_gid)
    os.fchmod(descriptor, found.st_mode & 0o1777)
    os.utime(descriptor, ns=(found.st_atime_ns, found.st_mtime_ns))


def checked(call: Callable[..., int], *arguments: Any) -> int:
    """Return the result of a function of the C library; raise OSError with its error."""
    result = call(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call.__name__}: {os.strerror(number)}")
    return result


def opened_spaces(pid: int) -> dict[str, int]:
    """Return the namespaces of a process, by kind."""
    return {kind: os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in SPACES}


def join(spaces: dict[str, int]) -> None:
    """Enter namespaces, unless this process is in them."""
    for kind, descriptor in spaces.items():
        if os.fstat(descriptor).st_ino != os.stat(f"/proc/self/ns/{kind}").st_ino:
            checked(LIBC.setns, descriptor, SPACES[kind])


def known(path: str, identity: list[int]) -> int:
    """Open a folder, which must be the one that the host knows."""
    descriptor = os.open(path, FOLDER)
    found = os.fstat(descriptor)
    if [found.st_dev, found.st_ino] != identity:
        raise OSError(errno.ESTALE, f"another folder stands at {path}")
    return descriptor


def make_overlay(settings: dict[str, Any]) -> int:
    """Return a mount of the branch's files that has no place yet.

    It is made outside of the kernel's namespaces. In those of a branch all mounts are locked to each other, and a folder
    with mounts in it, such as a workspace whose settings are read-only, cannot be a layer.
    """
    sys.modules["freeact_view"].new_namespaces()
    workspace = os.open(settings["workspace"], FOLDER)
    folder = known(settings["folder"], settings["identity"])
    for name in (CHANGES, WORK):
        os.mkdir(name, 0o755, dir_fd=folder)
    changes, work = (os.open(name, FOLDER, dir_fd=folder) for name in (CHANGES, WORK))
    if settings["origin"] is not None:
        with opened(known(**settings["origin"]), CHANGES) as before:
            Copying(MAX_CHANGES, MAX_CHANGED_BYTES, layers=True).folder(before, changes)
    like(os.fstat(workspace), changes)
    made = checked(LIBC.syscall, SYS_FSOPEN, b"overlay", 1)
    for name, number in {"lowerdir": workspace, "upperdir": changes, "workdir": work}.items():
        layer = f"/proc/self/fd/{number}".encode()
        checked(LIBC.syscall, SYS_FSCONFIG, made, SET_STRING, name.encode(), layer, 0)
    checked(LIBC.syscall, SYS_FSCONFIG, made, SET_FLAG, b"userxattr", None, 0)
    checked(LIBC.syscall, SYS_FSCONFIG, made, CREATE, None, None, 0)
    return checked(LIBC.syscall, SYS_FSMOUNT, made, 1, NO_SET_UID | NO_DEVICES)


def made_aside(make: Callable[[], int]) -> int:
    """Return a descriptor that another process makes."""
    ours, theirs = socket.socketpair()
    with ours:
        if os.fork() == 0:
            try:
                LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                socket.send_fds(theirs, [b"."], [make()])
            except BaseException as error:  # noqa: BLE001  # border: the other process gets the reason
                theirs.send(str(error).encode()[:1000])
            finally:
                os._exit(0)
        theirs.close()
        told, descriptors, _, _ = socket.recv_fds(ours, 1000, 1)
    if not descriptors:
        raise OSError(told.decode(errors="replace"))
    return descriptors[0]


@contextlib.contextmanager
def new_spaces() -> Iterator[int]:
    """Yield the id of a process in namespaces of its own, a copy of this one's. All users in it are who they are outside."""
    (told, tell), (waits, end) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(end)
        os.write(tell, b"%d" % (ctypes.get_errno() if LIBC.unshare(CLONE_NEWNS | CLONE_NEWUSER) else 0))
        os.read(waits, 1)  # nothing comes: until the other process has done what it wants
        os._exit(0)
    os.close(waits)
    if number := int(os.read(told, 20)):
        raise OSError(number, f"unshare: {os.strerror(number)}")
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/self/{name}") as own, open(f"/proc/{pid}/{name}", "w") as new:
            new.write("".join(f"{first} {first} {count}\n" for first, _, count in map(str.split, own)))
    yield pid
    os.close(end)


def lay(settings: dict[str, Any]) -> None:
    """Lay the copy, as the top of this file says."""
    spaces = opened_spaces(settings["pid"])
    if os.fstat(spaces["mnt"]).st_ino == os.stat("/proc/self/ns/mnt").st_ino:
        raise OSError(errno.EXDEV, "the kernel has no mounts of its own")
    overlay = made_aside(lambda: make_overlay(settings))
    join(spaces)
    folder = known(settings["folder"], settings["identity"])
    if not settings["covers"]:
        os.mkdir(COPY, 0o755, dir_fd=folder)
        place(overlay, os.open(COPY, FOLDER, dir_fd=folder))
        return
    join(pinned_spaces(folder))
    if settings["sealed"]:
        seal(settings)
    place(overlay, os.open(settings["workspace"], FOLDER))


def seal(settings: dict[str, Any]) -> None:
    """Make all mounts read-only but the private folder, shared memory and terminals: these are a trial's own."""
    view = sys.modules["freeact_view"]
    flags = view.OPEN_TREE_CLONE | os.O_CLOEXEC | view.AT_EMPTY_PATH
    own = checked(LIBC.syscall, view.SYS_OPEN_TREE, known(settings["folder"], settings["identity"]), b"", flags)
    view.set_attributes("/", view.READ_ONLY | view.NO_SET_UID, view.AT_FDCWD, view.AT_RECURSIVE)
    place(own, known(settings["folder"], settings["identity"]))
    view.mount_own_memory()
    if os.path.isdir("/dev/pts"):
        view.mount_own_terminals()  # a device is written on a read-only mount as well


def pinned_spaces(folder: int) -> dict[str, int]:
    """Make new namespaces, to which files in a folder lead.

    Linux lets a namespace for mounts be a file in another one only if its number is higher, and in Linux 6.18 each processor
    has numbers of its own: so namespaces are made on any processor, then on one after the other, until they can.
    """
    create = os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    pins = {kind: os.open(name, create, 0o600, dir_fd=folder) for kind, name in PINS.items()}
    every = os.sched_getaffinity(0)
    for processors in (every, *({one} for one in every)):
        os.sched_setaffinity(0, processors)
        with new_spaces() as pid:
            try:
                for kind in ("mnt", "user"):
                    sys.modules["freeact_view"].mount(f"/proc/{pid}/ns/{kind}", f"/proc/self/fd/{pins[kind]}", None, MS_BIND)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
            else:
                return opened_spaces(pid)
    raise OSError(errno.EINVAL, "the namespaces of the branch have no place")


def place(mount: int, folder: int) -> None:
    """Put a mount over a folder."""
    checked(LIBC.syscall, SYS_MOVE_MOUNT, mount, b"", folder, b"", FROM_DESCRIPTOR | TO_DESCRIPTOR)


def reason_against(settings: dict[str, Any]) -> str:
    """Lay the copy; return why that was not possible, or nothing."""
    try:
        lay(settings)
    except OSError as error:
        return f"{error}"
    return ""
