"""The wall around the trial of a cell, within that of its agent's kernel (docs/effects.md)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from freeact_sub.errors import KernelBranchError
from freeact_sub.kernels.wall import sandbox


def wire_of_trial(branch: Mapping[str, Any] | None, covers: bool, workspace: Path) -> dict[str, Any]:
    """The wall of a trial: of the machine, it writes its copy of the workspace and its own folder only, and has no network.

    Args:
        branch: The wall of an ordinary branch.
        covers: Whether its copy of the workspace is at the workspace's path.
        workspace: That path.

    Raises:
        KernelBranchError: This machine has not all that it takes.
    """
    pieces: set[str] = set() if branch is None else {*branch["pieces"]}
    if branch is None or not pieces >= {"landlock", "seccomp"} or sandbox.support().landlock < sandbox.ABI_SIGNALS:
        raise KernelBranchError(
            "a trial needs the sandbox, which this machine does not have or `kernel.sandbox` switches off"
        )
    if not covers:
        raise KernelBranchError("it would not see its own copy of the workspace at the workspace's path")
    kept = {"readable": ["/"], "writable": [str(workspace), "/dev/shm"]}  # noqa: S108  # it is the trial's own
    more = {"walled": True, "above": "", "network": False, "connect": False, "pieces": ["landlock", "seccomp"]}
    return {**branch, **kept, **more}
