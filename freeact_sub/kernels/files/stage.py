"""`Stage`: carries out planned changes of a workspace (`FileChange`), all of them or as many as possible.

What is new is written into the workspace's folder for freeact first, so that a full disk is met before anything is changed,
and then put in place by one rename; what stood there is kept until all is done. The host does it while an agent's code may
be changing the workspace: places are reached without following links (`places.py`). Nothing is ever open to more people than
it is to be in the end: files are made for their owner alone and get their mode before their name.
"""

import contextlib
import errno
import os
import secrets
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from freeact_sub.kernels.files.journal import (
    FREEACT,
    STAGES,
    FileStep,
    NotUndoneError,
    TakeOver,
    noted,
    recover,
    remove_in,
    undo,
)
from freeact_sub.kernels.files.places import (
    FOLDER,
    NEW_FILE,
    PERMISSIONS,
    around,
    identity_of,
    link,
    mode_of,
    move,
    opened,
    set_mode,
)
from freeact_sub.system.safe_files import make_folder

ROOT: Final = "."
"""The path of the workspace itself."""


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """One difference between two states: an entry to make, to change or to remove."""

    path: str
    """Relative to the workspace."""
    before: int
    """Kind and permission bits in the first state. 0: there was nothing."""
    mode: int
    """Kind and permission bits in the second state. 0: there is nothing."""
    old_blob: str = ""
    blob: str = ""
    """The new content of a file, or the target of a link, as git names it. Empty: the content stays, or is not git's."""
    is_implied: bool = False
    """A folder that comes or goes with what is in it."""

    @property
    def is_other_kind(self) -> bool:
        """Whether the entry comes, goes, or becomes another kind."""
        return stat.S_IFMT(self.before) != stat.S_IFMT(self.mode)


