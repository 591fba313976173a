"""`promote`: what a branch has changed in its copy is taken over into the workspace, all of it or nothing.

The host does it. Everything is staged first, in the workspace's folder for freeact, so that a full disk is met before
anything is changed; then each file is put in place by one rename, and what stood there is kept until all are. What a
program that is killed in between leaves, the next one undoes (`journal.py`).
"""

import contextlib
import logging
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from functools import partial

from freeact_sub.errors import FreeactError, WorkspaceConflictError
from freeact_sub.kernels.workspaces.changes import Changes, Stamp, open_below, stamp_of
from freeact_sub.kernels.workspaces.journal import FREEACT, STAGES, NotUndoneError, Plan, identity_of, noted, recover
from freeact_sub.kernels.workspaces.layer import opened, pour
from freeact_sub.kernels.workspaces.own_files import OwnFiles, opened_workspace, same
from freeact_sub.system.removal import remove
from freeact_sub.system.safe_files import make_folder

logger = logging.getLogger(__name__)


def promote(own: OwnFiles, changes: Changes) -> Changes:
    """Takes over what `look` has found. It blocks.

    Returns:
        What was taken over; what the workspace has got in the same way meanwhile is not in it.

    Raises:
        WorkspaceConflictError: The workspace has changed in the same places; nothing was written.
        OSError: It could not be written, for example because the disk is full; the workspace is as it was.
        NotUndoneError: It could not be put back either; the next `recover` does so.
    """
    make_folder(own.workspace / FREEACT)
    recover(own.workspace)
    with own.opened() as copy, opened_workspace(own.workspace) as root, opened(root, FREEACT) as freeact:
        wanted = _wanted(changes, copy, root)
        conflicts = tuple(sorted(path for path in wanted if _conflicts(root, path, own)))
        if conflicts:
            raise WorkspaceConflictError(conflicts)
        name = f"{STAGES}{os.getpid()}-{secrets.token_hex(4)}"
        settled = True
        try:
            os.mkdir(name, 0o700, dir_fd=freeact)
            with opened(freeact, name) as folder:
                stage = _Stage(root, folder)
                placed = {*changes.added, *changes.changed}  # a folder that became a file is deleted as well
                for path in wanted:
                    if path in placed:
                        stage.take(copy, path)
                deleted = sorted(set(wanted) & set(changes.deleted), reverse=True)
                with noted(stage.plan(str(own.workspace), name, deleted)):
                    stage.commit(deleted)
        except NotUndoneError:
            settled = False
            raise
        finally:
            if settled:
                remove(f"/proc/self/fd/{freeact}/{name}")
            for path in wanted:  # what was put in place, or put back, is no change of somebody else's
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


def _wanted(changes: Changes, copy: int, root: int) -> list[str]:
    """The paths at which the workspace is not yet what the copy is."""
    there = {path: same(copy, root, path) for path in (*changes.added, *changes.changed) if not path.endswith("/")}
    there |= {path: _now(root, path) is None for path in changes.deleted if path not in there}
    there |= {path: (now := _now(root, path)) is not None and now.is_folder for path in changes.added if path.endswith("/")}
    return [path for path in dict.fromkeys(changes.paths) if not there.get(path, False)]


def _now(root: int, path: str) -> Stamp | None:
    """Returns what exists at a path. None: nothing that can be reached without a link."""
    try:
        folder = open_below(root, path.rstrip("/"))
    except OSError:
        return None
    try:
        return stamp_of(os.stat(path.rstrip("/").rsplit("/", 1)[-1], dir_fd=folder, follow_symlinks=False))
    except OSError:
        return None
    finally:
        os.close(folder)


def _conflicts(root: int, path: str, own: OwnFiles) -> bool:
    """Whether the workspace is not what it was at this place, or at a folder above it."""
    name = path.rstrip("/")
    if _now(root, name) != own.before.get(name):
        return not (path.endswith("/") and (now := _now(root, name)) is not None and now.is_folder)
    while (end := name.rfind("/")) > 0:
        name = name[:end]
        now = _now(root, name)
        if now is not None and not now.is_folder and now != own.before.get(name):
            return True
    return False


