"""A bounded look into folders, for work files and for mounts.

A workspace is searched from the top, without following links. A program that reads a mount that does not respond would hang.
"""

import contextlib
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MAX_ENTRIES: Final = 20_000
MAX_SECONDS: Final = 0.2
MIN_ENTRIES: Final = 500
"""Entries that are examined however long it takes, so that results for a small workspace do not depend on load."""
PACKAGES: Final = frozenset({"node_modules", "site-packages", ".venv", "venv", ".tox", ".nox"})
CACHES: Final = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints"})
NOT_LOOKED_INTO: Final = PACKAGES | CACHES | {".freeact", ".git", ".hg", ".svn"}
"""Folders of tools and packages, not of the user's work."""

logger = logging.getLogger(__name__)


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
