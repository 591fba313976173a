"""Diffs of the changes that a trial has made in its copy of the workspace.

The copy was written by code that nobody has approved: it is reached folder by folder, without following a link.
"""

import difflib
import os
import stat
from typing import Final, Literal

from freeact_sub.events.effects import FileEffect
from freeact_sub.kernels import Changes, OwnFiles
from freeact_sub.kernels.files.places import PERMISSIONS, READ, around
from freeact_sub.kernels.workspaces.own_files import opened_workspace
from freeact_sub.text import visible

SHOWN: Final = 100
"""Paths that are shown; the last one says how many there are besides."""
TEXT_BYTES: Final = 256 << 10
"""A longer file is described by its size."""
DIFF_LINES: Final = 200
LINE_CHARS: Final = 400


def file_effects(own: OwnFiles, changes: Changes) -> tuple[FileEffect, ...]:
    """The changes, sorted by path. Blocks. Raises: OSError: The copy cannot be read any more."""
    effects = []
    with own.opened() as copy, opened_workspace(own.workspace) as workspace:
        for path in sorted(changes.paths)[:SHOWN]:
            old = None if path in changes.added else _Standing.at(workspace, path)
            new = None if path in changes.deleted else _Standing.at(copy, path)
            what: Literal["added", "deleted", "changed"]
            what = "added" if path in changes.added else "deleted" if path in changes.deleted else "changed"
            effects.append(FileEffect(path=path, what=what, diff=_diff(path, old, new), note=_note(old, new)))
    if more := len(changes.paths) - SHOWN:
        note = f"and {more:,} more paths"
        effects += [FileEffect(path="…", what="changed", note=note)] if more > 0 else []
    return tuple(effects)


class _Standing:
    """A file, link or folder as it is."""

    def __init__(self, mode: int, size: int, text: str | None) -> None:
        self.mode, self.size, self.text = mode, size, text

    @classmethod
    def at(cls, root: int, path: str) -> "_Standing | None":
        """The entry at a path. None: there is none that can be reached without a link."""
        try:
            with around(root, path.rstrip("/")) as (folder, name):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISLNK(found.st_mode):
                    return cls(found.st_mode, 0, f"link to {os.readlink(name, dir_fd=folder)}\n")
                text = _text(folder, name) if stat.S_ISREG(found.st_mode) and found.st_size <= TEXT_BYTES else None
                return cls(found.st_mode, found.st_size, text)
        except OSError:
            return None


def _text(folder: int, name: str) -> str | None:
    """The content of a file. None: it is no text, or cannot be read."""
    try:
        descriptor = os.open(name, READ, dir_fd=folder)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = file.read(TEXT_BYTES + 1)
    try:
        return None if b"\0" in data or len(data) > TEXT_BYTES else data.decode()
    except UnicodeDecodeError:
        return None


def _diff(path: str, old: _Standing | None, new: _Standing | None) -> str:
    before, after = ("" if entry is None else entry.text for entry in (old, new))
    if before is None or after is None:
        return ""
    names = ("/dev/null" if old is None else f"a/{path}", "/dev/null" if new is None else f"b/{path}")
    name_before, name_after = map(visible, names)
    diff = difflib.unified_diff(before.splitlines(), after.splitlines(), name_before, name_after, lineterm="", n=2)
    lines = [*diff]
    shown = [visible(line)[:LINE_CHARS] for line in lines[:DIFF_LINES]]
    if len(lines) > DIFF_LINES:
        shown.append(f"… {len(lines) - DIFF_LINES:,} more lines")
    return "\n".join(shown)


def _note(old: _Standing | None, new: _Standing | None) -> str:
    notes = []
    sized = [entry for entry in (old, new) if entry is not None and stat.S_ISREG(entry.mode)]
    if any(entry.text is None for entry in sized):
        notes.append(" -> ".join(f"{entry.size:,} bytes" for entry in sized))
    if old is not None and new is not None and (old.mode ^ new.mode) & PERMISSIONS and not stat.S_ISLNK(new.mode):
        notes.append(f"mode {old.mode & PERMISSIONS:o} -> {new.mode & PERMISSIONS:o}")
    return ", ".join(notes)
