"""`search` over states without kernels: what LATS finds, the game of 24, pictures, failures, and that nothing stays open."""

import asyncio
import io
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from support.searches import Hidden, Player24, Table, Words, sampled, tree_of_thoughts
from support.tables import each
from support.waiting import soon, turns

from freeact_sub.errors import StrategyError
from freeact_sub.strategies import LATS, BeamSearch, BestFirst, Evaluation, Search, Simulation, search

PUZZLES = ["4 5 6 10", "1 1 4 6", "3 3 8 8", "2 3 5 12", "1 5 5 5", "4 4 7 7", "2 4 10 10", "6 6 6 6", "3 7 9 13", "1 2 7 7"]


@pytest.mark.parametrize(("simulations", "enough", "expected"), [(LATS().simulations, 2, 20), (5, 3, 0), (16, 3, 20)])
async def test_lats_finds_within_its_simulations_what_sampling_does_not(simulations, enough, expected):
    """Twenty worlds of 729 words; plain sampling guesses whole words, with as many calls of the model.

    How far a search gets: with the default five simulations and exploration 1.414 to the second letter, with 16 to the third.
    So the five find the answer where a child that simulates can finish from two right letters, and not where it needs three.
    """
    found, by_sampling = 0, 0
    for seed in range(20):
        player, root = Hidden(seed, enough=enough), Words()
        result = await search(None, "", tree=LATS(simulations=simulations), root=root, player=player)
        found += result.answer == player.answer
        by_sampling += sampled(seed, player.calls)
        assert root.world.open == {root}, "who made the root closes it, and nobody else's state is open"
        assert len(root.world.made) == len(result.nodes) + 1
    assert (found, by_sampling) == (expected, 0)


@each("puzzle", PUZZLES)
async def test_a_beam_plays_the_game_of_24_as_tree_of_thoughts_does_at_equal_calls(puzzle):
    player, log = Player24(), []
    beam = BeamSearch(width=5, depth=3, branching=Player24.moves_of_each)
    result = await search(None, "24", tree=beam, root=Table(puzzle, log), player=player, max_trials=10_000)
    reference = Player24()
    expected = tree_of_thoughts(puzzle, reference)
    assert 10 * result.best.score == expected[0][1]
    assert result.best.output in [str(numbers) for numbers, value in expected if value == expected[0][1]]
    assert player.proposed == reference.proposed
    assert player.valued == reference.valued, "the same states, in the same order, down to the last level"
    assert len(log) == len(result.nodes), "each move was made once: no state was reached again by replay"


def test_the_puzzles_are_solved_and_not_solved():
    """Else the comparison would show nothing."""
    solved = [tree_of_thoughts(puzzle, Player24())[0][1] == 10 for puzzle in PUZZLES]
    assert 2 <= sum(solved) < len(PUZZLES)


async def test_proposals_are_distinct_and_of_an_action_there_is_one_child():
    class Repeats(Hidden):
        async def propose(self, node, n):
            return ["a", "a", "b"]

    result = await search(None, "", tree=BeamSearch(depth=1), root=Words(), player=Repeats(1))
    assert [(node.name, node.action) for node in result.nodes] == [("0", "a"), ("1", "b")]


async def test_what_cannot_be_tried_takes_nothing_from_the_rest():
    class Fragile(Words):
        async def branch(self, description=""):
            made = await super().branch(description)
            made.__class__ = Fragile
            return made

        async def execute(self, code):
            if code == "b":
                raise RuntimeError("the kernel is gone")
            return await super().execute(code)

    class Moody(Hidden):
        async def simulate(self, node):
            raise LookupError("no child")

    root = Fragile()
    result = await search(None, "", tree=LATS(simulations=3), root=root, player=Moody(3))
    failed = [node for node in result.nodes if node.status == "failed"]
    assert failed
    assert all((node.action, node.score, node.reason) == ("b", 0.0, "the kernel is gone") for node in failed)
    assert all(node.simulation.score == 0 for node in result.nodes if node.simulation is not None)
    assert {*result.warnings} == {"the kernel is gone", "no child"}
    assert result.best.action != "b"
    assert root.world.open == {root}


