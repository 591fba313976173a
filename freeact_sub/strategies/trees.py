"""Tree search by ask and tell: `LATS`, `BestFirst`, `BeamSearch`. Pure: `ask` names trials, `tell` takes their results.

The interface is that of TreeQuest (`init_tree`, `ask_batch`, `tell`, `get_state_score_pairs`, `top_k`), so its algorithms
are interchangeable with these. One trial makes one child of one state or, with the action `SIMULATE`, plays on from a state
without making a child. Scores range from 0 to 1. States are opaque except for `terminal`: such a state has no children.

The words of a search are here too: its states, the nodes of its tree, and the player that knows the task.
"""

import heapq
import itertools
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

SIMULATE: Final = "simulate"
SOLVED: Final = 1.0
"""The best score a terminal state can have."""
NEUTRAL: Final = 0.5
"""The score of a simulation that could not start, and of a player's result that is not a score."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Something to try from a state."""

    trial_id: str
    action: str
    """One of the actions given to `ask_batch`, or `SIMULATE`."""
    parent_state: Any
    """The state it begins in. None: the root."""


class TreeAlgorithm(Protocol):
    """An algorithm that decides where a search continues. It has settings but no state: the caller keeps the tree."""

    def init_tree(self) -> Any:
        """Return a tree with only a root."""
        ...

    def ask_batch(self, state: Any, batch_size: int, actions: list[str]) -> tuple[Any, Sequence[Any]]:
        """Decide what to try next.

        Returns:
            The tree, and about `batch_size` trials (`trial_id`, `action`, `parent_state`). No trials: the search is over, or
            waits for the results of open trials.
        """
        ...

    def tell(self, state: Any, trial_id: str, result: tuple[Any, float]) -> Any:
        """Take the result of a trial: a new state (for a simulation, the one it began in) and its score, from 0 to 1."""
        ...

    def get_state_score_pairs(self, state: Any) -> list[tuple[Any, float]]:
        """Return all states except the root's, with their scores."""
        ...


def at_least_one(**numbers: int) -> int:
    """Return the last number. Raises ValueError: one is below 1."""
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1")
    return number


def top_k(tree: Any, algorithm: TreeAlgorithm, k: int = 1) -> list[tuple[Any, float]]:
    """Return the best states of a tree with their scores, best first; equal ones in the order they were reached."""
    return sorted(algorithm.get_state_score_pairs(tree), key=lambda pair: -pair[1])[:k]


class HasChildren(Protocol):
    """A node of any tree."""

    @property
    def children(self) -> Sequence[Any]:
        """The node's children, of the same class."""
        ...


Node = TypeVar("Node", bound=HasChildren)


