"""`search`: a tree of states, each a branch of its parent: live kernels, with or without files, or other copyable states.

A tree algorithm (`trees.py`) decides where to continue; this module does it. A player proposes actions for a state, the
state is branched, the action is executed in the branch, and the player evaluates the result. Returning to a state repeats
nothing, because it still exists. States that the algorithm no longer needs are closed at once, the others with the search.

`ModelPlayer` is the usual player: a model proposes cells of Python and evaluates their results; a child simulates.
"""

import asyncio
import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from freeact_sub.errors import StrategyError
from freeact_sub.show.tree_picture import DrawnNode, short_line, tree_svg
from freeact_sub.strategies.agent_like import AgentLike, Progress, parallel
from freeact_sub.strategies.trees import (
    LATS,
    NEUTRAL,
    SIMULATE,
    Evaluation,
    Player,
    SearchNode,
    Simulation,
    State,
    TreeAlgorithm,
    at_least_one,
)
from freeact_sub.system.closing import carry_out

SIMULATED_TURNS: Final = 10
REWARDS: Final = {"completed": 1.0, "failed": 0.0}
MAX_OUTPUT_CHARS: Final = 2000

PROPOSE: Final = """\
{situation}

Propose {n} different next cells: a JSON array of {n} texts, each the code of one cell. They are alternatives, each tried \
in a copy of the kernel as it is now; let them differ in the way, not in details.{tried}"""
EVALUATE: Final = """\
{situation}

How promising is this state of the work? Give a score from 0 (hopeless) to 10 (the task is done, and right), the reason in \
one sentence, and whether the task is done."""
SIMULATE_PROMPT: Final = "Go on with this task, in this kernel, and finish it.\n\n{situation}"
EXPAND: Final = "expand"
CLOSE_SECONDS: Final = 60.0
MAX_WARNINGS: Final = 20


class ModelPlayer:
    """A player with an agent's model; actions are cells."""

    def __init__(self, agent: AgentLike, task: str, **options: Any) -> None:
        """Make a player.

        Args:
            agent: Asks the model, and starts the children that simulate.
            task: The task.
            options: Options of these children, such as `own_files=True`.
        """
        self._options = options
        self._agent = agent
        self._task = task

    async def propose(self, node: SearchNode, n: int) -> Sequence[str]:
        """Return up to n distinct actions that could follow; those of `node.children` were tried already."""
        tried = "".join(f"\n\nTried already, do not repeat it:\n{child.action}" for child in node.children)
        prompt = PROPOSE.format(situation=self._situation(node), n=n, tried=tried)
        cells: list[str] = await self._agent.ask(prompt, output=list[str])
        return [cell for cell in cells if cell.strip()][:n]

    async def evaluate(self, node: SearchNode) -> Evaluation:
        """Judge how promising a state is."""
        found: Evaluation = await self._agent.ask(EVALUATE.format(situation=self._situation(node)), output=Evaluation)
        return found

    async def simulate(self, node: SearchNode) -> Simulation:
        """Start a child in a branch of the state. Score 1 if it completes, 0 if it fails, otherwise 0.5."""
        prompt = SIMULATE_PROMPT.format(situation=self._situation(node))
        options: dict[str, Any] = {
            **self._options,
            "branch_of": node.state,
            "description": f"simulates {node.name}",
            "max_turns": SIMULATED_TURNS,
        }
        try:
            result = await self._agent.task(prompt, **options)
        except Exception as error:  # noqa: BLE001  # border: why a child cannot start says nothing about the state
            status = getattr(getattr(error, "result", None), "status", "")
            return Simulation(score=REWARDS.get(status, NEUTRAL))
        return Simulation(score=REWARDS.get(result.status, NEUTRAL), answer=result.output)

    def _situation(self, node: SearchNode) -> str:
        cells = [
            f"Cell {each.name}:\n{each.action}\nOutput ({each.status}):\n{_output_cut(each.output)}" for each in node.path
        ]
        return "\n\n".join([f"The task: {self._task}", *(cells or ["Nothing was run for it so far."])])


