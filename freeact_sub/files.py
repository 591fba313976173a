"""Files in folders that other programs, and code of a model, can write to as well: read and written so that none is a trap.

A symbolic link, a pipe or a device could stand where a file is expected. What is read is bounded and a regular file; what
the host writes in a workspace is reached folder by folder, and no link is followed on the way.
"""

import errno
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 1_000_000
"""Of a file with settings."""


def read_file(path: Path) -> bytes:
    """All of a regular file of at most `MAX_BYTES`; never waits for a pipe.

    Raises:
        OSError: It cannot be read, is no regular file, or is larger.
    """
    handle = _regular(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), str(path))
    with os.fdopen(handle, "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MAX_BYTES:,} bytes", str(path))
    return content


def replace_file(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write a file so that a reader sees the old one or the new one; its folder is made.

    Args:
        path: The file; of a symbolic link, what it leads to.
        content: All of it.
        mode: Of a file that is new.

    Raises:
        OSError: It cannot be written.
    """
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    new = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.chmod(target.stat().st_mode & 0o777 if target.exists() else mode)
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)


def beneath(root: Path) -> Callable[[str, int], int]:
    """An `opener` for `open`: the file must be below `root`, reached without a symbolic link, and a regular file.

    For writing, folders that are missing are made. The opener raises OSError, or ValueError for a path outside.
    """

    def opener(path: str, flags: int) -> int:
        *folders, name = Path(path).relative_to(root).parts
        at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                if flags & os.O_CREAT:
                    with suppress(FileExistsError):
                        os.mkdir(folder, 0o755, dir_fd=at)  # pathlib knows no folder's descriptor
                inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
                os.close(at)
                at = inner
            handle = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666, dir_fd=at)
        finally:
            os.close(at)
        return _regular(handle, path)

    return opener


def _regular(handle: int, path: str) -> int:
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return handle
