"""`PlanState`: the steps of a plan, and how far each is."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

PlanStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed"]
"""`failed`: only a subtask of `delegate` says so."""


@dataclass(frozen=True, kw_only=True)
class PlanStep:
    """One step of a plan."""

    step: str
    status: PlanStatus = "pending"


@dataclass(frozen=True, kw_only=True)
class PlanState:
    """All steps of a plan, in order."""

    steps: tuple[PlanStep, ...]
    explanation: str = ""
    """Why the plan is as it is, or what has changed in it."""
    plan_id: str = ""
    """The call of `delegate` whose subtasks the steps are. Empty: the agent's own plan."""

    @property
    def done(self) -> int:
        """The number of completed steps."""
        return sum(step.status == "completed" for step in self.steps)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return all(step.status in ("completed", "failed") for step in self.steps)
