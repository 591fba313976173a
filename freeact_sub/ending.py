"""`Ending`: how a run ended, and all that is known of it; what events, results and code in kernels tell alike."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from freeact_sub.config.budget import Usage

RunStatus: TypeAlias = Literal["completed", "failed", "timeout", "limit", "cancelled", "rejected", "kernel_lost"]
"""How a run ended. The host decides it from what happened, never from text."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run ended: all that is known of it besides the answer, for whoever is told of it."""

    status: RunStatus
    error: str = ""
    """Why the status is not `completed`, in one sentence."""
    usage: Usage = Usage()
    """What the agent itself spent in the run."""
    tree_usage: Usage = Usage()
    """What the agent and all its descendants have spent in the run."""
    seconds: float = 0.0
    reused_from: str = ""
    """The earlier child whose answer this is; empty: it is the agent's own."""
    files_read: tuple[str, ...] = ()
    """Files in the workspace that its cells have read with Python, relative to it; at most 1,000."""
    files_written: tuple[str, ...] = ()
    """Existing files that its cells, or their programs, were seen to write; about 1,000 at most."""
    files_removed: tuple[str, ...] = ()
    """What its cells removed or renamed, or disappeared while their programs ran, and was not written by the run."""
    warnings: tuple[str, ...] = ()
    """Warnings about the result, one sentence each."""
    unattended: bool = False
    """There were actions, and each was denied because nobody was there to ask; said among the warnings too."""
