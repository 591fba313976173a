"""Progress of plans, strategies and calls: values that events share with the code in kernels and with MCP connections."""

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, kw_only=True)
class SearchedState:
    """A node in the tree of a search. A later step of the same node replaces it."""

    node_id: str
    """The place in the tree, such as `0.2.1`: the second child of the third child of the root's first child."""
    parent: str = ""
    """The `node_id` of the node above. Empty: the root."""
    action: str = ""
    """The beginning of the action that led here."""
    state: str = "ok"
    """The outcome of the action. `failed`: it could not be carried out."""
    score: float = 0.0
    """The evaluation, from 0 to 1."""
    value: float = 0.0
    """The mean of evaluation and simulation."""
    visits: int = 0
    """The number of evaluations, and of simulations here and below, so far."""
    reason: str = ""
    """The beginning of the evaluation's reason."""
    terminal: bool = False
    """Whether no action can follow."""


@dataclass(frozen=True, kw_only=True)
class StrategyStep:
    """A step of a strategy."""

    strategy: str
    """The name, such as `debate`."""
    strategy_id: str = ""
    """The id that distinguishes strategies running at the same time."""
    step: int
    """Requests and children that have ended; in a search, nodes evaluated and simulated."""
    of: int | None = None
    """The number of all steps, if known."""
    failed: int = 0
    """The number of failed steps, where `map` counts them."""
    done: bool = False
    """Whether the strategy has ended; no further step follows."""
    node: SearchedState | None = None
    """The node of this step in a search."""
    best: str = ""
    """The `node_id` of the best node so far in a search."""


@dataclass(frozen=True, kw_only=True)
class CallProgress:
    """The progress of a call, as its server tells it."""

    progress: float
    """The amount done, in a unit of the server's own."""
    total: float | None = None
    """The amount in all, if known."""
    message: str = ""

    @property
    def words(self) -> str:
        """The figures and the message, such as `3 of 10, reads a.csv`."""
        of = f" of {self.total:,.12g}" if self.total is not None else ""
        return f"{self.progress:,.12g}{of}" + (f", {self.message}" if self.message else "")


PlanStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed"]
"""The status of a step. `failed`: only a subtask of `delegate` has it."""


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
    """The reasons for the plan, or for its changes."""
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
