"""Tree search by ask and tell: `LATS`, `BestFirst`, `BeamSearch`. Pure: they say what to try, and are told what came.

The interface is that of TreeQuest (`init_tree`, `ask_batch`, `tell`, `get_state_score_pairs`, `top_k`), so its algorithms
serve in the place of these. One trial makes one child of one state, or, with the action `SIMULATE`, plays on from a state
and makes none. Scores are from 0 to 1. States are the caller's; all that is looked at is `terminal`: such a state has no
children.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

SIMULATE: Final = "simulate"
SOLVED: Final = 1.0
"""The score of a terminal state after which nothing better can come."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Something to try."""

    trial_id: str
    action: str
    """One of those that `ask_batch` was given, or `SIMULATE`."""
    parent_state: Any
    """Where it begins; None: at the root."""


class TreeAlgorithm(Protocol):
    """Decides where a search goes on. It has settings and no state: that is the tree, which the caller keeps."""

    def init_tree(self) -> Any:
        """A tree with nothing but its root."""
        ...

    def ask_batch(self, state: Any, batch_size: int, actions: list[str]) -> tuple[Any, Sequence[Any]]:
        """What to try next.

        Returns:
            The tree, and trials (`trial_id`, `action`, `parent_state`), about `batch_size` of them; none: the search is
            over, or waits to be told of those that are out.
        """
        ...

    def tell(self, state: Any, trial_id: str, result: tuple[Any, float]) -> Any:
        """What came of a trial: a new state (of a simulation, the one that it began in) and its score, from 0 to 1."""
        ...

    def get_state_score_pairs(self, state: Any) -> list[tuple[Any, float]]:
        """All states but the root's, with their scores."""
        ...


def top_k(tree: Any, algorithm: TreeAlgorithm, k: int = 1) -> list[tuple[Any, float]]:
    """The best states of a tree with their scores, the best first; of several as good, the earlier."""
    return sorted(algorithm.get_state_score_pairs(tree), key=lambda pair: -pair[1])[:k]


@dataclass(kw_only=True, eq=False)
class TreeNode:
    """A state in a tree."""

    state: Any = None
    """None: the root's."""
    parent: "TreeNode | None" = None
    score: float = 0.0
    """What it was told to be worth."""
    visits: int = 0
    """Its own evaluation, and the simulations through it."""
    total: float = 0.0
    """The sum of what these have found."""
    children: list["TreeNode"] = field(default_factory=list)
    expanded: bool = False
    """Its children are there, or asked for."""
    dropped: bool = False
    """It is not gone on with."""

    @property
    def depth(self) -> int:
        """Distance from the root."""
        return 0 if self.parent is None else self.parent.depth + 1

    @property
    def value(self) -> float:
        """The mean of its evaluation and the simulations through it."""
        return self.total / self.visits if self.visits else 0.0

    @property
    def terminal(self) -> bool:
        """It has no children, by what it is."""
        return bool(getattr(self.state, "terminal", False))

    def below(self) -> Iterator["TreeNode"]:
        """It and all below it."""
        yield self
        for child in self.children:
            yield from child.below()


@dataclass(kw_only=True, eq=False)
class SearchTree:
    """What a search knows."""

    root: TreeNode = field(default_factory=TreeNode)
    waiting: list[tuple[TreeNode, bool]] = field(default_factory=list)
    """Trials that are not asked for yet: where they begin, and whether they simulate."""
    out: dict[str, tuple[TreeNode, bool]] = field(default_factory=dict)
    """Those that are, by id."""
    rounds: int = 0
    """Simulations, expansions or levels, as the algorithm counts them."""
    numbers: Iterator[int] = field(default_factory=itertools.count)
    solved: bool = False
    growing: TreeNode | None = None
    """Whose children are asked for, to simulate from the best of them."""
    beam: list[TreeNode] = field(default_factory=list)
    """What was gone on with at the level before, the best first."""

    @property
    def nodes(self) -> list[TreeNode]:
        """All but the root, parents before children."""
        return [*self.root.below()][1:]


