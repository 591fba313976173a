"""Private folders for kernels, and the sweep that removes what a `kill -9` of everything has left of them.

A folder is `fa-…` in the temporary directory (mode 0700: sockets have a path limit, so it is short) and holds a file `owner`
with the process id and the start time of the program that made it. The folder's path is in the environment of every process
that came of it (`FA_FOLDER`; not `FREEACT_…`, which are settings), which is how a daemon is found that has outlived its
kernel, its guard and its host.
"""

import contextlib
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

PREFIX: Final = "fa-"
OWNER: Final = "owner"
MAX_BASE_CHARS: Final = 60
VARIABLE: Final = "FA_FOLDER"
MAX_NAMES: Final = 1000
SOCKET_PATH_CHARS: Final = 100
"""Longer paths of sockets are refused by the system."""

logger = logging.getLogger(__name__)


def make_folder() -> Path:
    """A new private folder that belongs to this process."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_base()))
    (folder / OWNER).write_text(_identity(os.getpid()) or "", encoding="ascii")
    return folder


def sweep() -> list[Path]:
    """Remove the folders whose owners have ended, and end what still runs of them; touches nothing else.

    Returns:
        The folders that were removed.
    """
    removed = []
    for folder in _base().glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            identity = (folder / OWNER).read_text(encoding="ascii")
            if identity and identity != _identity(int(identity.split()[0])):
                end_processes_of(folder)
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(folder)
    if removed:
        logger.info("removed what an earlier program left behind: %s", ", ".join(map(str, removed)))
    return removed


def end_processes_of(folder: Path, *, but: Iterable[Path] = ()) -> None:
    """Kill every process that came of a folder, but not of these folders in it. Linux only; elsewhere nothing is found."""
    mark, others = _mark(folder), [_mark(other) for other in but]
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError, ValueError):  # it has ended, or is another user's
            marks = [item + b"/" for item in path.read_bytes().split(b"\0")]
            if any(item.startswith(mark) and not item.startswith(tuple(others)) for item in marks):
                os.kill(int(path.parent.name), signal.SIGKILL)


class KernelFolder:
    """The private folder of a kernel. Those of its branches are in it, for a branch has no rights that it had not.

    Code in the kernel may put what it likes into it and, where it is a branch's, in its place: whatever is done here goes
    through the folder's descriptor and follows no link.
    """

    def __init__(self, path: Path, origin: "KernelFolder | None" = None) -> None:
        self.path = path
        self._origin = origin
        self._branches: set[KernelFolder] = set()
        self._given_up = False
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def new_branch(self) -> "KernelFolder":
        """A folder for a branch of the kernel.

        Raises:
            OSError: It cannot be made.
        """
        for number in range(MAX_NAMES):  # short, for the path of a branch's branch grows
            with contextlib.suppress(FileExistsError):
                path = self.path / str(number)
                path.mkdir(mode=0o700)
                branch = KernelFolder(path, self)
                self._branches.add(branch)
                return branch
        raise FileExistsError(f"too many files in {self.path}")

    def remove_file(self, name: str) -> None:
        """Remove a file of the folder, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def names(self) -> list[str]:
        """What is in the folder."""
        try:
            return os.listdir(self._descriptor)  # noqa: PTH208  # pathlib knows no descriptors
        except FileNotFoundError:  # the folder itself has been removed, with all that is around it
            return []

    def tail(self, name: str, chars: int) -> str:
        """The end of a text file of the folder; empty if there is none."""
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._descriptor)
            with open(descriptor, encoding="utf-8", errors="replace") as file:  # noqa: PTH123  # the same
                return file.read()[-chars:]
        except OSError:
            return ""

    def end_processes(self) -> None:
        """Kill every process that came of the kernel; those of its branches live on."""
        end_processes_of(self.path, but=[branch.path for branch in self._branches])

    def give_up(self) -> None:
        """Nobody uses the folder any more: it is removed, as soon as no branch uses what is in it. Can be called again."""
        if not self._given_up:
            self._given_up = True
            os.close(self._descriptor)
            self._remove_if_unused()

    def _remove_if_unused(self) -> None:
        if self._given_up and not self._branches:
            shutil.rmtree(self.path, ignore_errors=True)
            if self._origin is not None:
                self._origin.drop(self)

    def drop(self, branch: "KernelFolder") -> None:
        """A branch's folder has been removed."""
        self._branches.discard(branch)
        self._remove_if_unused()


def _mark(folder: Path) -> bytes:
    """How the variable of a process that came of a folder begins, with a slash after it."""
    return f"{VARIABLE}={folder}/".encode()


def _base() -> Path:
    """The temporary directory, unless sockets in it would have paths that the system refuses."""
    base = Path(tempfile.gettempdir())
    if len(str(base)) <= MAX_BASE_CHARS:
        return base
    return next((other for other in (Path(f"/run/user/{os.getuid()}"), Path("/tmp")) if os.access(other, os.W_OK)), base)  # noqa: S108  # the folder in it is private


def _identity(pid: int) -> str | None:
    """A process's id with its start time, so that a number that is used again is not mistaken; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
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
