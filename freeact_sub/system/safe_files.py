"""Files in folders that a model's code, or another program, can write to as well; and a bounded look into folders.

A symbolic link, a pipe or a device could be there instead of a file. So the host reads only regular files, within a bound,
and reaches the files that it writes in a workspace folder by folder, without following a link. In copies of folders a file
gets a second name, which costs nothing, and links lead to the copy.

A workspace is searched for work files from the top, without following links. A program that reads a mount that does not
respond would hang, so mounts are found and tried first.
"""

import contextlib
import errno
import fcntl
import logging
import math
import os
import re
import secrets
import shutil
import stat
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 1_000_000
"""Bound on a settings file."""
MAX_ENTRIES: Final = 20_000
MAX_SECONDS: Final = 0.2
MIN_ENTRIES: Final = 500
"""Entries that are examined however long it takes, so that results for a small workspace do not depend on load."""
PACKAGES: Final = frozenset({"node_modules", "site-packages", ".venv", "venv", ".tox", ".nox"})
CACHES: Final = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints"})
NOT_LOOKED_INTO: Final = PACKAGES | CACHES | {".freeact", ".git", ".hg", ".svn"}
"""Folders of tools and packages, not of the user's work."""

logger = logging.getLogger(__name__)


def read_file(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Reads a regular file of at most so many bytes; never waits for a pipe.

    Raises:
        OSError: The file cannot be read, is not regular, or is larger.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:
        raise OSError(errno.EINVAL, f"it is not a path ({error})", str(path)) from error
    with os.fdopen(_regular(handle, str(path)), "rb") as file:
        content = file.read(max_bytes + 1)
    if content is None:  # the system's log, which says that it is a regular file
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes:,} bytes", str(path))
    return content


def full_path(path: Path | str) -> Path:
    """Returns the absolute path without `~` and links; it need not exist.

    Raises:
        OSError: There is no such user, the links form a circle, or the text is not a path.
    """
    try:
        return Path(path).expanduser().resolve()
    except (RuntimeError, ValueError) as error:
        raise OSError(errno.EINVAL, str(error), str(path)) from error


def is_file(path: Path) -> bool:
    """Returns whether a regular file is there; False if the path cannot be looked up."""
    return os.path.isfile(path)  # noqa: PTH113  # pathlib's raises for names that are too long and folders without rights


def is_folder(path: Path) -> bool:
    """Returns whether a folder is there; False if the path cannot be looked up."""
    return os.path.isdir(path)  # noqa: PTH112  # the same


def files_in(folder: Path, suffix: str) -> list[Path]:
    """Returns the paths in a folder with this suffix, sorted; none if the folder cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(folder / entry.name for entry in entries if entry.name.endswith(suffix))
    except (OSError, ValueError):
        return []


def replace_file(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Replaces a file at once, so that a reader sees the old or the new one; makes its folder.

    Args:
        path: The file; a symbolic link is followed.
        content: The whole content.
        mode: The mode of a new file.

    Raises:
        OSError: The file cannot be written.
    """
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    put_file(target, content, mode=target.stat().st_mode & 0o777 if target.exists() else mode)


def put_file(path: Path, content: bytes, *, mode: int) -> None:
    """Replaces whatever is at a path by a file, at once; follows no link, and sets the mode.

    Raises:
        OSError: The file cannot be written.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # for its owner alone
    new = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.chmod(mode)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def locked_folder(path: Path, seconds: float = math.inf) -> Iterator[None]:
    """Makes a folder and locks it: programs that change a file in it take turns.

    Args:
        path: The folder.
        seconds: The time to wait for the lock. An agent's code can hold that of a folder of the workspace for ever.

    Raises:
        OSError: It cannot be made, opened or, in that time, locked.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _take_turn(folder, time.monotonic() + seconds)
        yield
    finally:
        os.close(folder)


def _take_turn(folder: int, end: float) -> None:
    while end < math.inf:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > end:
                raise OSError(error.errno, "another program keeps its folder locked") from error
            time.sleep(0.02)
        else:
            return
    fcntl.flock(folder, fcntl.LOCK_EX)


@contextmanager
def opened_folder(path: Path) -> Iterator[int]:
    """Yields a folder's descriptor, for work that follows no link on the way. Raises: OSError: A link is in its place."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Makes a folder of the program's own that git ignores; an existing one stays as it is.

    Raises:
        OSError: The folder cannot be made.
    """
    with suppress(FileExistsError):
        path.mkdir(mode=0o755)
        with opened_folder(path) as folder:
            _leave_out_of_git(folder)


def write_new(path: Path, content: bytes, *, root: Path) -> None:
    """Writes a new file and makes missing folders. Args: root: see `beneath`.

    Raises:
        OSError: The file exists, or cannot be written.
    """
    with open(path, "xb", opener=beneath(root)) as file:
        file.write(content)


def beneath(root: Path) -> Callable[[str, int], int]:
    """An `opener` for `open` that accepts only regular files below `root`, reached without a symbolic link.

    When writing, it makes missing folders, and tells git to leave the first of them out. The opener raises OSError, or
    ValueError for a path outside.
    """

    def opener(path: str, flags: int) -> int:
        *folders, name = Path(path).relative_to(root).parts
        at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        made = False
        try:
            for folder in folders:
                is_first = flags & os.O_CREAT and _make(folder, at) and not made
                inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
                os.close(at)
                at = inner
                if is_first:
                    _leave_out_of_git(at)
                    made = True
            handle = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666, dir_fd=at)
        finally:
            os.close(at)
        return _regular(handle, path)

    return opener


