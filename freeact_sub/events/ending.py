"""`Ending`: how a run ended, shared by events, results and code in kernels."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from freeact_sub.config.budget import Usage
from freeact_sub.events.receipts import Receipts

RunStatus: TypeAlias = Literal["completed", "failed", "timeout", "limit", "cancelled", "rejected", "kernel_lost"]
"""How a run ended. The host decides it from events, never from text."""


NAMES_SHOWN: Final = 8


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run ended: all facts except the answer."""

    status: RunStatus
    error: str = ""
    """Why the status is not `completed`, in one sentence."""
    refused: str = ""
    """Why a child's model cannot give an answer of the requested type, in its words; the status is `failed` then."""
    usage: Usage = Usage()
    """The agent's own spending in the run."""
    tree_usage: Usage = Usage()
    """The spending of the agent and all its descendants in the run."""
    seconds: float = 0.0
    """The run's seconds, without the time in which a question was open or the agent waited for a slot."""
    reused_from: str = ""
    """The earlier child whose answer was reused. Empty: the answer is the agent's own."""
    files_read: tuple[str, ...] = ()
    """Files in the workspace that its cells read with Python, as relative paths; at most 1,000."""
    files_written: tuple[str, ...] = ()
    """Existing files that Python of its cells was seen to write; about 1,000 at most."""
    files_removed: tuple[str, ...] = ()
    """Files that Python of its cells removed or renamed, unless the run wrote them."""
    warnings: tuple[str, ...] = ()
    """Warnings about the result, one sentence each."""
    unattended: bool = False
    """Whether all its actions were denied because no person could be asked; a warning says so too."""
    receipts: Receipts | None = None
    """What it has done, as the host saw it. None: no model has answered, but Python code."""
    missing_files: tuple[str, ...] = ()
    """The names of files in the answer, if none of them is in the workspace."""
    verified: bool = False
    """The answer has passed the `check` of who started the run, or `verify` of its type."""
    unverified: str = ""
    """Why it has not, in one sentence, though it was asked for. Empty: it has, or there was no check."""

    @property
    def doubts(self) -> tuple[str, ...]:
        """One sentence for each fact that speaks against the answer."""
        shown, more = self.missing_files[:NAMES_SHOWN], len(self.missing_files) - NAMES_SHOWN
        names = f"{', '.join(shown)}{f' and {more:,} more' if more > 0 else ''}"
        missing = f"no file that the answer names exists: {names}" if shown else ""
        return tuple(filter(None, [missing, f"unverified: {self.unverified}" if self.unverified else ""]))
