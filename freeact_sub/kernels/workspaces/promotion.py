"""`promote`: what a branch has changed in its copy is taken over into the workspace, all of it or nothing.

The host does it: a three-way comparison of the copy, the workspace and what stood there when the copy was made, and then one
take-over (`kernels/files/`), which is undone if the program is killed in the middle.
"""

import os
import stat
from collections.abc import Iterator

from freeact_sub.errors import FreeactError, WorkspaceConflictError
from freeact_sub.kernels.files import FileChange, Stage, folders_above
from freeact_sub.kernels.files.places import PERMISSIONS, around, mode_of
from freeact_sub.kernels.workspaces.changes import RIGHTS, Changes, Stamp, stamp_of
from freeact_sub.kernels.workspaces.layer import pour
from freeact_sub.kernels.workspaces.own_files import OwnFiles, opened_workspace, same


def promote(own: OwnFiles, changes: Changes) -> Changes:
    """Takes over what `look` has found. It blocks.

    Returns:
        What was taken over; what the workspace has got in the same way meanwhile is not in it.

    Raises:
        WorkspaceConflictError: The workspace has changed in the same places; nothing was written.
        OSError: It could not be written, for example because the disk is full; the workspace is as it was.
        NotUndoneError: It could not be put back either; the next `recover` does so.
    """
    wanted: list[str] = []
    with own.opened() as copy, opened_workspace(own.workspace) as root:
        try:
            with Stage(own.workspace) as stage:
                wanted = _wanted(changes, copy, root)
                conflicts = tuple(sorted(path for path in wanted if _conflicts(root, path, own)))
                if conflicts:
                    wanted = []
                    raise WorkspaceConflictError(conflicts)
                stage.take_over([*_changes(wanted, changes, copy, stage)], whole=True)
        finally:
            made = {folder for path in wanted for folder in folders_above(path)} - {*own.before}
            for path in (*wanted, *made):  # what was put in place, or put back, is no change of somebody else's
                now = _now(root, path)
                if now is not None:
                    own.before[path.rstrip("/")] = now
                else:
                    own.before.pop(path, None)
    taken = frozenset(wanted)
    return Changes(
        added=tuple(path for path in changes.added if path in taken),
        changed=tuple(path for path in changes.changed if path in taken),
        deleted=tuple(path for path in changes.deleted if path in taken),
        left_out=changes.left_out,
    )


def _changes(wanted: list[str], changes: Changes, copy: int, stage: Stage) -> Iterator[FileChange]:
    """What is to become of each path, and of the folders above it. Stages what is new."""
    placed = [path for path in wanted if path in {*changes.added, *changes.changed}]
    for path in placed:
        if not path.endswith("/"):
            yield FileChange(path=path, before=mode_of(stage.root, path), mode=_staged(copy, path, stage))
    folders = dict.fromkeys(folder for path in placed for folder in folders_above(path))
    for folder in folders:
        before = mode_of(stage.root, folder)
        if not stat.S_ISDIR(before) or f"{folder}/" in changes.changed:
            yield FileChange(path=folder, before=before, mode=mode_of(copy, folder) & (RIGHTS | stat.S_IFDIR))
    for path in set(wanted) & set(changes.deleted) - {*placed, *folders}:
        yield FileChange(path=path, before=mode_of(stage.root, path), mode=0)


def _staged(copy: int, path: str, stage: Stage) -> int:
    """Writes what a branch has at a path to the stage. Returns its kind and permission bits."""
    with around(copy, path) as (folder, name):
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            stage.new_link(path, os.readlink(name, dir_fd=folder))
            return found.st_mode
        reading = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            found = os.fstat(reading)
            if not stat.S_ISREG(found.st_mode):
                raise FreeactError(f"{name} is no longer a file")
            with stage.new_file(path, found.st_mode) as writing:
                pour(reading, writing, found.st_size)
                os.fsync(writing)  # a full disk may say so only now
            return stat.S_IFREG | found.st_mode & PERMISSIONS
        finally:
            os.close(reading)


def _wanted(changes: Changes, copy: int, root: int) -> list[str]:
    """The paths at which the workspace is not yet what the copy is."""
    there = {path: same(copy, root, path) for path in (*changes.added, *changes.changed) if not path.endswith("/")}
    there |= {path: _now(root, path) is None for path in changes.deleted if path not in there}
    there |= {path: (now := _now(root, path)) is not None and now.is_folder for path in changes.added if path.endswith("/")}
    there |= {path: _now(root, path) == _now(copy, path) for path in changes.changed if path.endswith("/")}
    return [path for path in dict.fromkeys(changes.paths) if not there.get(path, False)]


def _now(root: int, path: str) -> Stamp | None:
    """What stands at a path. None: nothing that can be reached without a link."""
    try:
        with around(root, path.rstrip("/")) as (folder, name):
            return stamp_of(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except OSError:
        return None


def _conflicts(root: int, path: str, own: OwnFiles) -> bool:
    """Whether the workspace is not what it was at this place, or at a folder above it."""
    name = path.rstrip("/")
    now, before = _now(root, name), own.before.get(name)
    if now != before:
        is_new = path.endswith("/") and (before is None or not before.is_folder)
        return not (is_new and now is not None and now.is_folder)
    while (end := name.rfind("/")) > 0:
        name = name[:end]
        now = _now(root, name)
        if now is not None and not now.is_folder and now != own.before.get(name):
            return True
    return False
