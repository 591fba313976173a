"""Private folders for kernels, and the sweep that removes those that a `kill -9` left behind.

A folder is `fa-…` in the temporary directory (mode 0700: sockets have a path limit, so it is short) and holds a file `owner`
with the process id and the start time of the program that made it. The folder's path is in the environment of every process
that came of it (`FA_FOLDER`; not `FREEACT_…`, which are settings), which is how a daemon is found that has outlived its
kernel, its guard and its host.
"""

import contextlib
import logging
import os
import signal
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from freeact_sub.system.process import stat_fields
from freeact_sub.system.removal import remove
from freeact_sub.system.safe_files import mounts_in, read_file

PREFIX: Final = "fa-"
OWNER: Final = "owner"
MAX_BASE_CHARS: Final = 60
VARIABLE: Final = "FA_FOLDER"
MAX_NAMES: Final = 1000
ENTRIES_AT_ONCE: Final = 5_000
"""Files to remove at once, while others wait: about 50 ms."""
SWEPT_ENTRIES: Final = 200_000
"""Files of a dead program to remove at a start; the next start continues."""
SOCKET_PATH_CHARS: Final = 100
"""Longer paths of sockets are refused by the system."""

logger = logging.getLogger(__name__)


def make_folder(path: Path | None = None) -> Path:
    """Makes a private folder that belongs to this process. Args: path: where, if nothing is there."""
    folder = path or Path(tempfile.mkdtemp(prefix=PREFIX, dir=_base()))
    try:
        folder.mkdir(mode=0o700, exist_ok=path is None)
    except FileExistsError:
        return make_folder()
    (folder / OWNER).write_text(_identity(os.getpid()) or "", encoding="ascii")
    return folder


def sweep() -> list[Path]:
    """Removes the folders whose owners have ended, and kills their processes; touches nothing else.

    Returns:
        The removed folders.
    """
    removed = []
    for folder in _base().glob(f"{PREFIX}*"):
        try:
            if _owner_has_ended(folder):
                end_processes_of(folder)
                if _remove(folder, SWEPT_ENTRIES):
                    removed.append(folder)
        except Exception:
            # border: code of a model has filled the folder, and one that cannot be swept must not keep the others
            logger.warning("%s could not be swept", folder, exc_info=True)
    if removed:
        logger.info("removed what an earlier program left behind: %s", ", ".join(map(str, removed)))
    return removed


def _owner_has_ended(folder: Path) -> bool:
    """Returns whether a folder is this user's and its owner has ended."""
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return False
        identity = read_file(folder / OWNER).decode("ascii")
        return bool(identity) and identity != _identity(int(identity.split()[0]))
    except (OSError, ValueError, OverflowError):
        return False


def end_processes_of(folder: Path, *, but: Iterable[Path] = ()) -> None:
    """Kills every process of a folder, except those of inner folders in `but`. Linux only; elsewhere it finds none."""
    mark, others = _mark(folder), [_mark(other) for other in but]
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError, ValueError):  # it has ended, or is another user's
            marks = [item + b"/" for item in path.read_bytes().split(b"\0")]
            if any(item.startswith(mark) and not item.startswith(tuple(others)) for item in marks):
                os.kill(int(path.parent.name), signal.SIGKILL)


def remove_soon(folder: Path) -> None:
    """Removes a folder: a small one at once, else in the background; the next sweep removes the rest."""
    if not _remove(folder, ENTRIES_AT_ONCE):
        thread = threading.Thread(
            target=remove, args=(str(folder),), kwargs={"last": OWNER}, name=f"removes {folder}", daemon=True
        )
        thread.start()


def _remove(folder: Path, entries: int) -> bool:
    """Removes a folder up to so many entries; returns whether nothing is left."""
    gone = remove(str(folder), entries=entries, last=OWNER)
    if not gone and (mounts := mounts_in(str(folder))):
        logger.warning(
            "%s stays, for something is mounted at %s: unmount it, and the next start removes it", folder, mounts[0]
        )
    return gone


