"""How far a plan, a strategy or a call is: values that events share with the code in kernels and with MCP connections."""

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, kw_only=True)
class SearchedState:
    """A node in the tree of a search. A later step of the same node replaces it."""

    node_id: str
    """Its place in the tree, such as `0.2.1`: the second child of the third child of the root's first child."""
    parent: str = ""
    """The `node_id` of the node above. Empty: the root."""
    action: str = ""
    """The beginning of the action that led to it."""
    state: str = "ok"
    """The outcome of the action. `failed`: it could not be carried out."""
    score: float = 0.0
    """Its evaluation, from 0 to 1."""
    value: float = 0.0
    """The mean of its evaluation and its simulation."""
    visits: int = 0
    """The number of its evaluations, and of the simulations at it and below, so far."""
    reason: str = ""
    """The beginning of the evaluation's reason."""
    terminal: bool = False
    """No action can follow it."""


@dataclass(frozen=True, kw_only=True)
class StrategyStep:
    """The number of steps that a strategy has done."""

    strategy: str
    """Its name, such as `debate`."""
    strategy_id: str = ""
    """Distinguishes strategies that run at the same time."""
    step: int
    """Requests and children that have ended; in a search, nodes evaluated and simulated."""
    of: int | None = None
    """The number of all steps. None: it is not known."""
    failed: int = 0
    """How many of the steps have failed, where that is counted: by `map`."""
    done: bool = False
    """The strategy has ended; no further step follows."""
    node: SearchedState | None = None
    """In a search, the node of this step."""
    best: str = ""
    """In a search, the `node_id` of the best node so far."""


@dataclass(frozen=True, kw_only=True)
class CallProgress:
    """How far a call is, as its server tells."""

    progress: float
    """How much is done, in a unit of the server's own."""
    total: float | None = None
    """How much there is to do. None: not known."""
    message: str = ""

    @property
    def words(self) -> str:
        """The figures and the message, such as `3 of 10, reads a.csv`."""
        of = f" of {self.total:,.12g}" if self.total is not None else ""
        return f"{self.progress:,.12g}{of}" + (f", {self.message}" if self.message else "")


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
