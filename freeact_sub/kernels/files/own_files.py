"""`OwnFiles`: the copy of a workspace that one branch has; its changes, and how they are taken over (`promote`).

The copy was written by code of a model and may hold anything: it is walked from folder to folder without following a link,
and all but files, links and folders is left out. Stamps tell of the workspace at the time of the copy: promoting compares
copy, workspace and stamps, and then takes over all or nothing (`stage.py`).
"""

import asyncio
import contextlib
import os
import stat
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from freeact_sub.config.schema import PROTECTED, token_folder
from freeact_sub.errors import FreeactError, KernelBranchError, WorkspaceConflictError
from freeact_sub.kernels.files.layer import CHANGES, COPY, MAX_DEPTH, OPAQUE, Copying, CopyLimitError, opened
from freeact_sub.kernels.files.places import around, found_at, mode_of, opened_file, opened_workspace
from freeact_sub.kernels.files.stage import FileChange, Stage, folders_above
from freeact_sub.system.private_folders import KernelFolder
from freeact_sub.system.safe_files import files_in

MAX_ENTRIES: Final = 200_000
"""Maximum files and folders of a workspace, or of a copy."""
RIGHTS: Final = 0o777
"""Permissions of a folder that are compared, and taken over."""


class Stamp(NamedTuple):
    """The state of a file, a link or a folder at one time; of a folder, only its permissions, which are in `kind`."""

    kind: int
    number: int = 0
    size: int = 0
    modified: int = 0
    changed: int = 0

    @property
    def is_folder(self) -> bool:
        """Whether the entry was a folder."""
        return stat.S_ISDIR(self.kind)


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Paths relative to the workspace, sorted; a folder that is empty, or has other permissions, ends with a slash."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Paths that are never taken over: settings of freeact and git, and all but files, links and folders."""
    touched: tuple[str, ...] = field(default=(), compare=False)
    """Files in a layer with unchanged content and permissions, whose owner, attributes or times may differ."""

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths that a promotion would write or delete."""
        return (*self.added, *self.changed, *self.deleted)


@dataclass(kw_only=True)
class Found:
    """Contents of a copy."""

    entries: dict[str, Stamp] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    """Folders that the copy replaces whole, and paths that are gone."""
    special: set[str] = field(default_factory=set)


def stamp_of(found: os.stat_result) -> Stamp:
    """Return the stamp of an entry."""
    if stat.S_ISDIR(found.st_mode):
        return Stamp(stat.S_IFDIR | found.st_mode & RIGHTS)
    return Stamp(stat.S_IFMT(found.st_mode), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def stamps(folder: int) -> dict[str, Stamp]:
    """Return all files, links and folders in a folder, by relative path. Raises: as `found_in`."""
    return found_in(folder).entries


def found_in(folder: int) -> Found:
    """Return the changes in an overlay, or all of another folder.

    Raises:
        FreeactError: There are too many.
    """
    found = Found()
    _walk(folder, "", found, depth=0)
    return found


def difference(before: Mapping[str, Stamp], found: Found, *, is_layer: bool) -> tuple[set[str], set[str], set[str]]:
    """Return the paths that were added, perhaps changed, and deleted.

    Args:
        before: The files of the workspace.
        found: The files of the copy.
        is_layer: The copy holds only the differences from the workspace.
    """
    here = found.entries
    if is_layer:
        gone = {path for path in before if path not in here and not found.hidden.isdisjoint([path, *folders_above(path)])}
        files = {path for path, stamp in here.items() if not stamp.is_folder}
        gone |= {path for path in before if path not in here and not files.isdisjoint(folders_above(path))}
    else:
        gone = {path for path in before if path not in here}
    gone |= {path for path, stamp in here.items() if path in before and before[path].is_folder is not stamp.is_folder}
    full = {above for path in here for above in folders_above(path)}
    added, changed = set[str](), set[str]()
    for path, stamp in here.items():
        if stamp.is_folder:
            if path in before and before[path].is_folder:
                if stamp != before[path]:
                    changed.add(f"{path}/")
            elif path not in full:
                added.add(f"{path}/")
        elif path not in before or before[path].is_folder:
            added.add(path)
        else:
            changed.add(path)
    return added, changed, {path for path in gone if not (path in before and before[path].is_folder and path in full)}


def _walk(folder: int, prefix: str, found: Found, depth: int) -> None:
    for name in sorted(os.listdir(folder)):
        path = f"{prefix}{name}"
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # it has just been removed, or replaced
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
                found.hidden.add(path)
                continue
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                found.special.add(path)
                continue
            if len(found.entries) >= MAX_ENTRIES or depth > MAX_DEPTH:
                raise FreeactError(
                    f"the workspace has more than {MAX_ENTRIES:,} files, or folders more than {MAX_DEPTH} deep"
                )
            found.entries[path] = stamp_of(status)
            if stat.S_ISDIR(status.st_mode):
                try:
                    with opened(folder, name) as inner:
                        if _is_opaque(inner):
                            found.hidden.add(path)
                        _walk(inner, f"{path}/", found, depth + 1)
                except PermissionError:
                    found.special.add(path)


def _is_opaque(folder: int) -> bool:
    try:
        return os.getxattr(f"/proc/self/fd/{folder}", OPAQUE) == b"y"
    except OSError:
        return False


MAX_FILES: Final = 2_000
MAX_BYTES: Final = 64 * 1024 * 1024
"""Size limit of a full copy; if the file system shares blocks, only the number of files counts."""
CACHE: Final = "__pycache__"
"""The folder of compiled code, which imports write: no real change."""
COMPARED_BYTES: Final = 1 << 20

Kind = Literal["overlay", "copy"]


@dataclass(kw_only=True)
class OwnFiles:
    """A copy of a workspace; it goes with the folder of its kernel."""

    kind: Kind
    """The form of the copy: an overlay holds the differences; a copy holds all, its blocks shared where they can be."""
    root: Path
    """The path at which the branch sees its workspace: the workspace's own, or one in the private folder."""
    workspace: Path
    folder: KernelFolder
    before: dict[str, Stamp]
    """The workspace at the time of the first branch that led to this one."""
    copied: Mapping[str, Stamp] = field(default_factory=dict)
    """Files of a full copy at the time when it was made."""
    kept: tuple[str, ...] = ()
    """Paths that are not promoted, besides those outside any workspace; relative to it."""
    differs: frozenset[str] = frozenset()
    """Files of a full copy that differed from the workspace at that time."""

    @property
    def covers(self) -> bool:
        """Whether the copy is at the workspace's own path."""
        return self.root == self.workspace

    def look(self) -> Changes:
        """Return the changes of the branch. Blocks; best called while the branch is idle.

        Raises:
            OSError: The copy cannot be read.
            FreeactError: There is too much of it.
        """
        with self.opened() as copy, opened_workspace(self.workspace) as workspace:
            found = found_in(copy)
            for path in [path for path in found.entries if CACHE in path.split("/")]:
                del found.entries[path]
            added, touched, deleted = difference(self.before, found, is_layer=self.kind == "overlay")
            changed = {
                path for path in touched if path.endswith("/") or self._differs(path, found.entries[path], copy, workspace)
            }
        left_out = {path for path in (*added, *changed, *deleted) if is_protected(path, self.kept)} | found.special
        return Changes(
            added=tuple(sorted(added - left_out)),
            changed=tuple(sorted(changed - left_out)),
            deleted=tuple(sorted(deleted - left_out)),
            left_out=tuple(sorted(left_out)),
            touched=tuple(sorted(touched - changed - left_out)) if self.kind == "overlay" else (),
        )

    def outdated_by(self) -> tuple[str, ...]:
        """Return the paths of the workspace that have changed since the branch began, sorted. Blocks.

        Raises:
            OSError: The workspace cannot be read.
            FreeactError: There is too much of it.
        """
        with opened_workspace(self.workspace) as workspace:
            now = stamps(workspace)
        return tuple(
            sorted(
                path
                for path in self.before.keys() | now.keys()
                if self.before.get(path) != now.get(path) and CACHE not in path.split("/")
            )
        )

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """Open the folder that holds the changes.

        Raises:
            OSError: It is not there any more.
        """
        descriptor = self.folder.open_folder(CHANGES if self.kind == "overlay" else COPY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _differs(self, path: str, stamp: Stamp, copy: int, workspace: int) -> bool:
        if self.kind == "copy":
            return path in self.differs or self.copied.get(path) != stamp
        return not same(copy, workspace, path)


def is_protected(path: str, kept: Iterable[str]) -> bool:
    """Whether freeact, or the user's git, obeys a file at the path, below it or above it.

    Args:
        path: Relative to the workspace.
        kept: The paths that a wall protects (`find_repositories`), relative to it as well.
    """
    name = path.rstrip("/")
    parts = name.casefold().split("/")
    if parts[0] in PROTECTED or ".git" in parts:
        return True
    return any(f"{name}/".startswith(f"{other}/") or f"{other}/".startswith(f"{name}/") for other in kept)


async def lay_over(
    workspace: Path,
    folder: KernelFolder,
    pid: int,
    origin: OwnFiles | None,
    *,
    covers: bool = False,
    lay: Callable[[Mapping[str, Any]], Awaitable[str]],
    kept: Iterable[str] = (),
    sealed: bool = False,
) -> OwnFiles:
    """Make a branch's own copy: an overlay where the machine can, else a full copy.

    Args:
        workspace: The workspace of the agent.
        folder: The folder of the branch.
        pid: The process id of the origin, whose mounts the branch has.
        origin: The origin's own copy. None: it works in the workspace itself.
        covers: The overlay is to be at the path of the workspace. Else, and any other copy, it is in the private folder.
        lay: Mounts an overlay (`ForkServer.lay`).
        kept: Real paths that the wall keeps as they are.
        sealed: For a trial: nothing but the copy and the private folder is to be writable at its place.

    Raises:
        KernelBranchError: Neither is possible; the message says why.
    """
    if await asyncio.to_thread(_holds_tokens, workspace):
        what = "the workspace holds your sign-ins to MCP servers, which a branch could read"
        raise KernelBranchError(f"the branch cannot have files of its own: {what}")
    real = str(workspace.resolve())  # noqa: ASYNC240  # of a folder that has just been looked through
    inside = tuple(path.removeprefix(f"{real}/") for path in kept if path.startswith(f"{real}/"))
    try:
        before = await asyncio.to_thread(_before, workspace) if origin is None else dict(origin.before)
        reason = (
            "its origin has a copy"
            if origin is not None and origin.kind == "copy"
            else await lay(_settings(workspace, folder, pid, origin) | {"covers": covers, "sealed": sealed})
        )
        root = workspace if covers and not reason else folder.path / COPY
        if not reason:
            return OwnFiles(kind="overlay", root=root, workspace=workspace, folder=folder, before=before, kept=inside)
        copied, differs = await asyncio.to_thread(_copy, workspace, folder, origin)
    except (OSError, CopyLimitError) as error:
        raise KernelBranchError(f"the branch cannot have files of its own: {error}") from error
    return OwnFiles(
        kind="copy",
        root=root,
        workspace=workspace,
        folder=folder,
        before=before,
        kept=inside,
        copied=copied,
        differs=differs,
    )


def _settings(workspace: Path, folder: KernelFolder, pid: int, origin: OwnFiles | None) -> dict[str, Any]:
    return {
        "pid": pid,
        "workspace": str(workspace),
        "folder": str(folder.path),
        "identity": folder.identity,
        "origin": None if origin is None else {"path": str(origin.folder.path), "identity": origin.folder.identity},
    }


def _holds_tokens(workspace: Path) -> bool:
    """Whether a copy of the workspace would have tokens, which the wall hides only at their own place."""
    folder = token_folder().resolve()
    return folder.is_relative_to(workspace.resolve()) and bool(files_in(folder, ".json"))


def _before(workspace: Path) -> dict[str, Stamp]:
    with opened_workspace(workspace) as descriptor:
        return stamps(descriptor)


def _copy(workspace: Path, folder: KernelFolder, origin: OwnFiles | None) -> tuple[dict[str, Stamp], frozenset[str]]:
    target = folder.make_folder(COPY)
    try:
        with opened_workspace(workspace) if origin is None else origin.opened() as source:
            Copying(MAX_FILES, MAX_BYTES).folder(source, target)
        differs = frozenset[str]()
        if origin is not None:
            changes = origin.look()
            differs = frozenset((*changes.changed, *changes.left_out))
        return stamps(target), differs
    finally:
        os.close(target)


def same(one: int, other: int, path: str) -> bool:
    """Whether a path is the same file or link below two folders, in content and permissions."""
    with contextlib.suppress(OSError), around(one, path) as (here, name), around(other, path) as (there, _):
        found = [os.stat(name, dir_fd=folder, follow_symlinks=False) for folder in (here, there)]
        if found[0].st_mode & ~0o7000 != found[1].st_mode & ~0o7000 or found[0].st_size != found[1].st_size:
            return False
        if not stat.S_ISREG(found[0].st_mode):
            return os.readlink(name, dir_fd=here) == os.readlink(name, dir_fd=there)
        with opened_file(here, name) as ours, opened_file(there, name) as theirs:
            while (piece := ours.read(COMPARED_BYTES)) == theirs.read(COMPARED_BYTES):
                if not piece:
                    return True
    return False


def promote(own: OwnFiles, changes: Changes) -> Changes:
    """Take over the changes that `look` has found. Blocks.

    Returns:
        The changes taken over, without those that the workspace has got meanwhile.

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
    """Yield the change of each path, and of the folders above it. Stages new entries."""
    placed = [path for path in wanted if path in {*changes.added, *changes.changed}]
    for path in placed:
        if not path.endswith("/"):
            yield FileChange(path=path, before=mode_of(stage.root, path), mode=stage.new_copy(path, copy))
    folders = dict.fromkeys(folder for path in placed for folder in folders_above(path))
    for folder in folders:
        before = mode_of(stage.root, folder)
        if not stat.S_ISDIR(before) or f"{folder}/" in changes.changed:
            yield FileChange(path=folder, before=before, mode=mode_of(copy, folder) & (RIGHTS | stat.S_IFDIR))
    for path in set(wanted) & set(changes.deleted) - {*placed, *folders}:
        yield FileChange(path=path, before=mode_of(stage.root, path), mode=0)


def _wanted(changes: Changes, copy: int, root: int) -> list[str]:
    there = {path: same(copy, root, path) for path in (*changes.added, *changes.changed) if not path.endswith("/")}
    there |= {path: _now(root, path) is None for path in changes.deleted if path not in there}
    there |= {path: (now := _now(root, path)) is not None and now.is_folder for path in changes.added if path.endswith("/")}
    there |= {path: _now(root, path) == _now(copy, path) for path in changes.changed if path.endswith("/")}
    return [path for path in dict.fromkeys(changes.paths) if not there.get(path, False)]


def _now(root: int, path: str) -> Stamp | None:
    """Return the entry at a path. None: none can be reached without a link."""
    found = found_at(root, path.rstrip("/"))
    return None if found is None else stamp_of(found)


def _conflicts(root: int, path: str, own: OwnFiles) -> bool:
    """Whether the workspace has changed at this place, or at a folder above it."""
    name = path.rstrip("/")
    now, before = _now(root, name), own.before.get(name)
    if now != before:
        is_new = path.endswith("/") and (before is None or not before.is_folder)
        return not (is_new and now is not None and now.is_folder)
    for above in folders_above(name):
        now = _now(root, above)
        if now is not None and not now.is_folder and now != own.before.get(above):
            return True
    return False
