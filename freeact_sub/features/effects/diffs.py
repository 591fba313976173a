"""Diffs of the changes that a trial has made in its copy of the workspace.

The copy was written by code that nobody has approved: it is reached folder by folder, without following a link.
"""

import difflib
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from freeact_sub.events.effects import FileEffect
from freeact_sub.kernels.files.places import READ, around
from freeact_sub.kernels.workspaces import Changes, OwnFiles
from freeact_sub.kernels.workspaces.own_files import opened_workspace
from freeact_sub.text import cut, lines_to_compare, whole_line

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
        touched = changes.touched[: SHOWN - len(effects)]
        notes = {path: _note(_Standing.at(workspace, path), _Standing.at(copy, path)) for path in touched}
        effects += [FileEffect(path=path, what="changed", note=note) for path, note in notes.items() if note]
    if more := len(changes.paths) - SHOWN:
        note = f"and {more:,} more paths"
        effects += [FileEffect(path="…", what="changed", note=note)] if more > 0 else []
    return tuple(effects)


class _Standing:
    """A file, link or folder as it is."""

    def __init__(self, found: os.stat_result, text: str | None, attributes: Mapping[str, bytes]) -> None:
        self.mode, self.size, self.text, self.attributes = found.st_mode, found.st_size, text, attributes
        self.owner, self.modified = (found.st_uid, found.st_gid), found.st_mtime_ns

    @classmethod
    def at(cls, root: int, path: str) -> "_Standing | None":
        """The entry at a path. None: there is none that can be reached without a link."""
        try:
            with around(root, path.rstrip("/")) as (folder, name):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISLNK(found.st_mode):
                    return cls(found, f"link to {os.readlink(name, dir_fd=folder)}\n", {})
                text, attributes = _content(folder, name) if stat.S_ISREG(found.st_mode) else (None, {})
                return cls(found, text, attributes)
        except OSError:
            return None


def _content(folder: int, name: str) -> tuple[str | None, dict[str, bytes]]:
    """The text of a file, and its extended attributes. None: it is no text, too long, or cannot be read."""
    try:
        descriptor = os.open(name, READ, dir_fd=folder)
    except OSError:
        return None, {}
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None, {}
        data, attributes = file.read(TEXT_BYTES + 1), _attributes(descriptor)
    try:
        return None if b"\0" in data or len(data) > TEXT_BYTES else data.decode(), attributes
    except UnicodeDecodeError:
        return None, attributes


def _attributes(descriptor: int) -> dict[str, bytes]:
    """The extended attributes of a file, without those of the layer that the copy is; none where the system has none."""
    try:
        names = [name for name in os.listxattr(descriptor) if "overlay" not in name]
        return {name: os.getxattr(descriptor, name) for name in names}
    except (OSError, AttributeError):
        return {}


def _diff(path: str, old: _Standing | None, new: _Standing | None) -> str:
    before, after = ("" if entry is None else entry.text for entry in (old, new))
    if before is None or after is None:
        return ""
    names = ("/dev/null" if old is None else f"a/{path}", "/dev/null" if new is None else f"b/{path}")
    old_lines, new_lines = lines_to_compare(before, after)
    old_name, new_name = map(whole_line, names)
    diff = difflib.unified_diff(old_lines, new_lines, old_name, new_name, lineterm="", n=2)
    lines = [*diff]
    shown = [cut(whole_line(line), LINE_CHARS) for line in lines[:DIFF_LINES]]
    if len(lines) > DIFF_LINES:
        shown.append(f"… {len(lines) - DIFF_LINES:,} more lines")
    return "\n".join(shown)


def _note(old: _Standing | None, new: _Standing | None) -> str:
    notes = []
    sized = [entry for entry in (old, new) if entry is not None and stat.S_ISREG(entry.mode)]
    if any(entry.text is None for entry in sized):
        notes.append(" -> ".join(f"{entry.size:,} bytes" for entry in sized))
    if old is not None and new is not None:
        notes += _other_notes(old, new)
    return ", ".join(notes)


def _other_notes(old: _Standing, new: _Standing) -> Iterator[str]:
    """What has changed besides the content."""
    if stat.S_IMODE(old.mode ^ new.mode) and not stat.S_ISLNK(new.mode):
        yield f"mode {stat.S_IMODE(old.mode):o} -> {stat.S_IMODE(new.mode):o}"
    if old.owner != new.owner:
        yield f"owner {_owner(old)} -> {_owner(new)}"
    if old.attributes != new.attributes:
        yield "other extended attributes"
    if old.text == new.text and old.modified != new.modified and old.size == new.size:
        yield "another time of its last change"


def _owner(entry: _Standing) -> str:
    return ":".join(map(str, entry.owner))
