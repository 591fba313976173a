"""Undoes promotions whose program was killed in the middle: the workspace becomes as it was before.

While files are put in place, a journal in the user's own folder says what stood at each path; what was replaced or deleted
is kept in the stage until all is in place. Removing the journal is the moment from which on the promotion counts. Whoever
next begins to work in the workspace undoes what a journal tells of whose writer has ended: that is known by its lock. The
journal is not in the workspace, for whoever can write there could have the host undo what was never done. To undo can be
interrupted and begun again: each step looks at what is there. What cannot be put back stays in the stage, with its journal.
"""

import contextlib
import fcntl
import json
import logging
import os
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from freeact_sub.config.schema import user_folder
from freeact_sub.kernels.workspaces.changes import open_below
from freeact_sub.kernels.workspaces.layer import FOLDER, opened
from freeact_sub.system.removal import remove

FOLDER_NAME: Final = "promotions"
FREEACT: Final = ".freeact"
STAGES: Final = "promoted-"
"""In the workspace's folder of freeact: what is staged."""

UNDONE: Final = (
    "a program was killed while it took over the files of a branch: the workspace has been put back as it was before that"
)

logger = logging.getLogger(__name__)


class NotUndoneError(OSError):
    """A promotion has failed, and what it had done could not be undone: stage and journal stay for `recover`."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The steps of a promotion. All paths are relative to the workspace."""

    workspace: str
    stage: str
    """The name of the folder in `.freeact` that holds what is staged and what was replaced."""
    files: list[tuple[str, str, str, bool, list[int]]] = field(default_factory=list)
    """Path, the names of what is staged and of what was replaced, whether something stood there, and the identity of what is
    staged."""
    deleted: list[tuple[str, str]] = field(default_factory=list)
    """Path, and the name of what stood there; a deleted folder has none."""
    folders: list[str] = field(default_factory=list)
    """Those that did not exist, the outermost first."""


@contextlib.contextmanager
def noted(plan: Plan) -> Iterator[None]:
    """Keeps a plan on disk while it is carried out, or undone.

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
            raise FileNotFoundError(f"{path} was taken for one that a killed program had left: try again")
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
    """Undoes promotions into a workspace whose program was killed in the middle; returns how many. It blocks."""
    undone = set[str]()
    with contextlib.suppress(OSError):
        for path in sorted((user_folder() / FOLDER_NAME).glob("*.json")):
            with contextlib.suppress(OSError):
                undone |= _recovered(path, str(workspace))
    with contextlib.suppress(OSError):
        _sweep(workspace, undone)
    return len(undone)


def _sweep(workspace: Path, undone: set[str]) -> None:
    """Removes what programs that were killed have staged, but for what could not be undone. Args: undone: stages."""
    root = os.open(workspace, FOLDER & ~os.O_NOFOLLOW)
    try:
        with opened(root, FREEACT) as freeact:
            stages = {name for name in os.listdir(freeact) if name.startswith(STAGES)}  # pathlib knows no descriptors
            ended = {name for name in stages if _has_ended(name)}
            for name in (ended - _unsettled() if ended else ended) | (undone & stages):
                remove(f"/proc/self/fd/{freeact}/{name}")
    finally:
        os.close(root)


def _has_ended(stage: str) -> bool:
    """Whether the program that has made a stage has ended."""
    pid = stage.removeprefix(STAGES).partition("-")[0]
    return pid.isdigit() and not Path(f"/proc/{pid}").exists()


def _unsettled() -> set[str]:
    """The stages of promotions that are at work, or could not be undone; of any workspace, for it may have been moved."""
    found = set[str]()
    for path in (user_folder() / FOLDER_NAME).glob("*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError):
            found.add(Plan(**json.loads(path.read_bytes())).stage)
    return found


def _recovered(path: Path, workspace: str) -> set[str]:
    """Undoes what a journal tells of, if it is into this workspace and not at work. Returns its stage, if it was."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with contextlib.suppress(BlockingIOError):  # it is at work
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                plan = Plan(**json.loads(path.read_bytes()))
            except (ValueError, TypeError):
                path.unlink()  # it was not written to its end, and so nothing was done
                return set()
            if _is_into(plan, workspace):
                _undo(plan, workspace)
                path.unlink()
                return {plan.stage}
    finally:
        os.close(descriptor)
    return set()


def _is_into(plan: Plan, workspace: str) -> bool:
    """Whether a plan is for this workspace, which may have another name than it had then."""
    stage = Path(FREEACT, plan.stage)
    with contextlib.suppress(OSError):
        if Path(plan.workspace).samefile(workspace):
            return True
    return os.path.lexists(Path(workspace, stage)) and not os.path.lexists(Path(plan.workspace, stage))


def _undo(plan: Plan, workspace: str) -> None:
    """Does what it can. Raises OSError: something that stood in the workspace could not be put back; the stage has it."""
    with contextlib.ExitStack() as stack:
        root = os.open(workspace, FOLDER & ~os.O_NOFOLLOW)
        stack.callback(os.close, root)
        try:
            freeact = stack.enter_context(opened(root, FREEACT))
            stage = stack.enter_context(opened(freeact, plan.stage))
        except FileNotFoundError:
            return  # somebody has removed it
        failed = [error for place in reversed(plan.files) if (error := _put_back(root, stage, *place))]
        for path in reversed(plan.folders):
            with contextlib.suppress(OSError), _around(root, path) as (folder, name):
                os.rmdir(name, dir_fd=folder)
        failed += [error for place in reversed(plan.deleted) if (error := _bring_back(root, stage, *place))]
        if failed:
            logger.warning(
                "a promotion that was cut off could not be undone as a whole (%s): what it had replaced is in %s, and it is "
                "tried again at the next start, until that folder is removed",
                failed[0],
                Path(workspace, FREEACT, plan.stage),
            )
            raise failed[0]


def _put_back(
    root: int, stage: int, path: str, staged: str, kept: str, existed: bool, identity: list[int]
) -> OSError | None:
    """Undoes that a file was put in place. Returns why what stood there is still in the stage, where it should not be."""
    if identity_of(stage, staged) is not None:
        return None  # it was never put in place
    try:
        with _around(root, path) as (folder, name):
            if identity_of(folder, name) != identity:
                if identity_of(stage, kept) is not None:
                    logger.warning("%s was changed after a promotion had been cut off, and stays as it is", path)
            elif existed:
                os.rename(kept, name, src_dir_fd=stage, dst_dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)
    except OSError as error:
        return error if identity_of(stage, kept) is not None else None
    return None


def _bring_back(root: int, stage: int, path: str, kept: str) -> OSError | None:
    """Undoes a deletion. Returns why the file is still in the stage, if it is."""
    try:
        with _around(root, path) as (folder, name):
            if identity_of(folder, name) is not None:
                return None  # it was not deleted, or somebody has made another one
            if kept:
                os.rename(kept, name, src_dir_fd=stage, dst_dir_fd=folder)
            else:
                os.mkdir(name, 0o755, dir_fd=folder)
    except OSError as error:
        return error if kept and identity_of(stage, kept) is not None else None
    return None


def identity_of(folder: int, name: str) -> list[int] | None:
    """The identity of a file, link or folder, which changes if somebody replaces or writes it. None: it does not exist."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return [found.st_ino, found.st_mtime_ns]


@contextlib.contextmanager
def _around(root: int, path: str) -> Iterator[tuple[int, str]]:
    folder = open_below(root, path.rstrip("/"))
    try:
        yield folder, path.rstrip("/").rsplit("/", 1)[-1]
    finally:
        os.close(folder)
