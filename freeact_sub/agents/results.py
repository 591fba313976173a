"""What is told of an agent to those outside: `AgentInfo` while it lives, `RunResult` when a run has ended."""

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from freeact_sub.budget import Budget, Usage
from freeact_sub.events import RunStatus
from freeact_sub.text import one_line

NO_BOUNDS: Final = Budget()

AgentStatus: TypeAlias = Literal["idle", "queued", "starting", "running", "waiting"] | RunStatus
"""Of a live run, or how the last one ended; `waiting` is for children, `idle` before the first run."""

ACTIVE: Final[tuple[AgentStatus, ...]] = ("running", "waiting")
"""Of agents that do something; those that are queued or start do nothing yet."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """How a run ended, and with what."""

    output: Any
    """The answer (of the agent's output type if `status` is `completed`); else the last text there was."""
    status: RunStatus
    error: str = ""
    """One sentence on why the status is not `completed`."""
    usage: Usage = Usage()
    """What the agent itself has spent in the run."""
    tree_usage: Usage = Usage()
    """What the agent and its descendants have spent in the run."""
    seconds: float = 0.0
    agent_id: str = ""
    reused_from: str = ""
    """The earlier child whose answer this is; empty: it is the agent's own."""
    files_read: tuple[str, ...] = ()
    """Files in the workspace that its cells have read with Python, relative to it; at most 1,000."""
    files_written: tuple[str, ...] = ()
    """Those that its cells, or programs they started, have written, as far as that was seen; at most about 1,000."""
    warnings: tuple[str, ...] = ()
    """What the parent should know, one sentence each: files that another agent has written as well."""

    def __repr__(self) -> str:
        why = f", error={self.error!r}" if self.error else ""
        return (
            f"RunResult(status={self.status!r}, output={one_line(repr(self.output), 60)}{why}, seconds={self.seconds:.1f})"
        )


@dataclass(frozen=True, kw_only=True)
class AgentInfo:
    """One agent of a tree, as a front end lists it."""

    agent_id: str
    parent_id: str | None
    depth: int
    description: str
    status: AgentStatus
    usage: Usage
    """What the agent itself has spent in its present or last run."""
    seconds: float
    """How long its present or last run has lasted."""
    key: str = ""
    """The agent's durable name, which shows the chain above it."""
    budget: Budget = NO_BOUNDS
    """What its present or last run may spend."""
    action: str = ""
    """What it does right now, in one line: a call, a question to a person, a model request. Empty: it is not at work."""
