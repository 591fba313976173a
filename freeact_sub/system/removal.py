"""Removal of folders that a model's code has filled. Standard library only: the process guard reads this file too."""

import contextlib
import errno
import itertools
import os

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NAMES = 1000
"""Entries of a folder to look at at a time."""
MOVE_TRIES = 100
numbers = itertools.count()
"""Numbers for the names of moved folders."""


def remove(folder: str, *, entries: float = float("inf"), last: str = "") -> bool:
    """Removes a folder with its content, however deep; follows no link, and leaves mounts alone.

    Folders in it move up before they are emptied. So nothing is ever more than two levels down: depth costs no stack,
    no descriptors and no paths that are too long for the system.

    Args:
        folder: The folder; a link in its place stays.
        entries: Stop after so many, or after up to a thousand more; a later call continues.
        last: The name in the folder to remove last.

    Returns:
        Whether nothing is left.
    """
    try:
        top = os.open(folder, FOLDER)
    except OSError:
        return not os.path.lexists(folder)
    try:
        progress = not _is_mounted(top)
        while progress and entries > 0 and (names := some_names(top, but=last)):
            progress = False
            for name in names:
                if (entries := entries - 1) < 0:
                    break
                if removed(top, name):
                    progress = True
                    continue
                with contextlib.suppress(OSError):
                    inner = opened(top, name)  # raises for a mount
                    for below in some_names(inner):
                        entries -= 1
                        progress |= removed(inner, below) or moved_up(inner, below, top)
                    os.close(inner)
        if not some_names(top, but=last):
            removed(top, last)
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        os.rmdir(folder)  # noqa: PTH106
    return not os.path.lexists(folder)


def some_names(folder: int, but: str = "") -> list[str]:
    """Returns at most `NAMES` names in a folder: all of them might not fit into memory."""
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        return [entry.name for entry, _ in zip((entry for entry in found if entry.name != but), range(NAMES), strict=False)]
    return []


def removed(folder: int, name: str) -> bool:
    """Removes a file, a link or an empty folder; returns whether it is gone."""
    for remove_one in (os.unlink, os.rmdir):
        with contextlib.suppress(OSError, ValueError):
            remove_one(name, dir_fd=folder)
            return True
    return False


def opened(folder: int, name: str) -> int:
    """Opens a folder in a folder, and lets its owner read and write it.

    Raises:
        OSError: The name is no folder, belongs to somebody else, or something is mounted there.
    """
    if not hasattr(os, "O_PATH"):
        return os.open(name, FOLDER, dir_fd=folder)
    path = os.open(name, FOLDER | os.O_PATH, dir_fd=folder)  # unreadable ones too; never waits for a file system
    try:
        if mount_of(path) != mount_of(folder):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
        with contextlib.suppress(OSError):
            os.chmod(f"/proc/self/fd/{path}", 0o700)  # noqa: PTH101  # the open folder itself: nothing can take its place
        return os.open(".", FOLDER, dir_fd=path)
    finally:
        os.close(path)


def mount_of(descriptor: int) -> int:
    """Returns the mount id of an open file; a folder that is mounted a second time has another one."""
    with contextlib.suppress(OSError), open(f"/proc/self/fdinfo/{descriptor}", "rb") as lines:  # noqa: PTH123
        return next(int(line.split()[1]) for line in lines if line.startswith(b"mnt_id:"))
    return os.fstat(descriptor).st_dev  # without /proc


def _is_mounted(folder: int) -> bool:
    if not hasattr(os, "O_PATH"):
        return False
    above = os.open("..", os.O_PATH | os.O_CLOEXEC, dir_fd=folder)
    try:
        return mount_of(above) != mount_of(folder)
    finally:
        os.close(above)


def moved_up(folder: int, name: str, top: int) -> bool:
    """Moves a folder into `top` under a new name; returns whether it moved."""
    with contextlib.suppress(OSError):
        os.close(opened(folder, name))  # only a folder that may be written can be moved
    for _ in range(MOVE_TRIES):
        try:
            os.rename(name, f"-{next(numbers)}", src_dir_fd=folder, dst_dir_fd=top)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                return False
        else:
            return True
    return False
