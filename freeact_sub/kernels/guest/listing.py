"""Remembers the names in a folder and below it, to find out which disappear. Sent into every kernel as source.

Taken when a cell starts its first program, for a program cannot be asked what it removes. Only folders that have changed
since are examined again.
"""

import itertools
import os
import time
from collections import deque

MAX_ENTRIES = 20_000
MAX_SECONDS = 0.1
MIN_ENTRIES = 500
"""Entries that are examined however long it takes, so that the list of a small folder does not depend on the load."""
CLOCK_STEP_NS = 20_000_000
"""Times of files come from a coarse clock, which may be behind by this much."""
NOT_LOOKED_INTO = {
    *("node_modules", "site-packages", ".venv", "venv", ".tox", ".nox"),
    *("__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints"),
    *(".freeact", ".git", ".hg", ".svn"),
}
"""Folders of tools and of packages: nobody's work."""


class Listing:
    """The files below a folder, from the top as far as `MAX_ENTRIES` and `MAX_SECONDS` allow. No link is followed."""

    def __init__(self, root: str) -> None:
        self._taken = time.time_ns()
        self._files: dict[str, set[str]] = {}
        deadline, left = time.monotonic() + MAX_SECONDS, MAX_ENTRIES
        folders = deque([root])
        while folders and left > 0 and (time.monotonic() < deadline or left > MAX_ENTRIES - MIN_ENTRIES):
            folder = folders.popleft()
            names, inner = _entries(folder)
            left -= len(names)
            if left > 0 and "pyvenv.cfg" not in names:  # else it is a virtual environment
                self._files[folder] = names.difference(inner)
                folders.extend(os.path.join(folder, name) for name in inner if name not in NOT_LOOKED_INTO)

    def gone(self) -> list[str]:
        """Return the files that no longer exist."""
        gone = []
        for folder, names in self._files.items():
            try:
                changed = os.stat(folder).st_mtime_ns >= self._taken - CLOCK_STEP_NS
            except OSError:
                changed = True
            if changed:
                left = names - _entries(folder)[0]
                gone += [path for name in sorted(left) if not os.path.lexists(path := os.path.join(folder, name))]
        return gone


def _entries(folder: str) -> tuple[set[str], list[str]]:
    """Return the names in a folder and those that are folders; none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            some = itertools.islice(entries, MAX_ENTRIES)
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in some]
    except OSError:
        return set(), []
    return {name for name, _ in found}, [name for name, is_folder in found if is_folder]