async def test_a_search_that_reaches_nothing_says_why():
    class Silent(Hidden):
        async def propose(self, node, n):
            raise RuntimeError("the model is down")

    root = Words()
    for tree in (LATS(), BestFirst(), BeamSearch()):
        with pytest.raises(StrategyError, match="no state: the model is down"):
            await search(None, "", tree=tree, root=root, player=Silent(1))
    assert root.world.open == {root}


async def test_states_that_are_needed_no_more_are_closed_while_it_goes_on():
    root, most = Words(), []

    class Counts(Hidden):
        async def evaluate(self, node):
            most.append(len(root.world.open))
            return await super().evaluate(node)

    await search(None, "", tree=BeamSearch(width=2, depth=6), root=root, player=Counts(5))
    assert len(root.world.made) > 24
    assert max(most) <= 1 + 2 + 2 * 3 + 1, "the root, the beam, its children, the best"


async def test_the_best_state_is_kept_if_that_is_wished_and_a_root_of_its_own_is_closed():
    root = Words()
    agent = SimpleNamespace(branch=lambda description: soon(root))
    player = Hidden(2)
    result = await search(agent, "", tree=LATS(simulations=16), player=player, keep=True)
    assert root.world.open == {result.best.state}
    assert result.best.state.word == "".join(node.action for node in result.best.path)
    assert player.answer.startswith(result.best.state.word)


async def test_the_best_state_is_open_also_where_a_better_looking_one_came_to_nothing_after_it():
    class Blunt(Hidden):
        async def evaluate(self, node):
            return Evaluation(score=8 if node.depth == 1 else 9)

        async def simulate(self, node):
            return Simulation(score=0.8 if node.depth == 1 else 0.0)

    root = Words()
    result = await search(None, "", tree=LATS(simulations=2, branching=1), root=root, player=Blunt(1), keep=True)
    assert (result.best.name, result.nodes[1].value) == ("0", 0.45)
    assert root.world.open == {root, result.best.state}