def is_content(mode: int) -> bool:
    """Whether it is a file or a link: git stores these alone."""
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def folders_above(path: str) -> list[str]:
    """The folders above a path, the outermost first, without the workspace."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


FOR_OWNER: Final = 0o700


class Stage:
    """The new entries of one take-over; a context manager. Its methods block, and leaving it waits for those at work."""

    def __init__(self, workspace: Path) -> None:
        """Args: workspace: a folder of the user's; what a killed program has left half done in it is undone first."""
        self._workspace = workspace
        self._staged: dict[str, str] = {}
        self._settled = True
        self._one_at_a_time = threading.RLock()
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Raises: OSError: There can be no folder for what is new."""
        make_folder(self._workspace / FREEACT)
        recover(self._workspace)
        with self._one_at_a_time, contextlib.ExitStack() as stack:
            self.root = os.open(self._workspace, FOLDER & ~os.O_NOFOLLOW)
            stack.callback(os.close, self.root)
            freeact = stack.enter_context(opened(self.root, FREEACT))
            self._name = f"{STAGES}{os.getpid()}-{secrets.token_hex(4)}"
            stack.callback(lambda: remove_in(self._workspace, freeact, self._name) if self._settled else None)
            os.mkdir(self._name, FOR_OWNER, dir_fd=freeact)
            self._folder = stack.enter_context(opened(freeact, self._name))
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._one_at_a_time:
            self._open.close()

    @contextlib.contextmanager
    def new_file(self, path: str, mode: int) -> Iterator[int]:
        """Writes the new content of a file: into the descriptor."""
        with self._one_at_a_time:
            writing = os.open(self._new(path), NEW_FILE, 0o600, dir_fd=self._folder)
            try:
                yield writing
                os.fchmod(writing, mode & PERMISSIONS)
            finally:
                os.close(writing)

    def new_link(self, path: str, target: bytes | str) -> None:
        """Makes a new link. Raises: ValueError: Its target cannot be one."""
        with self._one_at_a_time:
            name = self._new(path)
            os.symlink(target, os.fsencode(name) if isinstance(target, bytes) else name, dir_fd=self._folder)

    def new_pipe(self, path: str, mode: int) -> None:
        """Makes a new FIFO."""
        name = self._new(path)
        os.mkfifo(name, 0o600, dir_fd=self._folder)
        set_mode(self._folder, name, mode)

    def _new(self, path: str) -> str:
        name = f"new-{len(self._staged)}"
        self._staged[path] = name
        return name

    def take_over(self, changes: Sequence[FileChange], *, whole: bool) -> set[str]:
        """Puts all in place. New files, links and FIFOs must have been made.

        Args:
            changes: What is to become of the entries.
            whole: What fails undoes what was done; else the rest is done all the same.

        Returns:
            The paths that are not what they should be.

        Raises:
            OSError: It failed, and the workspace is as it was.
            NotUndoneError: Not all of it could be undone.
        """
        with self._one_at_a_time:
            closed = self._closed_folders(changes)
            try:
                return self._taken_over(self._steps(changes, closed), whole=whole)
            except BaseException:  # also where there can be no journal
                for path, mode in reversed(closed.items()):
                    with contextlib.suppress(OSError):
                        set_mode(self.root, path, mode)
                raise

    def _taken_over(self, steps: Sequence[FileStep], *, whole: bool) -> set[str]:
        plan = TakeOver(workspace=str(self._workspace), stage=self._name, steps=[list(step) for step in steps])
        failed = set()
        with noted(plan):
            try:
                for step in steps:
                    try:
                        done = self._carry_out(step)
                    except (OSError, ValueError):
                        if whole:
                            raise
                        done = False
                    if not done:
                        failed.add(step.path)
            except BaseException as error:
                if reasons := undo(plan, self.root, self._folder):
                    self._settled = False
                    raise NotUndoneError(
                        f"files were neither written ({error}) nor restored ({reasons[0]}): the originals are in .freeact "
                        "of the workspace, and are restored when an agent is next opened there"
                    ) from error
                raise
        return failed

    def _steps(self, changes: Sequence[FileChange], closed: Mapping[str, int]) -> list[FileStep]:
        """In which order it is done. The modes of folders come last: one may be closed to its owner."""
        goes = [change for change in changes if change.before and change.is_other_kind]
        files = [change for change in goes if not stat.S_ISDIR(change.before)]
        folders = sorted((change for change in goes if stat.S_ISDIR(change.before)), key=_depth_of, reverse=True)
        gone = {change.path for change in (*files, *folders)}
        steps = [FileStep("mode", path, mode | FOR_OWNER, before=mode) for path, mode in closed.items()]
        steps += [self._removal(f"was-{number}", change) for number, change in enumerate((*files, *folders))]
        comes = [change for change in changes if change.mode and change.is_other_kind]
        made = sorted((change for change in comes if stat.S_ISDIR(change.mode)), key=_depth_of)
        steps += [FileStep("folder", change.path) for change in made]
        for number, change in enumerate(change for change in changes if change.path in self._staged):
            staged = self._staged[change.path]
            stands = mode_of(self.root, change.path) != 0 and change.path not in gone
            identity = identity_of(self._folder, staged) or []
            steps.append(FileStep("place", change.path, change.mode, staged, f"old-{number}", stands, identity))
        special = [change for change in comes if not stat.S_ISDIR(change.mode) and change.path not in self._staged]
        steps += [FileStep("lost", change.path) for change in special]
        moded = [change for change in changes if change.mode and change.before and not change.is_other_kind]
        steps += [
            FileStep("mode", change.path, change.mode, before=mode_of(self.root, change.path))
            for change in moded
            if change.path not in self._staged and not stat.S_ISDIR(change.mode)
        ]
        modes = {**closed} | {change.path: change.mode for change in changes if stat.S_ISDIR(change.mode)}
        last = [FileStep("mode", path, mode, before=mode_of(self.root, path)) for path, mode in modes.items()]
        return [*steps, *sorted(last, key=_depth_of, reverse=True)]

    def _closed_folders(self, changes: Iterable[FileChange]) -> dict[str, int]:
        """Lets the owner, and nobody else, into the folders above the changes. Returns the modes that these had."""
        closed = {}
        for path in sorted({ROOT}.union(*(folders_above(change.path) for change in changes)), key=_depth):
            mode = mode_of(self.root, path)
            if stat.S_ISDIR(mode) and mode & FOR_OWNER != FOR_OWNER:
                with contextlib.suppress(OSError):
                    set_mode(self.root, path, mode | FOR_OWNER)
                    closed[path] = mode
        return closed

    def _removal(self, kept: str, change: FileChange) -> FileStep:
        mode = mode_of(self.root, change.path)
        return FileStep("remove", change.path, change.mode, kept="" if stat.S_ISDIR(change.before) else kept, before=mode)

    def _carry_out(self, step: FileStep) -> bool:
        """Returns whether the entry is what it should be."""
        match step.kind:
            case "remove":
                return self._remove(step)
            case "folder":
                with around(self.root, step.path) as (folder, name), contextlib.suppress(FileExistsError):
                    os.mkdir(name, FOR_OWNER, dir_fd=folder)
            case "place":
                with around(self.root, step.path) as (folder, name):
                    if step.stands:
                        link(folder, name, self._folder, step.kept)
                    move(self._folder, step.staged, folder, name)
            case "mode":
                return set_mode(self.root, step.path, step.mode)
            case _:  # sockets and devices cannot be made again
                return False
        return True

    def _remove(self, step: FileStep) -> bool:
        try:
            with around(self.root, step.path) as (folder, name):
                if step.kept:
                    move(folder, name, self._folder, step.kept)
                else:
                    os.rmdir(name, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return True
            if step.kept or error.errno != errno.ENOTEMPTY:
                raise
            return not step.mode  # a folder in which somebody has put something stays
        return True


def _depth_of(item: FileChange | FileStep) -> int:
    return _depth(item.path)


def _depth(path: str) -> int:
    return -1 if path == ROOT else path.count("/")
