"""The words of a search: its states, the nodes of its tree, and the player who knows the task."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from freeact_sub.strategies.trees import with_descendants

NEUTRAL: Final = 0.5
"""The score of a simulation that could not start, and of a player's result that is not a score."""


class State(Protocol):
    """A state of the world: a `KernelNode`, or anything else that can be copied."""

    @property
    def branch(self) -> Callable[..., Awaitable[Any]]:
        """A method that returns an independent copy of its present state: `await state.branch(description, **options)`.

        The options are those of the search; a state takes the ones that it knows.
        """
        ...

    async def execute(self, code: str) -> Any:
        """Carries out an action; returns a value with `status` (`ok`, or how it failed) and `text`."""
        ...

    async def close(self) -> None:
        """Closes it; copies live on. Can be called again."""
        ...


@dataclass(kw_only=True, eq=False)
class SearchNode:
    """A state reached by a search."""

    name: str
    """Its place in the tree: `0.2` is the third child of the root's first child. The root's is empty."""
    number: int = 0
    """Its place in the order in which states were tried. The root's is 0."""
    parent: "SearchNode | None" = None
    action: str = ""
    """The action that led to it from its parent."""
    output: str = ""
    """The action's output."""
    status: str = "ok"
    """The outcome of the action. `failed`: it could not be tried or evaluated; `reason` says why."""
    score: float = 0.0
    """The evaluation, from 0 to 1; 0 if it failed."""
    reason: str = ""
    """The reason of the evaluation."""
    terminal: bool = False
    """The task is done in this state, or nothing can follow."""
    simulation: "Simulation | None" = None
    """The result of a simulation from here."""
    state: Any = None
    """The live state. None: closed."""
    children: list["SearchNode"] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """Distance from the root."""
        return len(self.path)

    @property
    def path(self) -> list["SearchNode"]:
        """The actions from the root to this state."""
        found, node = list[SearchNode](), self
        while node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]

    @property
    def value(self) -> float:
        """The mean of evaluation and simulation."""
        return self.score if self.simulation is None else (self.score + self.simulation.score) / 2

    @property
    def visits(self) -> int:
        """Its evaluation, and the simulations at it and below."""
        return 1 + sum(node.simulation is not None for node in self.below())

    @property
    def answer(self) -> Any:
        """The simulation's answer, or the action's output if the task is done here. None: neither."""
        if self.simulation is not None and self.simulation.answer is not None:
            return self.simulation.answer
        return self.output if self.terminal and self.status != "failed" else None

    def below(self) -> Iterator["SearchNode"]:
        """Returns the node and its descendants, parents before children."""
        return with_descendants(self)

    def __repr__(self) -> str:
        return f"SearchNode({self.name!r}, score={self.score:.2f}, status={self.status!r})"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A player's judgement of a state."""

    score: float
    """From 0 to 10."""
    reason: str = ""
    done: bool = False
    """Whether the task is done in this state."""


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """The result of playing on from a state."""

    score: float
    """From 0 to 1."""
    answer: Any = None
    """None: it found no answer."""


class Player(Protocol):
    """Knows the task: proposes, evaluates, simulates."""

    async def propose(self, node: SearchNode, n: int) -> Sequence[str]:
        """Returns up to n distinct actions that could follow; those of `node.children` were tried already."""
        ...

    async def evaluate(self, node: SearchNode) -> Evaluation:
        """Judges how promising a state is."""
        ...

    async def simulate(self, node: SearchNode) -> Simulation:
        """Plays on from a state to an end, without changing the state."""
        ...