def with_descendants(node: Node) -> Iterator[Node]:
    """Yield a node and its descendants, parents before children, in time linear in their number."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)


@dataclass(kw_only=True, eq=False)
class TreeNode:
    """A state in a tree."""

    state: Any = None
    """The caller's state. None: the root's."""
    parent: "TreeNode | None" = None
    depth: int = 0
    """Distance from the root."""
    score: float = 0.0
    visits: int = 0
    """Evaluations and simulations that passed through it."""
    total: float = 0.0
    """The sum of their scores."""
    children: list["TreeNode"] = field(default_factory=list)
    expanded: bool = False
    """Whether its children exist or were asked for."""
    dropped: bool = False
    """Whether the search continues neither from the node nor from its descendants."""
    trials: int = 0
    """Trials that begin in it, planned or open."""

    @property
    def value(self) -> float:
        """The mean of its evaluation and the simulations through it."""
        return self.total / self.visits if self.visits else 0.0

    @property
    def terminal(self) -> bool:
        """Whether its state can have no children."""
        return bool(getattr(self.state, "terminal", False))

    def below(self) -> Iterator["TreeNode"]:
        """Yield the node and its descendants."""
        return with_descendants(self)


@dataclass(kw_only=True, eq=False)
class SearchTree:
    """The knowledge of a search."""

    root: TreeNode = field(default_factory=TreeNode)
    waiting: list[tuple[TreeNode, bool]] = field(default_factory=list)
    """Planned trials: the node of each, and whether it simulates."""
    out: dict[str, tuple[TreeNode, bool]] = field(default_factory=dict)
    """Open trials, by id."""
    rounds: int = 0
    """The number of simulations, expansions or levels, depending on the algorithm."""
    numbers: Iterator[int] = field(default_factory=itertools.count)
    """Numbers for the trials."""
    reached: Iterator[int] = field(default_factory=itertools.count)
    """Numbers for the nodes in `frontier`."""
    solved: bool = False
    growing: TreeNode | None = None
    """The node whose children were asked for, to simulate from the best of them."""
    beam: list[TreeNode] = field(default_factory=list)
    """The nodes continued from at the previous level, best first."""
    frontier: list[tuple[float, int, TreeNode]] = field(default_factory=list)
    """A heap of the nodes from which a best-first search may continue: best first; of equal ones the first reached."""
    let_go: list[Any] = field(default_factory=list)
    """States to be returned by the next call of `_Trials.let_go`."""

    @property
    def nodes(self) -> list[TreeNode]:
        """All nodes except the root, parents before children."""
        return [*self.root.below()][1:]


class _Trials:
    """The common part of the three algorithms: trials and their results."""

    branching: int
    depth: int

    def __post_init__(self) -> None:
        at_least_one(**{name: number for name, number in vars(self).items() if name != "exploration"})

    def init_tree(self) -> SearchTree:
        return SearchTree()

    def ask_batch(self, state: SearchTree, batch_size: int, actions: list[str]) -> tuple[SearchTree, list[Trial]]:
        if not state.waiting and not state.out and not state.solved:
            self._go_on(state)
        trials = []
        for node, simulates in state.waiting[:batch_size]:
            number = next(state.numbers)
            action = SIMULATE if simulates else actions[number % len(actions)]
            trials.append(Trial(trial_id=f"trial-{number}", action=action, parent_state=node.state))
            state.out[trials[-1].trial_id] = (node, simulates)
        del state.waiting[:batch_size]
        return state, trials

    def tell(self, state: SearchTree, trial_id: str, result: tuple[Any, float] | None) -> SearchTree:
        """Take the result of a trial. A result of None: there is no further child. Unknown ids are ignored."""
        node, simulates = state.out.pop(trial_id, (None, False))
        if node is None:
            return state
        node.trials -= 1
        if result is not None and simulates:
            self._simulated(state, node, result[1])
        elif result is not None:
            found, score = result
            child = TreeNode(state=found, parent=node, depth=node.depth + 1, score=score, visits=1, total=score)
            node.children.append(child)
            state.solved = state.solved or (child.terminal and child.score >= SOLVED)
            if self._is_open(child):
                self._reached(state, child)
            else:
                state.let_go.append(found)
        if not state.waiting and not state.out:
            self._told_all(state)
        if not node.trials and not self._is_open(node):
            state.let_go.append(node.state)
        return state

    def get_state_score_pairs(self, state: SearchTree) -> list[tuple[Any, float]]:
        return [(node.state, node.score if node.terminal else node.value) for node in state.nodes]

    def let_go(self, state: SearchTree) -> list[Any]:
        """Return the states, the root's perhaps among them, that the search has stopped needing since the last call."""
        found, state.let_go = state.let_go, []
        return found

    def _is_open(self, node: TreeNode) -> bool:
        return not (node.expanded or node.dropped or node.terminal or node.depth >= self.depth)

    def _expand(self, state: SearchTree, node: TreeNode) -> None:
        node.expanded = True
        self._plan(state, node, self.branching)

    def _plan(self, state: SearchTree, node: TreeNode, number: int, *, simulates: bool = False) -> None:
        node.trials += number
        state.waiting += [(node, simulates)] * number

    def _reached(self, state: SearchTree, child: TreeNode) -> None:
        """Take a new node from which the search may continue."""

    def _go_on(self, state: SearchTree) -> None:
        """Plan the next trials, if any."""
        raise NotImplementedError

    def _told_all(self, state: SearchTree) -> None:
        """Go on after all open trials have ended."""

    def _simulated(self, state: SearchTree, node: TreeNode, score: float) -> None:
        """Take the score of a simulation from a node."""


@dataclass(frozen=True, kw_only=True)
class LATS(_Trials):
    """Language agent tree search (Zhou et al. 2024): Monte Carlo tree search with a model that proposes and judges.

    Select by UCB1 down to a state without children; expand it by `branching` evaluated children; simulate from the best of
    them; backpropagate the result. An evaluation counts as a state's first visit, so that not every state has to be
    simulated before the search continues from a better one.
    """

    simulations: int = 5
    """The number of rounds of these four steps."""
    exploration: float = 1.414
    """The weight of rarely visited states in UCB1."""
    depth: int = 10
    branching: int = 3

    def _go_on(self, state: SearchTree) -> None:
        leaf = self._selected(state.root)
        if state.rounds < self.simulations and leaf is not None:
            state.growing = leaf
            self._expand(state, leaf)

    def _told_all(self, state: SearchTree) -> None:
        """Simulate from the best child after an expansion."""
        grown, state.growing = state.growing, None
        if grown is None:
            return
        best = max(grown.children, key=lambda child: child.score, default=grown)
        if best is grown:
            self._count(state, grown, 0.0)
        elif best.terminal or best.depth >= self.depth:
            self._count(state, best, best.score)
        else:
            self._plan(state, best, 1, simulates=True)

    def _simulated(self, state: SearchTree, node: TreeNode, score: float) -> None:
        self._count(state, node, score)

    def _count(self, state: SearchTree, node: TreeNode | None, score: float) -> None:
        """Backpropagate a score."""
        state.rounds += 1
        while node is not None:
            node.visits += 1
            node.total += score
            node = node.parent

    def _selected(self, node: TreeNode) -> TreeNode | None:
        """Return the node below this one to expand; None if there is none. Nodes found exhausted are not searched again."""
        while not self._is_open(node):
            left = [child for child in node.children if not child.dropped]
            if left:
                node = max(left, key=self.ucb1)
            elif node.parent is None:
                return None
            else:
                node.dropped = True
                node = node.parent
        return node

    def ucb1(self, node: TreeNode) -> float:
        """Return the upper confidence bound of a visited state: its value plus a bonus that shrinks with its visits."""
        above = node.parent.visits if node.parent is not None else 1
        return node.value + self.exploration * math.sqrt(math.log(max(above, 1)) / node.visits)


