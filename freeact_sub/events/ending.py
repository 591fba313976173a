"""`Ending`: how a run ended, shared by events, results and code in kernels."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from freeact_sub.config.budget import Usage

RunStatus: TypeAlias = Literal["completed", "failed", "timeout", "limit", "cancelled", "rejected", "kernel_lost"]
"""How a run ended. The host decides it from what happened, never from text."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run ended: all facts except the answer."""

    status: RunStatus
    error: str = ""
    """Why the status is not `completed`, in one sentence."""
    usage: Usage = Usage()
    """What the agent itself spent in the run."""
    tree_usage: Usage = Usage()
    """What the agent and all its descendants have spent in the run."""
    seconds: float = 0.0
    """Seconds that the run took, without the time that a question was open or the agent waited for its turn."""
    reused_from: str = ""
    """The earlier child whose answer was reused. Empty: the answer is the agent's own."""
    files_read: tuple[str, ...] = ()
    """Files in the workspace that its cells have read with Python, relative to it; at most 1,000."""
    files_written: tuple[str, ...] = ()
    """Existing files that its cells, or their programs, were seen to write; about 1,000 at most."""
    files_removed: tuple[str, ...] = ()
    """Files that its cells removed or renamed, or that disappeared while their programs ran, unless the run wrote them."""
    warnings: tuple[str, ...] = ()
    """Warnings about the result, one sentence each."""
    unattended: bool = False
    """Whether all its actions were denied because nobody was there to ask; a warning says so too."""