@each(
    "grown",
    [
        lambda states: LATS(simulations=states // 3, depth=100),
        lambda states: BestFirst(expansions=states // 3, depth=states),
        lambda states: BeamSearch(width=states // 30, depth=12),
        lambda states: BeamSearch(width=1, depth=states // 3),
    ],
    ids=["LATS", "BestFirst", "BeamSearch, wide", "BeamSearch, deep"],
)
@pytest.mark.slow
async def test_a_search_with_twice_as_many_states_is_twice_the_work(grown):
    """Calls of functions are counted."""

    class Indifferent(Hidden):
        async def evaluate(self, node):
            return Evaluation(score=self.random.uniform(0, 9))

    async def calls_of_each(states):
        calls = 0

        def count(frame, event, argument):
            nonlocal calls
            calls += event in ("call", "c_call")

        agent = SimpleNamespace(progress=lambda **step: turns())
        sys.setprofile(count)
        try:
            result = await search(agent, "", tree=grown(states), root=Words(), player=Indifferent(1), max_trials=10_000)
        finally:
            sys.setprofile(None)
        return calls / len(result.nodes)

    assert await calls_of_each(600) < 1.3 * await calls_of_each(300)


async def test_step_by_step_and_what_is_best_so_far():
    async with Search(Words(), Hidden(4), BestFirst(expansions=2)) as searching:
        assert await searching.step(2)
        assert await searching.step()
        assert len(searching.top_k(5)) == 3
        assert searching.top_k(1) == [searching.best]
        result = await searching.run(max_trials=4)
        assert result.trials in (4, 5, 6)
    assert len(searching.root.state.world.open) == 1


@pytest.mark.parametrize("tree", [LATS(), BestFirst(), BeamSearch(depth=3)])
async def test_a_cancel_at_any_step_leaves_nothing(tree):
    for steps in (*range(1, 40), *range(40, 200, 7)):
        root = Words()
        agent = SimpleNamespace(branch=lambda description, root=root: soon(root))
        work = asyncio.create_task(search(agent, "", tree=tree, player=Hidden(steps), keep=True))
        await turns(steps)
        work.cancel()
        await asyncio.wait({work}, timeout=60)
        assert work.done()
        left = root.world.open - ({work.result().best.state} if not work.cancelled() else set())
        assert not left - ({root} if len(root.world.made) == 1 else set()), f"after {steps} steps"


async def test_pictures_show_every_state_and_harm_nobody():
    class Hostile(Hidden):
        async def propose(self, node, n):
            return ["<script>alert('&')</script>\x1b[31m\n", "b", "c"]

        async def evaluate(self, node):
            return Evaluation(score=5, reason='"><b>\x1b]0;title\x07', done=node.depth == 2)

    result = await search(None, "", tree=BeamSearch(depth=2), root=Words(), player=Hostile(1))
    drawn = ET.fromstring(result._repr_svg_())
    assert len(drawn.findall(".//{*}rect")) == len(result.nodes) + 1
    assert len(drawn.findall(".//{*}path")) == len(result.nodes)
    assert not drawn.findall(".//{*}script")
    rules = drawn.find(".//{*}style").text.split("}")[:-1]
    assert all(rule.startswith(".fsub-tree ") for rule in rules), "in a page they count for this picture alone"
    assert len(drawn.findall(".//{*}g[@class='best']")) == result.best.depth
    output = io.StringIO()
    Console(file=output, width=120).print(result)
    assert output.getvalue().count("0.50 ") == len(result.nodes)
    assert "\x1b" not in output.getvalue()
    assert "\x07" not in output.getvalue()


@dataclass(kw_only=True)
class StandIn:
    """An algorithm with the signatures of TreeQuest's (0.3.3): a state that it keeps, trials that it may give too many of."""

    samples: int = 2
    told: list[Any] = field(default_factory=list)

    def init_tree(self):
        return {"nodes": [], "out": {}}

    def ask_batch(self, state, batch_size, actions):
        parents = [node for node, _ in state["nodes"]] or [None]
        best = max(state["nodes"], key=lambda pair: pair[1])[0] if state["nodes"] else parents[0]
        trials = [
            SimpleNamespace(
                trial_id=f"t{len(state['out']) + number}",
                node_to_expand=0,
                action=actions[number % len(actions)],
                parent_state=best,
                trial_status="RUNNING",
            )
            for number in range(batch_size + self.samples)
        ]
        state["out"] |= {trial.trial_id: trial for trial in trials}
        return state, trials

    def tell(self, state, trial_id, result):
        node, score = result
        assert 0 <= score <= 1
        self.told.append(trial_id)
        state["nodes"].append((node, score))
        return state

    def get_state_score_pairs(self, state):
        return state["nodes"]


async def test_an_algorithm_with_treequests_signatures_drives_a_search():
    root, algorithm = Words(), StandIn()
    result = await search(None, "", tree=algorithm, root=root, player=Hidden(6, length=3), max_trials=60)
    assert result.trials >= 60
    assert len(algorithm.told) == result.trials
    assert (result.best.terminal, result.best.depth) == (True, 3)
    assert root.world.open == {root}


@pytest.mark.parametrize("name", ["StandardMCTS", "ABMCTSA", "TreeOfThoughtsBFSAlgo"])
@pytest.mark.slow
async def test_treequest_itself_drives_a_search(name):
    import treequest  # takes a second, and only this test needs it

    algorithm = getattr(treequest, name)()
    root, player = Words(), Hidden(6, length=3)
    async with Search(root, player, algorithm) as searching:
        result = await searching.run(max_trials=40)
        [best] = searching.top_k(1)
    assert isinstance(best.value, float)
    assert result.nodes
    assert root.world.open == {root}


async def test_simulation_and_evaluation_make_the_value():
    class Fixed(Hidden):
        async def evaluate(self, node):
            return Evaluation(score=14)

        async def simulate(self, node):
            return Simulation(score=-3, answer="x")

    result = await search(None, "", tree=LATS(simulations=1), root=Words(), player=Fixed(1))
    assert (result.best.score, result.best.simulation.score, result.best.value, result.answer) == (1.0, 0.0, 0.5, "x")
