"""`OwnFiles`: the copy of a workspace that one branch has, as the host knows it."""

import asyncio
import contextlib
import os
import stat
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from freeact_sub.config.schema import PROTECTED, token_folder
from freeact_sub.errors import KernelBranchError
from freeact_sub.kernels.files.places import open_below
from freeact_sub.kernels.workspaces.changes import Changes, Stamp, difference, found_in, stamps
from freeact_sub.kernels.workspaces.layer import CHANGES, COPY, FOLDER, Copying, CopyLimitError
from freeact_sub.system.private_folders import KernelFolder
from freeact_sub.system.safe_files import files_in

MAX_FILES: Final = 2_000
MAX_BYTES: Final = 64 * 1024 * 1024
"""The bound on a full copy; if the file system shares blocks, only the number of files counts."""
CACHE: Final = "__pycache__"
"""No change of anybody's: every import writes it."""
COMPARED_BYTES: Final = 1 << 20

Kind = Literal["overlay", "copy"]


@dataclass(kw_only=True)
class OwnFiles:
    """A copy of a workspace; it goes with the folder of its kernel."""

    kind: Kind
    """An overlay holds what differs; a copy holds all of it, its blocks shared with the workspace where they can be."""
    root: Path
    """The path at which the branch sees its workspace: the workspace's own, or one in the private folder."""
    workspace: Path
    folder: KernelFolder
    """The private folder of the branch's kernel."""
    before: dict[str, Stamp]
    """The workspace as it was when the first of the branches was made that led to this one."""
    copied: Mapping[str, Stamp] = field(default_factory=dict)
    """For a copy: its files as they were made."""
    kept: tuple[str, ...] = ()
    """Paths that are not promoted, besides those outside any workspace; relative to it."""
    differs: frozenset[str] = frozenset()
    """For a copy: the files that differed from the workspace when they were made."""

    @property
    def covers(self) -> bool:
        """It is at the workspace's own path."""
        return self.root == self.workspace

    def look(self) -> Changes:
        """Returns what the branch has changed. Blocks; best called while the branch is idle.

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
        """Returns the paths of the workspace that are not as the branch has found them, sorted. Blocks.

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
        """The folder that holds the changes.

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
    """Whether freeact, or the user's git, obeys what is at the path, below it or above it.

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
    """Makes a branch's own copy: an overlay where the machine can, else a copy.

    Args:
        workspace: The workspace of the agent.
        folder: The folder of the branch.
        pid: The process id of the kernel that is branched, whose mounts the branch has.
        origin: That kernel's own copy. None: it works in the workspace itself.
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
    """See `layer.py`."""
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


@contextlib.contextmanager
def opened_workspace(path: Path) -> Iterator[int]:
    """The descriptor of a workspace."""
    descriptor = os.open(path, FOLDER & ~os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def same(one: int, other: int, path: str) -> bool:
    """Whether a path is the same file or link below two folders, in content and permissions."""
    with contextlib.ExitStack() as stack:
        try:
            name = path.rsplit("/", 1)[-1]
            folders = []
            for root in (one, other):
                folders.append(open_below(root, path))
                stack.callback(os.close, folders[-1])
            found = [os.stat(name, dir_fd=folder, follow_symlinks=False) for folder in folders]
            if found[0].st_mode & ~0o7000 != found[1].st_mode & ~0o7000 or found[0].st_size != found[1].st_size:
                return False
            if not stat.S_ISREG(found[0].st_mode):
                return os.readlink(name, dir_fd=folders[0]) == os.readlink(name, dir_fd=folders[1])
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            files = [stack.enter_context(open(os.open(name, flags, dir_fd=folder), "rb")) for folder in folders]
            while (piece := files[0].read(COMPARED_BYTES)) == files[1].read(COMPARED_BYTES):
                if not piece:
                    return True
        except OSError:
            pass
        return False
