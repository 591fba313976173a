"""`KernelRights`: the files and the network that a kernel's code may reach, kept beside its saved variables.

To read a pickle, or to import a module from a search path, is to run code of the kernel that has written it. So variables
come back by themselves only in a kernel that may do no more than the one that has saved them.
"""

import os
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from freeact_sub.kernels.kernel import KernelSpec
from freeact_sub.kernels.wall.sandbox import SYSTEM_FOLDERS, Support, is_below, needed_by, support
from freeact_sub.modes import MODES, Mode

PIECES: Final = {
    "landlock": "this machine has no Landlock",
    "seccomp": "this machine cannot use seccomp",
    "view": "this machine has no mount namespaces",
}
"""Pieces of a wall, with a sentence for a machine without each."""
SYSTEM: Final = (*map(Path, SYSTEM_FOLDERS), Path("/etc"))


class KernelRights(BaseModel):
    """The rights of the code in one kernel."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Mode
    """The actions that need no question."""
    walled: bool
    """Whether the code reaches the listed folders only; else the wall leaves all files and the network open."""
    readable: tuple[str, ...] = ()
    """Readable paths besides the system, the kernel's Python and the writable ones."""
    writable: tuple[str, ...] = ()
    network: bool = True
    pieces: tuple[str, ...] = ()
    """Pieces of the wall that the machine has."""

    @property
    def name(self) -> str:
        """The mode for people: `mode plan`."""
        return f"mode {self.mode}"


def rights_of(spec: KernelSpec, *, own_files: bool = False, machine: Support | None = None) -> KernelRights:
    """Return the rights of a kernel.

    Args:
        spec: The kernel's.
        own_files: It works in a copy of the workspace.
        machine: Its means. None: those of this machine.
    """
    wall = spec.sandbox
    if wall is None or not wall.walled:
        return KernelRights(mode=wall.mode if wall is not None else spec.mode, walled=False)
    found = machine or support()
    python = tuple(map(Path, needed_by(spec.python)))
    workspace = spec.workspace if own_files else None
    return KernelRights(
        mode=wall.mode,
        walled=True,
        readable=tuple(str(path) for path in wall.readable if not is_below(path, (*SYSTEM, *python))),
        writable=tuple(str(path) for path in wall.writable if path != workspace),
        network=wall.network,
        pieces=tuple(piece for piece in PIECES if getattr(found, piece)),
    )


def more_than(new: KernelRights, old: KernelRights) -> str:
    """Return the first action that the new rights allow and the old ones do not, in a few words. Empty: none."""
    if not new.walled:
        if old.walled:
            return "it has no wall around its files and its network"
        asks_less = MODES.index(new.mode) > MODES.index(old.mode)
        return f"mode {new.mode} asks less than mode {old.mode}" if asks_less else ""
    if not old.walled:
        return ""
    if more := _outside(new.writable, old.writable):
        return f"it writes in {more}"
    if new.network and not old.network:
        return "it has the network"
    if more := _outside(new.readable, (*old.readable, *old.writable)):
        return f"it reads {more}"
    return next((PIECES[piece] for piece in PIECES if piece in old.pieces and piece not in new.pieces), "")


def _outside(paths: tuple[str, ...], folders: tuple[str, ...]) -> str:
    """Return the first of the paths that is in none of the folders. Empty: each is in one."""
    known = tuple(Path(os.path.normpath(folder)) for folder in folders)
    return next((path for path in paths if not is_below(Path(os.path.normpath(path)), known)), "")
