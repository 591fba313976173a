"""`search`: a tree of states, each a branch of its parent: live kernels, with or without files, or other copyable states.

A tree algorithm (`trees.py`) decides where to continue; this module does it. A player proposes actions for a state, the
state is branched, the action is executed in the branch, and the player evaluates the result. Returning to a state repeats
nothing, because it still exists. States that the algorithm no longer needs are closed at once, the others with the search.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Protocol, Self

from freeact_sub.errors import StrategyError
from freeact_sub.strategies.agent_like import AgentLike
from freeact_sub.strategies.pictures import SearchPicture
from freeact_sub.strategies.side_by_side import parallel
from freeact_sub.strategies.trees import LATS, SIMULATE, TreeAlgorithm
from freeact_sub.system.closing import carry_out

EXPAND: Final = "expand"
CLOSE_SECONDS: Final = 60.0


class State(Protocol):
    """A state of the world: a `KernelNode`, or anything else that can be copied."""

    async def branch(self, description: str = "", **options: Any) -> Any:
        """Returns an independent copy of its present state. Args: options: see `Search`."""
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
    """Its place in the tree, such as `0.2.1`: the second child of the third child of the root. The root's is empty."""
    parent: "SearchNode | None" = None
    action: str = ""
    """The action that led to it from its parent."""
    output: str = ""
    """The action's output."""
    status: str = "ok"
    """The outcome of the action. `failed`: it could not be tried; `reason` says why."""
    score: float = 0.0
    """The evaluation, from 0 to 1; 0 if the action could not be tried."""
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
        return 0 if self.parent is None else self.parent.depth + 1

    @property
    def path(self) -> list["SearchNode"]:
        """The actions from the root to this state."""
        return [] if self.parent is None else [*self.parent.path, self]

    @property
    def value(self) -> float:
        """The mean of evaluation and simulation."""
        return self.score if self.simulation is None else (self.score + self.simulation.score) / 2

    @property
    def answer(self) -> Any:
        """The simulation's answer, or the action's output if the task is done here. None: neither."""
        if self.simulation is not None and self.simulation.answer is not None:
            return self.simulation.answer
        return self.output if self.terminal and self.status != "failed" else None

    def below(self) -> Iterator["SearchNode"]:
        """Yields the node and its descendants, parents before children."""
        yield self
        for child in self.children:
            yield from child.below()

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


@dataclass(frozen=True, kw_only=True)
class SearchResult(SearchPicture):
    """The result of a search. It draws itself: in a terminal (`rich.print(result)`), in a notebook, as `result.svg()`."""

    best: SearchNode
    """The state with the highest value among those with an answer, or among all if none has one; the first of equals."""
    root: SearchNode
    trials: int
    """The number of trials that the algorithm requested."""
    error: str = ""
    """The last reason why something could not be tried. Empty: everything could."""

    @property
    def answer(self) -> Any:
        """The best node's answer. None: no state has one."""
        return self.best.answer

    @property
    def nodes(self) -> list[SearchNode]:
        """All states reached, parents before children."""
        return [*self.root.below()][1:]