def _make(name: str, folder: int) -> bool:
    """Makes a folder in another; returns False if it was there."""
    try:
        os.mkdir(name, 0o755, dir_fd=folder)  # pathlib knows no folder's descriptor
    except FileExistsError:
        return False
    return True


def _leave_out_of_git(folder: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(OSError):  # without it the folder shows in `git status`, which is no reason to fail
        file = os.open(".gitignore", flags, 0o644, dir_fd=folder)
        try:
            os.write(file, b"*\n")
        finally:
            os.close(file)


def replace_beneath(root: Path, path: Path, content: bytes) -> None:
    """Replaces a file below a folder as `replace_file` does; follows no link on the way, and replaces one at the end.

    Raises:
        OSError: The file cannot be written.
    """
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(new, "wb", opener=beneath(root)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        with suppress(OSError):
            new.unlink()


def _regular(handle: int, path: str) -> int:
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return handle


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Gives a file, which is only ever replaced, a second name, or copies it. A file that is gone is left out.

    Raises:
        OSError: It can be neither linked nor copied.
    """
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system, or too many links
        if os.path.lexists(source):  # else whoever has it at work, such as git, has removed it
            shutil.copy2(source, target, follow_symlinks=False)


def target_in_copy(target: str, originals: Iterable[Path], copy: Path) -> str:
    """Returns where a symbolic link leads in the copy of a folder: into the copy, if it names a path in the original.

    Args:
        target: Where it leads in the original. A relative one is the same in the copy.
        originals: The folder, and the folders that it was copied from.
        copy: The copy.
    """
    if not os.path.isabs(target):  # noqa: PTH117  # text, here and below: a target may be anything
        return target
    folder, name = os.path.split(target)  # the target may be a link itself, which has a copy
    is_name = name not in ("", ".", "..")
    place = os.path.join(os.path.realpath(folder), name) if is_name else os.path.realpath(target)  # noqa: PTH118
    if f"{place}/".startswith(f"{os.path.realpath(copy)}/"):  # the copy may be somewhere in the original
        return target
    for original in map(os.path.realpath, originals):
        if original in (place, os.path.realpath(target)):
            return str(copy)
        if place.startswith(f"{original}/"):
            return f"{copy}{place[len(original) :]}"
    return target


def work_folders(workspace: Path, *, hidden: bool = True) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Yield each folder, as "" or `sub/folder/`, with its entries besides folders. Blocks for at most about 0.2 s.

    A large workspace is searched as far as the time and `MAX_ENTRIES` allow. Mounts that do not answer, and virtual
    environments, are left out.

    Args:
        workspace: Where to begin.
        hidden: Also look into folders whose name begins with a dot.
    """
    root = os.path.realpath(workspace)
    silent = silent_mounts(root)
    deadline = time.monotonic() + MAX_SECONDS
    seen = 0
    folders = deque([""])
    while folders:
        folder = folders.popleft()
        inner: list[str] = []
        others: list[os.DirEntry[str]] = []
        for entry in _entries(workspace / folder):
            seen += 1
            if seen > MAX_ENTRIES or (seen > MIN_ENTRIES and time.monotonic() > deadline):
                logger.info("%s is too large to look at all its files", workspace)
                yield folder, others
                return
            if entry.name == "pyvenv.cfg":
                inner, others = [], []  # a virtual environment
                break
            name = f"{folder}{entry.name}"
            if not entry.is_dir(follow_symlinks=False):
                others.append(entry)
            elif not (entry.name in NOT_LOOKED_INTO or f"{root}/{name}" in silent or (entry.name[0] == "." and not hidden)):
                inner.append(f"{name}/")
        folders.extend(inner)
        yield folder, others


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry, _ in zip(entries, range(MAX_ENTRIES + 1), strict=False)]
    except OSError:  # it is gone or unreadable
        return []


ANSWER_SECONDS: Final = 2.0
_probes: dict[str, threading.Thread] = {}
"""The thread that probes each path; a path is not probed again while its thread waits."""
_lock: Final = threading.Lock()


def mounts_in(folder: str) -> list[str]:
    """Return the mount points in a folder, itself included. Linux only; elsewhere there are none."""
    above, _, name = folder.rpartition("/")
    place = os.fsencode(os.path.join(os.path.realpath(above or "/"), name))  # noqa: PTH118
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", "rb") as lines:  # noqa: PTH123
        found = [re.sub(rb"\\(\d{3})", lambda code: bytes([int(code[1], 8)]), line.split()[4]) for line in lines]
        return [os.fsdecode(path) for path in found if path == place or path.startswith(place.rstrip(b"/") + b"/")]
    return []


def silent_mounts(folder: str) -> frozenset[str]:
    """Return the real paths of mounts below a folder that do not answer within `ANSWER_SECONDS`."""
    paths = [path for path in mounts_in(folder) if path != os.path.realpath(folder)]
    with _lock:
        for path in paths:
            if path not in _probes or not _probes[path].is_alive():
                _probes[path] = threading.Thread(target=_look_at, args=(path,), name=f"looks at {path}", daemon=True)
                _probes[path].start()
        looks = {path: _probes[path] for path in paths}
    until = time.monotonic() + ANSWER_SECONDS
    for look in looks.values():
        look.join(max(0.0, until - time.monotonic()))
    return frozenset(path for path, look in looks.items() if look.is_alive())


def _look_at(path: str) -> None:
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        next(entries, None)