class _Stage:
    """The folder of the new files, beside the workspace's."""

    def __init__(self, root: int, folder: int) -> None:
        """Args: root: the workspace. folder: gets what is staged, and keeps what is replaced until all is in place."""
        self._root = root
        self._folder = folder
        self._files: list[tuple[str, str]] = []
        self._folders: list[str] = []
        self._modes: dict[str, int] = {}
        """The permissions of the branch's folders in which something is taken over."""
        self._made: list[str] = []
        self._undo: list[Callable[[], None]] = []

    def take(self, copy: int, path: str) -> None:
        """Copies a file or a link to the stage."""
        for above in _folders_of(path):
            if above not in self._modes:
                with _around(copy, above) as folder:
                    found = os.stat(above.rsplit("/", 1)[-1], dir_fd=folder, follow_symlinks=False)
                    self._modes[above] = found.st_mode & 0o777
        if path.endswith("/"):
            self._folders.append(path)
            return
        staged, name = f"new-{len(self._files)}", path.rsplit("/", 1)[-1]
        with _around(copy, path) as folder:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                os.symlink(os.readlink(name, dir_fd=folder), staged, dir_fd=self._folder)
            else:
                self._copy(folder, name, staged)
        self._files.append((path, staged))

    def plan(self, workspace: str, stage: str, deleted: list[str]) -> Plan:
        """The steps that `commit` will take."""
        stood = {path: now for path, _ in self._files if (now := _now(self._root, path)) is not None}
        files = []
        for number, (path, staged) in enumerate(self._files):
            replaces = path in stood and not stood[path].is_folder and path not in deleted
            identity = identity_of(self._folder, staged) or []
            files.append((path, staged, f"was-{number}", replaces, identity))
        parents = {above for path in (*self._folders, *(path for path, _ in self._files)) for above in _folders_of(path)}
        missing = sorted(path for path in parents if (now := _now(self._root, path)) is None or not now.is_folder)
        gone = []
        for number, path in enumerate(deleted):
            now = _now(self._root, path)
            gone.append((path, "" if now is not None and now.is_folder else f"old-{number}"))
        return Plan(workspace=workspace, stage=stage, files=files, deleted=gone, folders=missing)

    def commit(self, deleted: list[str]) -> None:
        """Puts all in place; what fails undoes what was done.

        Args:
            deleted: Paths, those in a folder before the folder.

        Raises:
            NotUndoneError: Not all of it could be undone.
        """
        try:
            for number, path in enumerate(deleted):
                self._delete(path, f"old-{number}")
            for path in self._folders:
                self._make_folders(path)
            for number, (path, staged) in enumerate(self._files):
                self._make_folders(path)
                self._place(path, staged, f"was-{number}")
            for path in reversed(self._made):  # only now: a folder may be closed to its owner
                self._set_mode(path, self._modes[path])
        except BaseException as error:
            failed = None
            for step in reversed(self._undo):
                try:
                    step()
                except OSError as reason:
                    logger.exception("what was taken over from a branch could not be undone")
                    failed = reason
            if failed is not None:
                raise NotUndoneError(
                    f"files of a branch could not be taken over ({error}), nor put back ({failed}): what they replaced is "
                    "kept in .freeact of the workspace, and is put back when an agent is opened there again"
                ) from error
            raise

    def _copy(self, folder: int, name: str, staged: str) -> None:
        reading = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            found = os.fstat(reading)
            if not stat.S_ISREG(found.st_mode):
                raise FreeactError(f"{name} is not a file any more")
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            writing = os.open(staged, flags, 0o600, dir_fd=self._folder)
            try:
                pour(reading, writing, found.st_size)
                os.fchmod(writing, found.st_mode & 0o777)
                os.fsync(writing)  # a full disk may say so only now
            finally:
                os.close(writing)
        finally:
            os.close(reading)

    def _make_folders(self, path: str) -> None:
        """Makes the folders above a path."""
        parts = path.split("/")[:-1]
        for count in range(1, len(parts) + 1):
            folder_path = "/".join(parts[:count])
            with _around(self._root, folder_path) as folder, contextlib.suppress(FileExistsError):
                os.mkdir(parts[count - 1], 0o700, dir_fd=folder)
                self._made.append(folder_path)
                self._undo.append(partial(self._remove_folder, folder_path))

    def _make_again(self, path: str, mode: int) -> None:
        """Makes a folder that was deleted."""
        with _around(self._root, path) as folder, contextlib.suppress(FileExistsError):
            os.mkdir(path.rsplit("/", 1)[-1], 0o700, dir_fd=folder)
            self._set_mode(path, mode)

    def _set_mode(self, path: str, mode: int) -> None:
        with _around(self._root, path) as folder, opened(folder, path.rsplit("/", 1)[-1]) as made:
            os.fchmod(made, mode)

    def _delete(self, path: str, kept: str) -> None:
        name = path.rsplit("/", 1)[-1]
        with _around(self._root, path) as folder:
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                with contextlib.suppress(OSError):  # somebody has put something in it
                    os.rmdir(name, dir_fd=folder)
                    self._undo.append(partial(self._make_again, path, stat.S_IMODE(mode)))
            else:
                os.rename(name, kept, src_dir_fd=folder, dst_dir_fd=self._folder)
                self._undo.append(partial(self._put_back, path, kept))

    def _place(self, path: str, staged: str, kept: str) -> None:
        name = path.rsplit("/", 1)[-1]
        with _around(self._root, path) as folder:
            try:
                os.link(name, kept, src_dir_fd=folder, dst_dir_fd=self._folder, follow_symlinks=False)
                undo = partial(self._put_back, path, kept)
            except FileNotFoundError:
                undo = partial(self._remove_file, path)
            os.rename(staged, name, src_dir_fd=self._folder, dst_dir_fd=folder)
            self._undo.append(undo)

    def _put_back(self, path: str, kept: str) -> None:
        with _around(self._root, path) as folder:
            os.rename(kept, path.rsplit("/", 1)[-1], src_dir_fd=self._folder, dst_dir_fd=folder)

    def _remove_file(self, path: str) -> None:
        with _around(self._root, path) as folder:
            os.unlink(path.rsplit("/", 1)[-1], dir_fd=folder)

    def _remove_folder(self, path: str) -> None:
        with _around(self._root, path) as folder:
            os.rmdir(path.rsplit("/", 1)[-1], dir_fd=folder)


def _folders_of(path: str) -> Iterator[str]:
    """Those above a path, the outermost first; of a path that ends with a slash also that one."""
    parts = path.split("/")[:-1]
    return ("/".join(parts[:count]) for count in range(1, len(parts) + 1))


@contextlib.contextmanager
def _around(root: int, path: str) -> Iterator[int]:
    """The folder in which a path stands."""
    folder = open_below(root, path)
    try:
        yield folder
    finally:
        os.close(folder)
