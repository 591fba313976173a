"""Searches a workspace for files that are somebody's work: from the top, for a bounded time, without following links."""

import logging
import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from freeact_sub.system.mounts import silent_mounts

MAX_ENTRIES: Final = 20_000
MAX_SECONDS: Final = 0.2
MIN_ENTRIES: Final = 500
"""This many entries are examined however long it takes, so that results for a small workspace do not depend on load."""
PACKAGES: Final = frozenset({"node_modules", "site-packages", ".venv", "venv", ".tox", ".nox"})
CACHES: Final = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints"})
NOT_LOOKED_INTO: Final = PACKAGES | CACHES | {".freeact", ".git", ".hg", ".svn"}
"""Folders of tools and packages, which are nobody's work."""

logger = logging.getLogger(__name__)


def work_folders(workspace: Path, *, hidden: bool = True) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Yield each folder, as "" or `sub/folder/`, with what is in it besides folders. Blocks for at most about 0.2 s.

    A large workspace is searched as far as the time and `MAX_ENTRIES` allow. What is mounted and does not answer, and
    virtual environments, are left out.

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
