"""The part of the wall that is made of mounts. Linux; standard library only; `wall.py` beside this file loads it."""

import ctypes
import errno
import os
import struct
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC = 1, 2, 4, 8, 4096, 16384
MS_PRIVATE, MS_SLAVE, MNT_DETACH = 1 << 18, 1 << 19, 2
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_MOUNT_SETATTR = 428, 429, 442
AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x100, 0x1000, 0x8000
OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH = 1, 4
READ_ONLY, NO_SET_UID, NO_DEVICES = 1, 2, 4
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
SHM_BYTES = 1 << 30


def failure(piece: str) -> OSError:
    """Returns the error of the last system call."""
    number = ctypes.get_errno()
    return OSError(number, f"{piece} could not be set up: {os.strerror(number)}")


def enter_view(policy: dict[str, Any]) -> bool:
    """Leaves the machine's file tree for one that holds only the listed paths.

    Returns:
        Whether it came with a user namespace.
    """
    new_user = new_namespaces()
    cwd = policy["cwd"]
    links, readable = placements([*policy["readable"], "/proc", "/sys"])
    more_links, writable = placements([*policy["writable"], policy["folder"]])
    readable = {path for path in readable - writable if not below(path, writable)}
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=4m")
    os.mkdir("/tmp/old")
    if LIBC.syscall(SYS_PIVOT_ROOT[os.uname().machine], b"/tmp", b"/tmp/old"):
        raise failure("view (pivot_root)")
    os.chdir("/")
    made = {"/"}
    for path in sorted(readable | writable):  # inner paths after outer ones
        bind(f"/old{path}", path, made)
        if path != "/proc":  # Landlock guards it, and says better what is wrong
            harden(path, READ_ONLY if path in readable else 0)
    for path in sorted(policy["pinned"]):
        pin(path, 0)
    for path in policy["kept"]:
        pin(path, READ_ONLY)
    hide(policy["hidden"])
    make_devices(made)
    for path, target in (links | more_links).items():
        if not below(path, readable | writable):
            make_folder(os.path.dirname(path), made)
            os.symlink(target, path)
    if LIBC.umount2(b"/old", MNT_DETACH):
        raise failure("view (umount)")
    os.rmdir("/old")
    os.makedirs("/tmp", exist_ok=True)
    set_attributes("/", READ_ONLY, AT_FDCWD, 0)  # listed paths are mounted by now
    os.chdir(cwd)
    return new_user


def take_own_memory(hidden: list[str]) -> bool:
    """Leaves the machine's shared memory for one that ends with the kernel and everything it has started.

    The rest of the file tree stays; later mounts of the machine are seen.

    Args:
        hidden: Folders that are not seen.

    Returns:
        Whether it came with a user namespace.
    """
    new_user = new_namespaces()
    mount("none", "/", None, MS_REC | MS_SLAVE)
    mount_own_memory()
    hide(hidden)
    return new_user


def hide(folders: list[str]) -> None:
    """Mounts an empty folder that cannot be written over each of the folders that is there."""
    for folder in folders:
        if os.path.isdir(folder):
            mount("tmpfs", folder, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "mode=500,size=4k")


def mount_own_memory() -> None:
    """Mounts an empty `/dev/shm`."""
    mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={SHM_BYTES}")


def mount_own_terminals() -> None:
    """Mounts an empty `/dev/pts`: the terminals of other programs are not there."""
    mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")


def new_namespaces() -> bool:
    """Enters new namespaces for mounts and System V memory; returns whether one for users was needed too."""
    user, group = os.getuid(), os.getgid()
    if LIBC.unshare(CLONE_NEWNS | CLONE_NEWIPC) == 0:
        return False
    if LIBC.unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUSER):
        raise failure("view (namespaces)")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    return True