def _output_cut(text: str) -> str:
    return text if len(text) <= MAX_OUTPUT_CHARS else f"{text[:MAX_OUTPUT_CHARS]} […]"


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The result of a search. It draws itself: in a terminal (`rich.print(result)`), in a notebook, as `result.svg()`."""

    best: SearchNode
    """The state of the highest value, of those with an answer if there are any; of equals, the first tried."""
    root: SearchNode
    trials: int
    """The number of trials that the algorithm requested."""
    warnings: tuple[str, ...] = ()
    """Reasons why something could not be tried, and results of the player that are not a score: each once, in order."""

    @property
    def answer(self) -> Any:
        """The best node's answer."""
        return self.best.answer

    @property
    def nodes(self) -> list[SearchNode]:
        """All states reached, parents before children."""
        return [*self.root.below()][1:]

    def __rich__(self) -> Any:
        from rich.text import Text  # noqa: PLC0415  # imported only to draw
        from rich.tree import Tree  # noqa: PLC0415

        def grown(node: DrawnNode, tree: Tree) -> Tree:
            for child in node.children:
                label = Text(child.label(), style="bold green" if child.is_best else "dim" if child.failed else "")
                if child.reason:
                    label.append(f"  {short_line(child.reason, 60)}", style="dim")
                grown(child, tree.add(label))
            return tree

        return grown(self._drawn(), Tree(Text("search", style="bold")))

    def svg(self) -> str:
        """Return the tree as one SVG element; the text takes the colour of its page."""
        return tree_svg(self._drawn())

    def _repr_svg_(self) -> str:
        return self.svg()

    def _drawn(self) -> DrawnNode:
        best = {*self.best.path}

        def drawn(node: SearchNode) -> DrawnNode:
            return DrawnNode(
                action=node.action,
                reason=node.reason,
                score=node.score,
                terminal=node.terminal,
                failed=node.status == "failed",
                is_best=node in best,
                children=[drawn(child) for child in node.children],
            )

        return drawn(self.root)


