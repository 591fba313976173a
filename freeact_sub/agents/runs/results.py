"""What is told of an agent to those outside: `AgentInfo` while it lives, `RunResult` when a run has ended."""

import json
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pydantic_core import to_jsonable_python

from freeact_sub.config.budget import Budget, Usage
from freeact_sub.ending import Ending, RunStatus
from freeact_sub.events import AgentFinished
from freeact_sub.text import one_line

if TYPE_CHECKING:
    from freeact_sub.agents.children.nodes import KernelNode

NO_BOUNDS: Final = Budget()

AgentStatus: TypeAlias = Literal["idle", "queued", "starting", "running", "waiting"] | RunStatus
"""Of a live run, or how the last one ended; `waiting` is for children, `idle` before the first run."""

ACTIVE: Final[tuple[AgentStatus, ...]] = ("running", "waiting")
"""Of agents that do something; those that are queued or start do nothing yet."""


Pictures: TypeAlias = Literal["saved", "shown", "unseen"]
"""Whoever reads of a cell's picture is told where it is saved, or is shown it, or gets nothing but the answer."""


@dataclass(frozen=True, kw_only=True)
class RunResult(Ending):
    """How a run ended, and with what."""

    output: Any
    """The answer (of the agent's output type if `status` is `completed`); else the last text there was."""
    agent_id: str = ""
    node: "KernelNode | None" = field(default=None, compare=False)
    """Its kernel, which stays. None: that was not asked for, or the child was cancelled, or it had no live kernel."""

    @property
    def event(self) -> AgentFinished:
        """The event that tells of it."""
        return AgentFinished(output=text_of(self.output), **self.facts)

    @property
    def facts(self) -> dict[str, Any]:
        """All but the answer, by name."""
        return {fact.name: getattr(self, fact.name) for fact in fields(Ending)}

    def __repr__(self) -> str:
        why = f", error={self.error!r}" if self.error else ""
        return (
            f"RunResult(status={self.status!r}, output={one_line(repr(self.output), 60)}{why}, seconds={self.seconds:.1f})"
        )


def text_of(output: Any) -> str:
    """An answer as text: JSON for what is not text; where there is none of it, as of what holds itself, its `str`."""
    if isinstance(output, str):
        return output
    try:
        return json.dumps(to_jsonable_python(output, fallback=str), ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):
        return str(output)


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