def placements(paths: list[str]) -> tuple[dict[str, str], set[str]]:
    """Returns the symbolic links and the mounts that give the paths their names in an empty tree."""
    links: dict[str, str] = {}
    mounts: set[str] = set()
    folders: set[str] = set()  # that are no links: most paths share them
    todo = list(paths)
    while todo:
        path = todo.pop()
        parts, current = os.path.normpath(path).strip("/").split("/"), ""
        for index, part in enumerate(parts):
            current += f"/{part}"
            if current in folders:
                continue
            if os.path.islink(current):
                links[current] = target = os.readlink(current)
                todo.append(os.path.join(os.path.dirname(current), target, *parts[index + 1 :]))
                break
            folders.add(current)
        else:
            if os.path.exists(current):
                mounts.add(current)
    return links, {path for path in mounts if not below(path, mounts)}


def below(path: str, others: set[str]) -> bool:
    """Returns whether the path is below one of the others."""
    end = path.rfind("/")
    while end > 0:
        if path[:end] in others:
            return True
        end = path.rfind("/", 0, end)
    return False


def make_folder(path: str, made: set[str]) -> None:
    """Makes a folder and those above it. Args: made: folders that are known to be there."""
    if path not in made:
        make_folder(os.path.dirname(path), made)
        try:
            os.mkdir(path)
        except OSError:
            if not os.path.isdir(path):  # in what is mounted there
                raise
        made.add(path)


def bind(source: str, target: str, made: set[str]) -> None:
    """Mounts the source at the target too, with all that is mounted below it. Args: made: see `make_folder`."""
    if os.path.isdir(source):
        make_folder(target, made)
    elif not os.path.exists(target):
        make_folder(os.path.dirname(target), made)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
    mount(source, target, None, MS_BIND | MS_REC)


def harden(path: str, attributes: int, descriptor: int = AT_FDCWD, flags: int = 0) -> None:
    """Gives the mount at the path, and all below it, more attributes.

    Read-only covers modes, owners and times, which Landlock lets pass. No set-id bits and no devices count anywhere but in
    `/dev`.
    """
    if not f"{path}/".startswith("/dev/"):
        attributes |= NO_SET_UID | NO_DEVICES
    set_attributes(path, attributes, descriptor, AT_RECURSIVE | flags)


def set_attributes(path: str, attributes: int, descriptor: int, flags: int) -> None:
    """Makes the system call."""
    wanted = struct.pack("=4Q", attributes, 0, 0, 0)
    name = b"" if flags & AT_EMPTY_PATH else os.fsencode(path)
    if LIBC.syscall(SYS_MOUNT_SETATTR, descriptor, name, flags, wanted, ctypes.c_size_t(len(wanted))):
        raise failure(f"view (attributes of the mount of {path})")


def pin(path: str, attributes: int) -> None:
    """Mounts a path, be it a link, on itself: a mount can neither be moved nor removed nor replaced."""
    name, flags = os.fsencode(path), OPEN_TREE_CLONE | os.O_CLOEXEC | AT_SYMLINK_NOFOLLOW | AT_RECURSIVE
    tree = LIBC.syscall(SYS_OPEN_TREE, AT_FDCWD, name, flags)
    if tree < 0:
        if ctypes.get_errno() == errno.ENOENT:
            return  # it has just been removed
        raise failure(f"view (mount of {path})")
    try:
        harden(path, attributes, tree, AT_EMPTY_PATH)
        if LIBC.syscall(SYS_MOVE_MOUNT, tree, b"", AT_FDCWD, name, MOVE_MOUNT_F_EMPTY_PATH):
            raise failure(f"view (mount of {path})")
    finally:
        os.close(tree)


def make_devices(made: set[str]) -> None:
    """Makes the few devices that programs need; our own terminals and shared memory. Args: made: see `make_folder`."""
    for name in DEVICES:
        if os.path.exists(f"/old/dev/{name}"):
            bind(f"/old/dev/{name}", f"/dev/{name}", made)
    for name in ("pts", "shm"):
        make_folder(f"/dev/{name}", made)
    mount_own_terminals()
    mount_own_memory()
    for name, target in LINKS.items():
        os.symlink(target, f"/dev/{name}")


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Makes the system call."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    if LIBC.mount(*encoded, ctypes.c_ulong(flags), None if options is None else options.encode()):
        raise failure(f"view (mount of {target})")