class Search:
    """A search, step by step. As an async context manager it closes all its states on exit."""

    def __init__(
        self,
        root: State,
        player: Player,
        tree: TreeAlgorithm | None = None,
        *,
        actions: Sequence[str] = (EXPAND,),
        progress: Progress | None = None,
        **options: Any,
    ) -> None:
        """Begin with the root only.

        Args:
            root: The first state; the caller closes it.
            player: Knows the task.
            tree: Decides where to continue. Default: `LATS()`.
            actions: Names of ways to continue, for algorithms that choose among several (TreeQuest).
            progress: Reports each state that was evaluated or simulated.
            options: Arguments of each `branch` besides the name, such as `own_files=True`.

        Raises:
            ValueError: There are no actions.
        """
        if not actions:
            raise ValueError("actions must be at least 1")
        self.algorithm: TreeAlgorithm = tree if tree is not None else LATS()
        self.root = SearchNode(name="", state=root)
        self.trials = 0
        self._warnings: dict[str, None] = {}
        self._player = player
        self._progress = progress
        self._actions = [*actions]
        self._options = options
        self._tree: Any = self.algorithm.init_tree()
        self._branching: int | None = getattr(self.algorithm, "branching", None)
        """The number of children of a state. None: the algorithm asks for any number."""
        self._let_go: Callable[[Any], list[SearchNode]] = getattr(self.algorithm, "let_go", lambda _: [])
        """A function that returns the nodes whose states the algorithm has stopped needing since the last call."""
        self._spared: list[SearchNode] = []
        """The best node among these."""
        self._nodes = [self.root]
        self._ranking: list[tuple[bool, float, int]] = []
        """A heap of worths and numbers, best first; outdated worths stay in it."""
        self._proposed: dict[SearchNode, list[str]] = {}
        """Actions not tried yet."""

    @property
    def best(self) -> SearchNode:
        """The best state. Raises StrategyError: no state was reached."""
        best = self._best
        if best is None:
            raise StrategyError(f"the search reached no state: {[*(self._warnings or ['nothing was proposed'])][-1]}")
        return best

    @property
    def _best(self) -> SearchNode | None:
        while self._ranking:
            *worth, number = self._ranking[0]
            if worth == _worth(self._nodes[number]):
                return self._nodes[number]
            heapq.heappop(self._ranking)
        return None

    async def step(self, batch_size: int | None = None) -> bool:
        """Do the next trials, side by side. Returns False if there are none.

        Args:
            batch_size: Number of trials. None: as many as a state gets children, or 1.

        Raises:
            ValueError: `batch_size` is below 1.
        """
        size = at_least_one(batch_size=self._branching or 1 if batch_size is None else batch_size)
        self._tree, trials = self.algorithm.ask_batch(self._tree, size, self._actions)
        await self._close_unneeded()
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
        """Search until the algorithm has no more trials or `max_trials` are done.

        Raises:
            StrategyError: No state was reached.
            ValueError: A number is below 1.
        """
        at_least_one(max_trials=max_trials)
        while self.trials < max_trials and await self.step(batch_size):
            pass
        return SearchResult(best=self.best, root=self.root, trials=self.trials, warnings=tuple(self._warnings))

    def top_k(self, k: int = 1) -> list[SearchNode]:
        """Return the best states by the algorithm's scores, best first."""
        pairs = sorted(self.algorithm.get_state_score_pairs(self._tree), key=lambda pair: -pair[1])
        return [node for node, _ in pairs[:k]]

    async def aclose(self, *, keep: SearchNode | None = None) -> None:
        """Close all states except the root's and the one to keep."""
        await self._close([node for node in self._nodes if node is not keep])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _propose(self, parents: Sequence[SearchNode]) -> None:
        """Let the player propose enough actions for the next children of these nodes."""

        async def one(parent: SearchNode) -> None:
            wanted = self._branching or parents.count(parent)
            untried = self._proposed.get(parent)
            if parent.terminal or (untried is not None and (self._branching is not None or len(untried) >= wanted)):
                return
            known = {child.action for child in parent.children}
            proposed = await self._player.propose(parent, wanted)
            if isinstance(proposed, str) or not all(isinstance(action, str) for action in proposed):
                raise TypeError(f"the player proposes {_cut(proposed)}, which is not a list of texts")
            self._proposed[parent] = [*dict.fromkeys([*(untried or ()), *(each for each in proposed if each not in known)])]

        parents = [*dict.fromkeys(parents)]
        found = await parallel([lambda parent=parent: one(parent) for parent in parents])  # type: ignore[misc]
        for parent, error in zip(parents, found, strict=True):
            if isinstance(error, Exception):
                self._warn(error)
                self._proposed.setdefault(parent, [])

    async def _carry_out(self, trial: Any) -> tuple[SearchNode, float] | None:
        node: SearchNode = trial.parent_state or self.root
        actions = self._proposed.get(node)
        if trial.action == SIMULATE:
            told = node, await self._simulated(node)
        elif node.terminal:
            return node, node.score
        elif not actions:
            return None
        else:
            told = await self._child(node, actions.pop(0))
        if told[0].status != "failed":
            heapq.heappush(self._ranking, (*_worth(told[0]), told[0].number))
        if self._progress is not None:
            await self._progress.state(told[0], self._best)
        return told

    async def _simulated(self, node: SearchNode) -> float:
        [found] = await parallel([lambda: self._player.simulate(node)])
        if isinstance(found, Exception):  # a state from which nothing can follow is worth nothing
            self._warn(found)
            found = Simulation(score=0.0)
        try:
            node.simulation = Simulation(score=_bounded(found.score), answer=found.answer)
        except (AttributeError, TypeError, ValueError):
            self._warn(f"the player's simulation of {node.name} is of no use, and counts as neutral: {_cut(found)}")
            node.simulation = Simulation(score=NEUTRAL)
        return node.simulation.score

    async def _child(self, parent: SearchNode, action: str) -> tuple[SearchNode, float]:
        name = f"{parent.name}.{len(parent.children)}".lstrip(".")
        child = SearchNode(name=name, number=len(self._nodes), parent=parent, action=action)
        parent.children.append(child)
        self._nodes.append(child)
        [found] = await parallel([lambda: self._evaluated(child, parent.state)])
        if isinstance(found, Exception):  # a failed trial must not affect the others
            child.status, child.terminal, child.reason = "failed", True, self._warn(found)
            return child, 0.0
        try:
            child.score, child.reason, child.terminal = _bounded(found.score / 10), str(found.reason), bool(found.done)
        except (AttributeError, TypeError, ValueError):
            child.score = NEUTRAL
            child.reason = self._warn(
                f"the player's evaluation of {name} is of no use, and counts as neutral: {_cut(found)}"
            )
        return child, child.score

    async def _evaluated(self, child: SearchNode, origin: Any) -> Evaluation:
        child.state = await origin.branch(child.name, **self._options)
        # the player's models have written it: a node of a program asks about it, as a cell's proxy does by itself
        run = getattr(child.state, "execute_asked", child.state.execute)
        ended = await run(child.action)
        child.output, child.status = str(ended.text), str(ended.status)
        return await self._player.evaluate(child)

    def _warn(self, what: Exception | str) -> str:
        told = f"{what}" or type(what).__name__
        if len(self._warnings) < MAX_WARNINGS:
            self._warnings[told] = None
        return told

    async def _close_unneeded(self) -> None:
        let_go = [node for node in (*self._spared, *self._let_go(self._tree)) if node is not None]
        # their worth is final: of these, only the best can become the best of all once a simulation has failed elsewhere
        reached = [node for node in let_go if node.status != "failed"]
        self._spared = [min(reached, key=lambda node: (_worth(node), node.number))] if reached else []
        await self._close([node for node in let_go if node not in self._spared])

    async def _close(self, nodes: Sequence[SearchNode]) -> None:
        """Close the states of nodes that have one, except the root's."""

        async def close(node: SearchNode) -> None:
            state, node.state = node.state, None
            await state.close()

        async def close_all() -> None:
            await asyncio.gather(*map(close, closing), return_exceptions=True)

        closing = [node for node in nodes if node is not self.root and node.state is not None]
        if closing:
            await carry_out(close_all(), timeout_seconds=CLOSE_SECONDS)


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
        ValueError: `max_trials` is below 1.
        Exception: The agent's kernel cannot be branched.
    """
    at_least_one(max_trials=max_trials)
    options: dict[str, Any] = {"own_files": True} if own_files else {}
    begin = root if root is not None else await agent.branch("search", **options)  # type: ignore[attr-defined]  # if it has a kernel
    searching: Search | None = None

    async def close(kept: SearchNode | None) -> None:
        try:
            if searching is not None:
                await searching.aclose(keep=kept)
        finally:
            if root is None:
                await carry_out(begin.close(), timeout_seconds=CLOSE_SECONDS)

    try:
        plays = player if player is not None else ModelPlayer(agent, task, **options)
        async with Progress(agent, "search") as progress:
            searching = Search(begin, plays, tree, progress=progress, **options)
            result = await searching.run(max_trials=max_trials)
        await close(result.best if keep else None)
    except BaseException:
        await close(None)  # the caller never receives the state to keep
        raise
    return result


def _worth(node: SearchNode) -> list[Any]:
    """Return a sort key; less is better."""
    return [node.answer is None, -node.value]


def _bounded(score: float) -> float:
    if math.isnan(score):
        raise ValueError("no number")
    return min(1.0, max(0.0, float(score)))


def _cut(value: Any) -> str:
    return repr(value)[:100]