@dataclass(frozen=True, kw_only=True)
class BestFirst(_Trials):
    """Search that continues from the state with the best score, wherever it is."""

    expansions: int = 10
    """The number of states to expand."""
    depth: int = 10
    branching: int = 3

    def _go_on(self, state: SearchTree) -> None:
        if not state.rounds:
            self._reached(state, state.root)
        if state.rounds < self.expansions and state.frontier:
            state.rounds += 1
            self._expand(state, heapq.heappop(state.frontier)[-1])

    def _reached(self, state: SearchTree, child: TreeNode) -> None:
        heapq.heappush(state.frontier, (-child.score, next(state.reached), child))


@dataclass(frozen=True, kw_only=True)
class BeamSearch(_Trials):
    """Search level by level from the best `width` states, as in tree of thoughts (Yao et al. 2023)."""

    width: int = 5
    depth: int = 10
    branching: int = 3

    def _go_on(self, state: SearchTree) -> None:
        # in the order of their parents in the beam, which breaks ties
        level = [child for node in state.beam for child in node.children if self._is_open(child)]
        if not state.rounds:
            level = [state.root]
        ranked = sorted(level, key=lambda node: -node.score)
        best = ranked[: self.width]
        for node in ranked[self.width :]:
            node.dropped = True
            state.let_go.append(node.state)
        state.rounds += 1
        state.beam = best
        for node in best:
            self._expand(state, node)


class State(Protocol):
    """A state of the world: a `KernelNode`, or anything else that can be copied."""

    @property
    def branch(self) -> Callable[..., Awaitable[Any]]:
        """A method that returns an independent copy of its present state: `await state.branch(description, **options)`.

        The options are those of the search; a state takes the ones that it knows.
        """
        ...

    async def execute(self, code: str) -> Any:
        """Carry out an action; return a value with `status` (`ok`, or how it failed) and `text`."""
        ...

    async def close(self) -> None:
        """Close the state; copies live on. Can be called again."""
        ...


@dataclass(kw_only=True, eq=False)
class SearchNode:
    """A state reached by a search."""

    name: str
    """The place in the tree: `0.2` is the third child of the root's first child. The root's is empty."""
    number: int = 0
    """The place in the order in which states were tried. The root's is 0."""
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
    terminal: bool = False
    """Whether the task is done in this state, or nothing can follow."""
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
        """The evaluation, and the simulations at it and below."""
        return 1 + sum(node.simulation is not None for node in self.below())

    @property
    def answer(self) -> Any:
        """The simulation's answer, or the action's output if the task is done here."""
        if self.simulation is not None and self.simulation.answer is not None:
            return self.simulation.answer
        return self.output if self.terminal and self.status != "failed" else None

    def below(self) -> Iterator["SearchNode"]:
        """Yield the node and its descendants, parents before children."""
        return with_descendants(self)

    def __repr__(self) -> str:
        return f"SearchNode({self.name!r}, score={self.score:.2f}, status={self.status!r})"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A player's judgement of a state."""

    score: float
    """A score from 0 to 10."""
    reason: str = ""
    done: bool = False
    """Whether the task is done in this state."""


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """The result of playing on from a state."""

    score: float
    """A score from 0 to 1."""
    answer: Any = None


class Player(Protocol):
    """A player that knows the task: proposes, evaluates, simulates."""

    async def propose(self, node: SearchNode, n: int) -> Sequence[str]:
        """Return up to n distinct actions that could follow; those of `node.children` were tried already."""
        ...

    async def evaluate(self, node: SearchNode) -> Evaluation:
        """Judge how promising a state is."""
        ...

    async def simulate(self, node: SearchNode) -> Simulation:
        """Play on from a state to an end, without changing the state."""
        ...
