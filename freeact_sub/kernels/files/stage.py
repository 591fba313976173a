"""`Stage`: carries out planned changes of a workspace (`FileChange`), all of them or as many as possible.

New entries are written into the workspace's folder for freeact first, so that a full disk is met before anything is changed,
and then put in place by one rename; replaced ones are kept until all is done. The host does it while an agent's code may be
changing the workspace: places are reached without following links (`places.py`). No entry is ever open to more people than
in the end: files are made for their owner alone and get their mode before their name.

While files are put in place, a journal in the user's own folder says what stood at each path. Its removal is the moment from
which on the take-over counts. The next program in the workspace undoes the journals whose writers have ended (`recover`):
locks tell that. The journal is not in the workspace, for code that writes there could let the host undo what was never done.
To undo can be interrupted and begun again: each step looks at the present state. Entries that cannot be put back stay in the
stage, with its journal.
"""

import contextlib
import errno
import fcntl
import json
import logging
import os
import secrets
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from freeact_sub.config.schema import user_folder
from freeact_sub.kernels.files.layer import opened
from freeact_sub.kernels.files.places import (
    NEW_FILE,
    PERMISSIONS,
    around,
    copy,
    identity_of,
    link,
    mode_of,
    move,
    opened_workspace,
    set_mode,
)
from freeact_sub.system.removal import remove
from freeact_sub.system.safe_files import make_folder

FOLDER_NAME: Final = "promotions"
FREEACT: Final = ".freeact"
STAGES: Final = "promoted-"
"""Prefix of the folders of staged entries in the workspace's folder of freeact."""

UNDONE: Final = (
    "a program was killed while it wrote files of the workspace, for an undo or from a branch: the workspace has been put "
    "back as it was before that"
)

logger = logging.getLogger(__name__)


class NotUndoneError(OSError):
    """A failed take-over that could not be undone: stage and journal stay for `recover`."""


class FileStep(NamedTuple):
    """One step of a take-over. All that undoing it needs is known before it is done."""

    kind: str
    """The kind: `remove`, `folder` (made), `place` (staged), `mode` (permission bits), `lost` (nothing can be done)."""
    path: str
    """The path, relative to the workspace."""
    mode: int = 0
    """Kind and permission bits for the entry."""
    staged: str = ""
    kept: str = ""
    """The name of the replaced entry; a removed folder has none."""
    stands: bool = False
    """Whether an entry stands at the place."""
    identity: Sequence[int] = ()
    before: int = 0
    """Kind and permission bits that the entry had."""


@dataclass(frozen=True, kw_only=True)
class TakeOver:
    """The steps of a take-over."""

    workspace: str
    stage: str
    """The name of the folder in `.freeact` that holds staged and replaced entries."""
    steps: list[list[Any]]
    """The fields of each `FileStep`."""


@contextlib.contextmanager
def noted(plan: TakeOver) -> Iterator[None]:
    """Keep a plan on disk while it is carried out, or undone.

    Raises:
        OSError: It cannot be written; nothing is to be done then.
    """
    done = True
    folder = user_folder() / FOLDER_NAME
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{secrets.token_hex(8)}.json"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # until this process ends, in whatever way
        if not path.exists():
            raise FileNotFoundError(f"{path} was removed as a leftover of a killed program: try again")
        with open(descriptor, "wb", closefd=False) as file:
            file.write(json.dumps(asdict(plan)).encode())
            file.flush()
            os.fsync(descriptor)
        yield
    except NotUndoneError:
        done = False
        raise
    finally:
        if done:
            path.unlink(missing_ok=True)
        os.close(descriptor)


def recover(workspace: Path) -> int:
    """Undo take-overs in a workspace whose program was killed in the middle; return how many. Blocks."""
    undone = set[str]()
    with contextlib.suppress(OSError):
        for path in sorted((user_folder() / FOLDER_NAME).glob("*.json")):
            with contextlib.suppress(OSError):
                undone |= _recovered(path, str(workspace))
    with contextlib.suppress(OSError):
        _sweep(workspace, undone)
    return len(undone)


