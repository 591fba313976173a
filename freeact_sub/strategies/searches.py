"""`search`: a tree of states, each a branch of the one above it: live kernels, also with their files, or what can be copied.

A tree algorithm (`trees.py`) says where to go on; this does it. To go on from a state: a player proposes actions, the state
is branched, the action is executed in the branch, and the player evaluates what came of it. Nothing is run again to go
back to a state: it is still there. States that the algorithm needs no more are closed at once, the others with the search.
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
    """A state of the world: a `KernelNode`, or whatever else can be copied."""

    async def branch(self, description: str = "", **options: Any) -> Any:
        """A copy of it as it is now; neither sees what the other does afterwards. Args: options: see `Search`."""
        ...

    async def execute(self, code: str) -> Any:
        """Carries out an action in it: a value with `status` (`ok`, or how it failed) and `text`."""
        ...

    async def close(self) -> None:
        """Ends it; copies of it go on. Can be called again."""
        ...


@dataclass(kw_only=True, eq=False)
class SearchNode:
    """A state that a search has reached."""

    name: str
    """Its place in the tree, such as `0.2.1`: the second child of the third child of the root. The root's is empty."""
    parent: "SearchNode | None" = None
    action: str = ""
    """What led to it from its parent."""
    output: str = ""
    """What the action has put out."""
    status: str = "ok"
    """How the action ended; `failed`: it could not be tried, and `reason` says why."""
    score: float = 0.0
    """From 0 to 1: the evaluation, or for what could not be tried 0."""
    reason: str = ""
    """Of the evaluation."""
    terminal: bool = False
    """The task is done here, or nothing can follow."""
    simulation: "Simulation | None" = None
    """What a simulation from here has found."""
    state: Any = None
    """None: it is closed."""
    children: list["SearchNode"] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """Distance from the root."""
        return 0 if self.parent is None else self.parent.depth + 1

    @property
    def path(self) -> list["SearchNode"]:
        """From the first action to this one."""
        return [] if self.parent is None else [*self.parent.path, self]

    @property
    def value(self) -> float:
        """The mean of evaluation and simulation."""
        return self.score if self.simulation is None else (self.score + self.simulation.score) / 2

    @property
    def answer(self) -> Any:
        """That of its simulation; else what its action has put out, if the task is done there. None: there is none."""
        if self.simulation is not None and self.simulation.answer is not None:
            return self.simulation.answer
        return self.output if self.terminal and self.status != "failed" else None

    def below(self) -> Iterator["SearchNode"]:
        """It and all below it, parents before children."""
        yield self
        for child in self.children:
            yield from child.below()

    def __repr__(self) -> str:
        return f"SearchNode({self.name!r}, score={self.score:.2f}, status={self.status!r})"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a player thinks of a state."""

    score: float
    """From 0 to 10."""
    reason: str = ""
    done: bool = False
    """The task is done in this state."""


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """What has come of playing on from a state."""

    score: float
    """From 0 to 1."""
    answer: Any = None
    """None: it has come to none."""


class Player(Protocol):
    """Knows the task: proposes, evaluates, simulates."""

    async def propose(self, node: SearchNode, n: int) -> Sequence[str]:
        """Distinct actions that could follow, at most n of them count. `node.children` were tried already."""
        ...

    async def evaluate(self, node: SearchNode) -> Evaluation:
        """How promising a state is."""
        ...

    async def simulate(self, node: SearchNode) -> Simulation:
        """Plays on from a state to an end, without changing it."""
        ...


@dataclass(frozen=True, kw_only=True)
class SearchResult(SearchPicture):
    """What came of a search. It draws itself: for a terminal (`rich.print(result)`), in a notebook, as `result.svg()`."""

    best: SearchNode
    """Of the states with an answer that with the highest value, else of all; of several the first."""
    root: SearchNode
    trials: int
    """How many were asked for."""
    error: str = ""
    """Why something could not be tried, the last of such reasons. Empty: all could."""

    @property
    def answer(self) -> Any:
        """That of the best node. None: no state has one."""
        return self.best.answer

    @property
    def nodes(self) -> list[SearchNode]:
        """All states that were reached, parents before children."""
        return [*self.root.below()][1:]


class Search:
    """A search, step by step. As an async context manager it closes all its states when it is left."""

    def __init__(
        self,
        root: State,
        player: Player,
        tree: TreeAlgorithm | None = None,
        *,
        actions: Sequence[str] = (EXPAND,),
        **options: Any,
    ) -> None:
        """Begin with nothing but the root.

        Args:
            root: The first state; who made it closes it.
            player: Knows the task.
            tree: Says where to go on. Default: `LATS()`.
            actions: Names of ways to go on, for algorithms that choose among some (TreeQuest).
            options: What each `branch` of a state is given besides its name, such as `own_files=True`.
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
        """How many children a state gets; None: the algorithm asks for more as it likes."""
        self._proposed: dict[SearchNode, list[str]] = {}
        """Actions that are not tried yet."""

    @property
    def best(self) -> SearchNode:
        """See `SearchResult`. Raises StrategyError: no state was reached."""
        reached = [node for node in self.root.below() if node is not self.root and node.status != "failed"]
        if not reached:
            raise StrategyError(f"the search has reached no state: {self.error or 'nothing was proposed'}")
        return max(reached, key=lambda node: (node.answer is not None, node.value))

    async def step(self, batch_size: int | None = None) -> bool:
        """Do the next trials, side by side. Returns False: there are none.

        Args:
            batch_size: How many; None: as many children as a state gets, else 1.
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
            # an algorithm of TreeQuest has no word for "there is no further child"
            nothing = None if self._branching is not None else (SearchNode(name="", status="failed", terminal=True), 0.0)
            self._tree = self.algorithm.tell(self._tree, trial.trial_id, result or nothing)  # type: ignore[arg-type]  # as said
        return True

    async def run(self, *, max_trials: int = 200, batch_size: int | None = None) -> SearchResult:
        """Search until the algorithm has no more trials, or `max_trials` were made."""
        while self.trials < max_trials and await self.step(batch_size):
            pass
        return SearchResult(best=self.best, root=self.root, trials=self.trials, error=self.error)

    def top_k(self, k: int = 1) -> list[SearchNode]:
        """The best states by the algorithm's scores, the best first."""
        pairs = sorted(self.algorithm.get_state_score_pairs(self._tree), key=lambda pair: -pair[1])
        return [node for node, _ in pairs[:k]]

    async def aclose(self, *, keep: SearchNode | None = None) -> None:
        """Close all states but the root's, and that of a node that the caller keeps."""
        await carry_out(self._close_all(keep=[keep] if keep is not None else []), timeout_seconds=CLOSE_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _propose(self, parents: Sequence[SearchNode]) -> None:
        """Have enough actions proposed for the children that are to be made of these."""

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
        except Exception as error:  # noqa: BLE001  # border: a state of which nothing can be made is worth nothing
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
        except Exception as error:  # noqa: BLE001  # border: what cannot be tried here takes nothing from what can elsewhere
            child.status, child.terminal, child.reason = "failed", True, self._failed(error)
            return child, 0.0
        child.score, child.reason, child.terminal = _bounded(found.score / 10), found.reason, found.done
        return child, child.score

    def _failed(self, error: Exception) -> str:
        self.error = f"{error}" or type(error).__name__
        return self.error

    def _needed(self) -> list[SearchNode]:
        """The nodes whose states may still be gone on with, or are the best."""
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


async def search(  # all but the first two have a default, and are given by name
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
    """Search for a way to do a task, over branches of a live kernel, and of its files if that is wished.

    Args:
        agent: Asks, starts children, and branches its kernel.
        task: What is to be done.
        tree: `LATS()` (the default), `BestFirst()`, `BeamSearch()`, or an algorithm of TreeQuest.
        root: Where to begin. None: in a branch of the agent's kernel.
        player: Proposes, evaluates, simulates. None: the agent's model does, with cells of Python as actions.
        max_trials: After so many the search ends, whatever the algorithm says.
        keep: The best node's `state` stays open, and is the caller's to close; else all states are closed.
        own_files: Each state works in a copy of the workspace that no other sees (see `Agent.branch`), and so do children
            that simulate. Else all share the workspace.

    Raises:
        StrategyError: No state was reached.
        Exception: There is no kernel to begin in.
    """
    from freeact_sub.strategies.model_player import ModelPlayer  # noqa: PLC0415  # it knows this module

    options: dict[str, Any] = {"own_files": True} if own_files else {}
    begin = root
    if begin is None:
        begin = await agent.branch("search", **options)  # type: ignore[attr-defined]  # who has kernels has it
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
        await close(None)  # nobody gets the state that was to be kept
        raise
    return result


def _bounded(score: float) -> float:
    return min(1.0, max(0.0, float(score)))