class Search:
    """A search, step by step. As an async context manager it closes all its states on exit."""

    def __init__(
        self,
        root: State,
        player: Player,
        tree: TreeAlgorithm | None = None,
        *,
        actions: Sequence[str] = (EXPAND,),
        **options: Any,
    ) -> None:
        """Begin with the root only.

        Args:
            root: The first state; the caller closes it.
            player: Knows the task.
            tree: Decides where to continue. Default: `LATS()`.
            actions: Names of ways to continue, for algorithms that choose among several (TreeQuest).
            options: Arguments of each `branch` besides the name, such as `own_files=True`.
        """
        self.algorithm: TreeAlgorithm = tree if tree is not None else LATS()
        self.root = SearchNode(name="", state=root)
        self.trials = 0
        self.error = ""
        """See `SearchResult`."""
        self._player = player
        self._actions = [*actions]
        self._options = options
        self._tree: Any = self.algorithm.init_tree()
        self._branching: int | None = getattr(self.algorithm, "branching", None)
        """How many children a state gets. None: the algorithm asks for any number."""
        self._proposed: dict[SearchNode, list[str]] = {}
        """Actions not tried yet."""

    @property
    def best(self) -> SearchNode:
        """See `SearchResult`. Raises StrategyError: no state was reached."""
        reached = [node for node in self.root.below() if node is not self.root and node.status != "failed"]
        if not reached:
            raise StrategyError(f"the search has reached no state: {self.error or 'nothing was proposed'}")
        return max(reached, key=lambda node: (node.answer is not None, node.value))

    async def step(self, batch_size: int | None = None) -> bool:
        """Do the next trials, side by side. Returns False if there are none.

        Args:
            batch_size: How many. None: as many as a state gets children, or 1.
        """
        size = batch_size or self._branching or 1
        self._tree, trials = self.algorithm.ask_batch(self._tree, size, self._actions)
        await carry_out(self._close_all(keep=self._needed()), timeout_seconds=CLOSE_SECONDS)
        if not trials:
            return False
        self.trials += len(trials)
        await self._propose([trial.parent_state or self.root for trial in trials if trial.action != SIMULATE])
        results = await parallel([lambda trial=trial: self._carry_out(trial) for trial in trials])  # type: ignore[misc]
        for trial, result in zip(trials, results, strict=True):
            if isinstance(result, Exception):
                raise result
            # TreeQuest's algorithms cannot express "there is no further child"
            nothing = None if self._branching is not None else (SearchNode(name="", status="failed", terminal=True), 0.0)
            self._tree = self.algorithm.tell(self._tree, trial.trial_id, result or nothing)  # type: ignore[arg-type]  # as said
        return True

    async def run(self, *, max_trials: int = 200, batch_size: int | None = None) -> SearchResult:
        """Search until the algorithm has no more trials or `max_trials` are done."""
        while self.trials < max_trials and await self.step(batch_size):
            pass
        return SearchResult(best=self.best, root=self.root, trials=self.trials, error=self.error)

    def top_k(self, k: int = 1) -> list[SearchNode]:
        """Return the best states by the algorithm's scores, best first."""
        pairs = sorted(self.algorithm.get_state_score_pairs(self._tree), key=lambda pair: -pair[1])
        return [node for node, _ in pairs[:k]]

    async def aclose(self, *, keep: SearchNode | None = None) -> None:
        """Close all states except the root's and that of a node the caller keeps."""
        await carry_out(self._close_all(keep=[keep] if keep is not None else []), timeout_seconds=CLOSE_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _propose(self, parents: Sequence[SearchNode]) -> None:
        """Let the player propose enough actions for the next children of these nodes."""

        async def one(parent: SearchNode) -> None:
            wanted = self._branching or parents.count(parent)
            untried = self._proposed.get(parent)
            if parent.terminal or (untried is not None and (self._branching is not None or len(untried) >= wanted)):
                return
            known = {child.action for child in parent.children}
            fresh = dict.fromkeys(action for action in await self._player.propose(parent, wanted) if action not in known)
            self._proposed[parent] = [*dict.fromkeys([*(untried or ()), *fresh])]

        parents = [*dict.fromkeys(parents)]
        found = await parallel([lambda parent=parent: one(parent) for parent in parents])  # type: ignore[misc]
        for parent, error in zip(parents, found, strict=True):
            if isinstance(error, Exception):
                self._failed(error)
                self._proposed.setdefault(parent, [])

    async def _carry_out(self, trial: Any) -> tuple[SearchNode, float] | None:
        node: SearchNode = trial.parent_state or self.root
        if trial.action == SIMULATE:
            return node, await self._simulated(node)
        if node.terminal:
            return node, node.score
        actions = self._proposed.get(node)
        return await self._child(node, actions.pop(0)) if actions else None

    async def _simulated(self, node: SearchNode) -> float:
        try:
            found = await self._player.simulate(node)
        except Exception as error:  # noqa: BLE001  # border: a state from which nothing can follow is worth nothing
            self._failed(error)
            found = Simulation(score=0.0)
        node.simulation = Simulation(score=_bounded(found.score), answer=found.answer)
        return node.simulation.score

    async def _child(self, parent: SearchNode, action: str) -> tuple[SearchNode, float]:
        name = f"{parent.name}.{len(parent.children)}".lstrip(".")
        child = SearchNode(name=name, parent=parent, action=action, status="failed", terminal=True)
        parent.children.append(child)
        try:
            child.state = await parent.state.branch(name, **self._options)
            ended = await child.state.execute(action)
            child.output = str(ended.text)
            child.status, child.terminal = str(ended.status), False
            found = await self._player.evaluate(child)
        except Exception as error:  # noqa: BLE001  # border: a failed trial must not affect the others
            child.status, child.terminal, child.reason = "failed", True, self._failed(error)
            return child, 0.0
        child.score, child.reason, child.terminal = _bounded(found.score / 10), found.reason, found.done
        return child, child.score

    def _failed(self, error: Exception) -> str:
        self.error = f"{error}" or type(error).__name__
        return self.error

    def _needed(self) -> list[SearchNode]:
        """Return the nodes whose states the algorithm may still need, and the best one."""
        live = getattr(self.algorithm, "live", None)
        if live is None:
            return [*self.root.below()]
        best = [self.best] if any(node.status != "failed" for node in [*self.root.below()][1:]) else []
        return [*live(self._tree), *best]

    async def _close_all(self, keep: Sequence[SearchNode]) -> None:
        kept = {id(node) for node in (self.root, *keep)}
        closing = [node for node in self.root.below() if node.state is not None and id(node) not in kept]

        async def close(node: SearchNode) -> None:
            state, node.state = node.state, None
            await state.close()

        await asyncio.gather(*(close(node) for node in closing), return_exceptions=True)


async def search(  # all but the first two have a default and are keyword-only
    agent: AgentLike,
    task: str,
    *,
    tree: TreeAlgorithm | None = None,
    root: State | None = None,
    player: Player | None = None,
    max_trials: int = 200,
    keep: bool = False,
    own_files: bool = False,
) -> SearchResult:
    """Search for a way to do a task, over branches of a live kernel and, with `own_files`, of its files.

    Args:
        agent: Asks, starts children, and branches its kernel.
        task: The task.
        tree: `LATS()` (the default), `BestFirst()`, `BeamSearch()`, or an algorithm of TreeQuest.
        root: The first state. None: a branch of the agent's kernel.
        player: Proposes, evaluates, simulates. None: the agent's model does, with cells of Python as actions.
        max_trials: The bound on trials, whatever the algorithm decides.
        keep: The best node's `state` stays open for the caller to close; otherwise all states are closed.
        own_files: Each state, and each child that simulates, works in its own copy of the workspace (see `Agent.branch`).
            Otherwise all share the workspace.

    Raises:
        StrategyError: No state was reached.
        Exception: The agent's kernel cannot be branched.
    """
    from freeact_sub.strategies.model_player import ModelPlayer  # noqa: PLC0415  # it imports this module

    options: dict[str, Any] = {"own_files": True} if own_files else {}
    begin = root
    if begin is None:
        begin = await agent.branch("search", **options)  # type: ignore[attr-defined]  # agents with kernels have it
    searching = Search(begin, player if player is not None else ModelPlayer(agent, task, **options), tree, **options)

    async def close(kept: SearchNode | None) -> None:
        try:
            await searching.aclose(keep=kept)
        finally:
            if root is None:
                await carry_out(begin.close(), timeout_seconds=CLOSE_SECONDS)

    try:
        result = await searching.run(max_trials=max_trials)
        await close(result.best if keep else None)
    except BaseException:
        await close(None)  # the caller never receives the state to keep
        raise
    return result


def _bounded(score: float) -> float:
    return min(1.0, max(0.0, float(score)))