def _sweep(workspace: Path, undone: set[str]) -> None:
    """Remove the staged entries of killed programs, but for take-overs that could not be undone. Args: undone: stages."""
    with opened_workspace(workspace) as root, opened(root, FREEACT) as freeact:
        stages = {name for name in os.listdir(freeact) if name.startswith(STAGES)}
        ended = {name for name in stages if _has_ended(name)}
        for name in (ended - _unsettled() if ended else ended) | (undone & stages):
            remove_in(workspace, freeact, name)


def _has_ended(stage: str) -> bool:
    pid = stage.removeprefix(STAGES).partition("-")[0]
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (ValueError, OverflowError, PermissionError):
        pass
    return False


def _unsettled() -> set[str]:
    """Return the stages of take-overs at work, or not undone; of any workspace, for it may have been moved."""
    found = set[str]()
    for path in (user_folder() / FOLDER_NAME).glob("*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError):
            found.add(TakeOver(**json.loads(path.read_bytes())).stage)
    return found


def _recovered(path: Path, workspace: str) -> set[str]:
    """Undo the take-over of a journal, if it is into this workspace and not at work. Return its stage, if it was."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with contextlib.suppress(BlockingIOError):  # it is at work
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                plan = TakeOver(**json.loads(path.read_bytes()))
            except (ValueError, TypeError):
                path.unlink()  # it was not written to its end, and so nothing was done
                return set()
            if _is_into(plan, workspace):
                _undo_at(plan, workspace)
                path.unlink()
                return {plan.stage}
    finally:
        os.close(descriptor)
    return set()


def _is_into(plan: TakeOver, workspace: str) -> bool:
    """Whether a plan is for this workspace, which may have another name than it had then."""
    stage = Path(FREEACT, plan.stage)
    with contextlib.suppress(OSError):
        if Path(plan.workspace).samefile(workspace):
            return True
    return os.path.lexists(Path(workspace, stage)) and not os.path.lexists(Path(plan.workspace, stage))


def _undo_at(plan: TakeOver, workspace: str) -> None:
    """Undo a plan as far as possible. Raises: OSError: An entry could not be put back; the stage has it."""
    with contextlib.ExitStack() as stack:
        root = stack.enter_context(opened_workspace(Path(workspace)))
        try:
            freeact = stack.enter_context(opened(root, FREEACT))
            stage = stack.enter_context(opened(freeact, plan.stage))
        except FileNotFoundError:
            return  # somebody has removed it
        if failed := undo(plan, root, stage):
            logger.warning(
                "files that were being taken over could not be put back as a whole (%s): what they had replaced is in %s, "
                "and it is tried again at the next start, until that folder is removed",
                failed[0],
                Path(workspace, FREEACT, plan.stage),
            )
            raise failed[0]


def undo(plan: TakeOver, root: int, stage: int) -> list[OSError]:
    """Undo the steps of a plan that were done. Return the reasons why entries of the workspace are still in the stage."""
    failed = []
    for step in (FileStep(*step) for step in reversed(plan.steps)):
        try:
            with around(root, step.path) as (folder, name):
                _undo_step(step, root, stage, folder, name)
        except OSError as error:
            if step.kept and identity_of(stage, step.kept) is not None:
                failed.append(error)
    return failed


def _undo_step(step: FileStep, root: int, stage: int, folder: int, name: str) -> None:
    stands = identity_of(folder, name)
    match step.kind:
        case "place" if identity_of(stage, step.staged) is None:  # else it was never put in place
            if stands != list(step.identity):
                if identity_of(stage, step.kept) is not None:
                    logger.warning("%s was changed after it had been taken over, and stays as it is", step.path)
            elif step.stands:
                move(stage, step.kept, folder, name)
            else:
                os.unlink(name, dir_fd=folder)
        case "remove" if step.kept and stands is None:  # else it was not removed, or somebody has made another one
            move(stage, step.kept, folder, name)
        case "remove" if not step.kept:
            if stands is None:
                os.mkdir(name, 0o700, dir_fd=folder)
            set_mode(root, step.path, step.before)
        case "folder":
            os.rmdir(name, dir_fd=folder)
        case "mode" if step.before:
            set_mode(root, step.path, step.before)


def remove_in(workspace: Path, freeact: int, name: str) -> None:
    """Remove a stage. Args: freeact: the workspace's folder of freeact, open: code may have put a link in its place."""
    remove(
        f"/proc/self/fd/{freeact}/{name}" if os.path.isdir(f"/proc/self/fd/{freeact}") else str(workspace / FREEACT / name)
    )


ROOT: Final = "."


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """One difference between two states: an entry to make, to change or to remove."""

    path: str
    """The path, relative to the workspace."""
    before: int
    """Kind and permission bits in the first state. 0: there was nothing."""
    mode: int
    """Kind and permission bits in the second state. 0: there is nothing."""
    old_blob: str = ""
    blob: str = ""
    """The new content of a file, or the target of a link, as git names it. Empty: the content stays, or is not git's."""
    is_implied: bool = False
    """Whether a folder comes or goes with its content."""

    @property
    def is_other_kind(self) -> bool:
        """Whether the entry comes, goes, or becomes another kind."""
        return stat.S_IFMT(self.before) != stat.S_IFMT(self.mode)


def is_content(mode: int) -> bool:
    """Whether the mode is of a file or a link: git stores these alone."""
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def folders_above(path: str) -> list[str]:
    """Return the folders above a path, the outermost first, without the workspace."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


FOR_OWNER: Final = 0o700


class Stage:
    """The new entries of one take-over; a context manager. Its methods block, and leaving it waits for those at work."""

    def __init__(self, workspace: Path) -> None:
        """Args: workspace: a folder of the user's; a killed program's unfinished changes in it are undone first."""
        self._workspace = workspace
        self._staged: dict[str, str] = {}
        self._settled = True
        self._one_at_a_time = threading.RLock()
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Raises: OSError: There can be no folder for new entries."""
        make_folder(self._workspace / FREEACT)
        recover(self._workspace)
        with self._one_at_a_time, contextlib.ExitStack() as stack:
            self.root = stack.enter_context(opened_workspace(self._workspace))
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
        """Open a new file; its content is written into the descriptor."""
        with self._one_at_a_time:
            writing = os.open(self._new(path), NEW_FILE, 0o600, dir_fd=self._folder)
            try:
                yield writing
                os.fchmod(writing, mode & PERMISSIONS)
            finally:
                os.close(writing)

    def new_copy(self, path: str, root: int) -> int:
        """Copy a file or a link from the path below another folder. Return its kind and permission bits."""
        with self._one_at_a_time, around(root, path) as (folder, name):
            new = self._new(path)
            copy(folder, name, self._folder, new)
            return os.stat(new, dir_fd=self._folder, follow_symlinks=False).st_mode

    def new_link(self, path: str, target: bytes | str) -> None:
        """Make a new link. Raises: ValueError: Its target cannot be one."""
        with self._one_at_a_time:
            name = self._new(path)
            os.symlink(target, os.fsencode(name) if isinstance(target, bytes) else name, dir_fd=self._folder)

    def new_pipe(self, path: str, mode: int) -> None:
        """Make a new FIFO."""
        name = self._new(path)
        os.mkfifo(name, 0o600, dir_fd=self._folder)
        set_mode(self._folder, name, mode)

    def _new(self, path: str) -> str:
        name = f"new-{len(self._staged)}"
        self._staged[path] = name
        return name

    def take_over(self, changes: Sequence[FileChange], *, whole: bool) -> set[str]:
        """Put all in place. New files, links and FIFOs must have been made.

        Args:
            changes: The changes of the entries.
            whole: A failure undoes all; else the rest is done all the same.

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
        """Return the steps in their order. The modes of folders come last: one may be closed to its owner."""
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
        """Let the owner, and nobody else, into the folders above the changes. Return the earlier modes of these."""
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
        """Carry out a step. Return whether the entry is as it should be."""
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
