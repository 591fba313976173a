"""`StrategyStep`: the progress of a strategy, shared by events and by the requests of code in kernels."""

from dataclasses import dataclass


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