class _Search:
    """What all three share: trials and their results."""

    branching: int
    depth: int

    def init_tree(self) -> SearchTree:
        """See `TreeAlgorithm`."""
        return SearchTree()

    def ask_batch(self, state: SearchTree, batch_size: int, actions: list[str]) -> tuple[SearchTree, list[Trial]]:
        """See `TreeAlgorithm`."""
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
        """See `TreeAlgorithm`. A result of None: there is no further child. An id that is not out is passed over."""
        node, simulates = state.out.pop(trial_id, (None, False))
        if node is None:
            return state
        if result is not None and simulates:
            self._simulated(state, node, result[1])
        elif result is not None:
            child = TreeNode(state=result[0], parent=node, score=result[1], visits=1, total=result[1])
            node.children.append(child)
            state.solved = state.solved or (child.terminal and child.score >= SOLVED)
        if not state.waiting and not state.out:
            self._told_all(state)
        return state

    def get_state_score_pairs(self, state: SearchTree) -> list[tuple[Any, float]]:
        """See `TreeAlgorithm`."""
        return [(node.state, node.score if node.terminal else node.value) for node in state.nodes]

    def live(self, state: SearchTree) -> list[Any]:
        """The states that may be gone on with; what the others hold is not needed any more."""
        at_work = {id(node) for node, _ in (*state.waiting, *state.out.values())}
        return [node.state for node in state.nodes if id(node) in at_work or self._is_open(node)]

    def _is_open(self, node: TreeNode) -> bool:
        return not (node.expanded or node.dropped or node.terminal or node.depth >= self.depth)

    def _expand(self, state: SearchTree, node: TreeNode) -> None:
        node.expanded = True
        state.waiting += [(node, False)] * self.branching

    def _go_on(self, state: SearchTree) -> None:
        """Put the next trials among those that wait, or none."""
        raise NotImplementedError

    def _told_all(self, state: SearchTree) -> None:
        """All that was asked for is there."""

    def _simulated(self, state: SearchTree, node: TreeNode, score: float) -> None:
        """Something was played from a node."""


@dataclass(frozen=True, kw_only=True)
class LATS(_Search):
    """Language agent tree search (Zhou et al. 2024): Monte Carlo tree search with a model that proposes and judges.

    Select by UCB1 down to a state without children; expand it by `branching` of them, each evaluated; simulate from the best
    of these; backpropagate what that finds. An evaluation counts as the first visit of a state: no state must be simulated
    before a better one is gone on with.
    """

    simulations: int = 5
    """How often this is done."""
    exploration: float = 1.414
    """The weight of what was visited seldom in UCB1."""
    depth: int = 10
    branching: int = 3

    def _go_on(self, state: SearchTree) -> None:
        leaf = self._selected(state.root)
        if state.rounds < self.simulations and leaf is not None:
            state.growing = leaf
            self._expand(state, leaf)

    def _told_all(self, state: SearchTree) -> None:
        """Siblings are there: simulate from the best of them. Or a simulation is."""
        grown, state.growing = state.growing, None
        if grown is None:
            return
        best = max(grown.children, key=lambda child: child.score, default=grown)
        if best is grown:
            self._count(state, grown, 0.0)
        elif best.terminal or best.depth >= self.depth:
            self._count(state, best, best.score)
        else:
            state.waiting.append((best, True))

    def _simulated(self, state: SearchTree, node: TreeNode, score: float) -> None:
        self._count(state, node, score)

    def _count(self, state: SearchTree, node: TreeNode | None, score: float) -> None:
        """Backpropagate."""
        state.rounds += 1
        while node is not None:
            node.visits += 1
            node.total += score
            node = node.parent

    def _selected(self, node: TreeNode) -> TreeNode | None:
        """Where the tree is to grow; None: nowhere."""
        if not node.expanded:
            return node if self._is_open(node) else None
        for child in sorted(node.children, key=self.ucb1, reverse=True):
            if (found := self._selected(child)) is not None:
                return found
        return None

    def ucb1(self, node: TreeNode) -> float:
        """The upper confidence bound of a state that was visited: its value, and more the seldomer it was visited."""
        above = node.parent.visits if node.parent is not None else 1
        return node.value + self.exploration * math.sqrt(math.log(max(above, 1)) / node.visits)


@dataclass(frozen=True, kw_only=True)
class BestFirst(_Search):
    """Goes on with the state that has the best score, wherever it is."""

    expansions: int = 10
    """How many states are gone on with."""
    depth: int = 10
    branching: int = 3

    def _go_on(self, state: SearchTree) -> None:
        open_nodes = [node for node in state.root.below() if self._is_open(node)]
        if state.rounds < self.expansions and open_nodes:
            state.rounds += 1
            self._expand(state, max(open_nodes, key=lambda node: node.score))


@dataclass(frozen=True, kw_only=True)
class BeamSearch(_Search):
    """Goes level by level, with the best `width` states of each: the search of tree of thoughts (Yao et al. 2023)."""

    width: int = 5
    depth: int = 10
    branching: int = 3

    def _go_on(self, state: SearchTree) -> None:
        # in the order of their parents in the beam, which decides where scores are equal
        level = [child for node in state.beam for child in node.children if self._is_open(child)]
        if not state.rounds:
            level = [state.root]
        best = sorted(level, key=lambda node: -node.score)[: self.width]
        for node in level:
            node.dropped = node not in best
        state.rounds += 1
        state.beam = best
        for node in best:
            self._expand(state, node)
