"""Private folders for kernels, and the sweep that removes what a `kill -9` of everything has left of them.

A folder is `fa-…` in the temporary directory (mode 0700: sockets have a path limit, so it is short) and holds a file `owner`
with the process id and the start time of the program that made it. The folder's path is in the environment of every process
that came of it (`FA_FOLDER`; not `FREEACT_…`, which are settings), which is how a daemon is found that has outlived its kernel, its guard and its host.
"""

import contextlib
import logging
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Final

PREFIX: Final = "fa-"
OWNER: Final = "owner"
MAX_BASE_CHARS: Final = 60
VARIABLE: Final = "FA_FOLDER"

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


def end_processes_of(folder: Path) -> None:
    """Kill every process that came of a folder. Linux only; elsewhere nothing is found."""
    mark = f"{VARIABLE}={folder}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError, ValueError):  # it has ended, or is another user's
            if any(item == mark or item.startswith(mark + b"/") for item in path.read_bytes().split(b"\0")):
                os.kill(int(path.parent.name), signal.SIGKILL)


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
