"""Undoes take-overs whose program was killed: restores the earlier state of the workspace.

While files are put in place, a journal in the user's own folder says what stood at each path; what was replaced or deleted
is kept in the stage until all is in place. Removing the journal is the moment from which on the take-over counts. Whoever
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
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from freeact_sub.config.schema import user_folder
from freeact_sub.kernels.files.places import FOLDER, around, identity_of, move, opened, set_mode
from freeact_sub.system.removal import remove

FOLDER_NAME: Final = "promotions"
FREEACT: Final = ".freeact"
STAGES: Final = "promoted-"
"""In the workspace's folder of freeact: what is staged."""

UNDONE: Final = (
    "a program was killed while it wrote files of the workspace, for an undo or from a branch: the workspace has been put "
    "back as it was before that"
)

logger = logging.getLogger(__name__)


class NotUndoneError(OSError):
    """A take-over has failed, and what it had done could not be undone: stage and journal stay for `recover`."""


class FileStep(NamedTuple):
    """One step of a take-over. All that undoing it needs is known before it is done."""

    kind: str
    """`remove`, `folder` (made), `place` (what is staged), `mode` (permission bits), `lost` (nothing can be done)."""
    path: str
    """Relative to the workspace."""
    mode: int = 0
    """Kind and permission bits that the entry gets."""
    staged: str = ""
    """The name of what is staged."""
    kept: str = ""
    """The name of what stood there; a removed folder has none."""
    stands: bool = False
    """Something stands where it is put."""
    identity: Sequence[int] = ()
    """That of what is staged."""
    before: int = 0
    """Kind and permission bits that the entry had."""


@dataclass(frozen=True, kw_only=True)
class TakeOver:
    """The steps of a take-over."""

    workspace: str
    stage: str
    """The name of the folder in `.freeact` that holds what is staged and what was replaced."""
    steps: list[list[Any]]
    """See `FileStep`."""


@contextlib.contextmanager
def noted(plan: TakeOver) -> Iterator[None]:
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
    """Undoes take-overs in a workspace whose program was killed in the middle; returns how many. It blocks."""
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
            stages = {name for name in os.listdir(freeact) if name.startswith(STAGES)}  # noqa: PTH208  # pathlib knows no descriptors
            ended = {name for name in stages if _has_ended(name)}
            for name in (ended - _unsettled() if ended else ended) | (undone & stages):
                remove_in(workspace, freeact, name)
    finally:
        os.close(root)


def _has_ended(stage: str) -> bool:
    """Whether the program that has made a stage has ended."""
    pid = stage.removeprefix(STAGES).partition("-")[0]
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (ValueError, OverflowError, PermissionError):
        pass
    return False


def _unsettled() -> set[str]:
    """The stages of take-overs that are at work, or could not be undone; of any workspace, for it may have been moved."""
    found = set[str]()
    for path in (user_folder() / FOLDER_NAME).glob("*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError):
            found.add(TakeOver(**json.loads(path.read_bytes())).stage)
    return found


def _recovered(path: Path, workspace: str) -> set[str]:
    """Undoes what a journal tells of, if it is into this workspace and not at work. Returns its stage, if it was."""
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
    """Does what it can. Raises OSError: something that stood in the workspace could not be put back; the stage has it."""
    with contextlib.ExitStack() as stack:
        root = os.open(workspace, FOLDER & ~os.O_NOFOLLOW)
        stack.callback(os.close, root)
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
    """Undoes the steps of a plan that were done. Returns why what stood in the workspace is still in the stage, if it is."""
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
    """Removes a stage. Args: freeact: the workspace's folder of freeact, open: code may have put a link in its place."""
    remove(f"/proc/self/fd/{freeact}/{name}" if sys.platform == "linux" else str(workspace / FREEACT / name))