class KernelFolder:
    """The private folder of a kernel, with those of its branches in it: a branch has the rights of its kernel.

    Code in the kernel can put anything into the folder, and in place of a branch's folder. So all access goes through the
    folder's descriptor and follows no link.
    """

    def __init__(self, path: Path, origin: "KernelFolder | None" = None) -> None:
        self.path = path
        self._origin = origin
        self._branches: set[KernelFolder] = set()
        self._given_up = False
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def new_branch(self) -> "KernelFolder":
        """Makes a folder for a branch of the kernel.

        Raises:
            OSError: The folder cannot be made.
        """
        for number in range(MAX_NAMES):  # short, for the path of a branch's branch grows
            with contextlib.suppress(FileExistsError):
                path = self.path / str(number)
                path.mkdir(mode=0o700)
                branch = KernelFolder(path, self)
                self._branches.add(branch)
                return branch
        raise FileExistsError(f"too many files in {self.path}")

    @property
    def identity(self) -> list[int]:
        """Device and inode number, which tell the folder from a replacement."""
        found = os.fstat(self._descriptor)
        return [found.st_dev, found.st_ino]

    def make_folder(self, name: str) -> int:
        """Makes an empty folder in the folder, in place of an empty one, and returns its descriptor.

        Raises:
            OSError: It cannot be made.
        """
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(name, dir_fd=self._descriptor)
        os.mkdir(name, 0o755, dir_fd=self._descriptor)
        return self.open_folder(name)

    def open_folder(self, name: str) -> int:
        """Returns the descriptor of a folder in the folder; a link in its place is refused.

        Raises:
            OSError: It is not there, or this folder was given up.
        """
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=self._descriptor)

    def remove_file(self, name: str) -> None:
        """Removes a file of the folder, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def names(self) -> list[str]:
        """Returns the names in the folder."""
        try:
            return os.listdir(self._descriptor)  # noqa: PTH208  # pathlib knows no descriptors
        except FileNotFoundError:  # the folder itself has been removed, with all that is around it
            return []

    def tail(self, name: str, chars: int) -> str:
        """Returns the end of a text file of the folder; empty without the file."""
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._descriptor)
            with open(descriptor, encoding="utf-8", errors="replace") as file:  # noqa: PTH123  # the same
                return file.read()[-chars:]
        except OSError:
            return ""

    def end_processes(self) -> None:
        """Kills every process of the kernel, but not those of its branches."""
        end_processes_of(self.path, but=[branch.path for branch in self._branches])

    def give_up(self) -> None:
        """Removes the folder as soon as no branch uses one in it. Can be called again."""
        if not self._given_up:
            self._given_up = True
            os.close(self._descriptor)
            self._descriptor = -1
            self._remove_if_unused()

    def _remove_if_unused(self) -> None:
        if self._given_up and not self._branches:
            remove_soon(self.path)
            if self._origin is not None:
                self._origin.drop(self)

    def drop(self, branch: "KernelFolder") -> None:
        """Forgets a branch's folder that was removed."""
        self._branches.discard(branch)
        self._remove_if_unused()


def _mark(folder: Path) -> bytes:
    """Returns the beginning of `FA_FOLDER` in the processes of a folder, with a slash after it."""
    return f"{VARIABLE}={folder}/".encode()


def _base() -> Path:
    """Returns the temporary directory, or another one if socket paths in it would be too long for the system."""
    base = Path(tempfile.gettempdir())
    if len(str(base)) <= MAX_BASE_CHARS:
        return base
    return next((other for other in (Path(f"/run/user/{os.getuid()}"), Path("/tmp")) if os.access(other, os.W_OK)), base)  # noqa: S108  # the folder in it is private


def _identity(pid: int) -> str | None:
    """Returns a process id with its start time, since ids are used again. None: the process has ended."""
    try:
        fields = stat_fields(pid)
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() or not _is_running(pid) else f"{pid} 0"
    return None if fields[0] in "ZX" else f"{pid} {fields[19]}"


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
