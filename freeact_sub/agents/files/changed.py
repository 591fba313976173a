"""Finds the files that a cell's programs have changed in the workspace.

They are found afterwards, by the time of each file's last change (ctime, which the system sets and no program can set back).
So nothing is remembered in advance, and a cell that starts no program costs nothing.
"""

import logging
import os
import time
from collections import deque
from pathlib import Path
from typing import Final

from freeact_sub.system.mounts import silent_mounts

MAX_ENTRIES: Final = 20_000
MAX_SECONDS: Final = 0.2
MIN_ENTRIES: Final = 500
"""This many entries are examined however long it takes, so that results for a small workspace do not depend on load."""
CLOCK_STEP_NS: Final = 20_000_000
"""File times come from a coarse clock, which may lag by this much."""
PACKAGES: Final = frozenset({"node_modules", "site-packages", ".venv", "venv", ".tox", ".nox"})
CACHES: Final = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints"})
NOT_LOOKED_INTO: Final = PACKAGES | CACHES | {".freeact", ".git", ".hg", ".svn"}
"""Folders of tools and packages, which are nobody's work."""

logger = logging.getLogger(__name__)


def changed_files(workspace: Path, since_ns: int) -> dict[str, int]:
    """Return the regular files changed since a time, by name relative to the workspace, each with its last change in ns.

    Sorted by name. Blocks for at most about 0.2 s.

    File times may lag by `CLOCK_STEP_NS`: begin that much earlier to miss none. A large workspace is searched from the top,
    as far as the time and `MAX_ENTRIES` allow. Links are not followed, and what is
    mounted and does not answer is left out.
    """
    root, found = os.path.realpath(workspace), dict[str, int]()
    silent = silent_mounts(root)
    deadline = time.monotonic() + MAX_SECONDS
    seen = 0
    folders = deque([""])
    while folders:
        folder = folders.popleft()
        inner: list[str] = []
        times: dict[str, int] = {}
        for entry in _entries(workspace / folder):
            seen += 1
            if seen > MAX_ENTRIES or (seen > MIN_ENTRIES and time.monotonic() > deadline):
                logger.info("%s is too large to look for all files that programs have written", workspace)
                return dict(sorted((found | times).items()))
            if entry.name == "pyvenv.cfg":
                inner, times = [], {}  # a virtual environment
                break
            name = f"{folder}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in NOT_LOOKED_INTO and f"{root}/{name}" not in silent:
                    inner.append(f"{name}/")
            elif entry.is_file(follow_symlinks=False) and (changed := _changed(entry)) >= since_ns:
                times[name] = changed
        folders.extend(inner)
        found |= times
    return dict(sorted(found.items()))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry, _ in zip(entries, range(MAX_ENTRIES + 1), strict=False)]
    except OSError:  # it is gone or unreadable
        return []


def _changed(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_ctime_ns
    except OSError:
        return 0
