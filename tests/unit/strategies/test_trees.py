"""The tree algorithms by ask and tell alone, as one drives TreeQuest's."""

import math
from types import SimpleNamespace

import pytest

from freeact_sub.strategies import LATS, SIMULATE, BeamSearch, BestFirst, top_k

ACTIONS = ["expand"]


def drive(algorithm, score, batch_size=3):
    """Ask and tell to the end. States are words; `score` values a word. Returns the tree and what was asked for, in order."""
    tree, asked = algorithm.init_tree(), []
    while True:
        tree, trials = algorithm.ask_batch(tree, batch_size, ACTIONS)
        if not trials:
            return tree, asked
        for number, trial in enumerate(trials):
            parent = trial.parent_state or ""
            asked.append((trial.action, parent))
            state = parent if trial.action == SIMULATE else parent + "abcdefgh"[number]
            tree = algorithm.tell(tree, trial.trial_id, (state, score(state)))


def test_lats_selects_expands_simulates_and_backpropagates():
    tree, asked = drive(LATS(simulations=3), lambda word: {"a": 0.2, "b": 0.9, "c": 0.1}.get(word[:1], 0.0))
    assert asked[:4] == [("expand", "")] * 3 + [(SIMULATE, "b")]
    assert asked[4:8] == [("expand", "b")] * 3 + [(SIMULATE, "ba")], "the best child is gone on with"
    assert [action for action, _ in asked].count(SIMULATE) == 3
    root = tree.root
    assert root.visits == 3
    b = root.children[1]
    simulated_below_b = sum(parent.startswith("b") for action, parent in asked if action == SIMULATE)
    assert b.visits == 1 + simulated_below_b, "its evaluation, and the simulations through it"
    assert b.value == pytest.approx(0.9)


def testucb1_is_the_formula():
    algorithm = LATS(exploration=1.414)
    node = SimpleNamespace(value=0.5, visits=2, parent=SimpleNamespace(visits=10))
    assert algorithm.ucb1(node) == pytest.approx(0.5 + 1.414 * math.sqrt(math.log(10) / 2))
    assert (LATS().simulations, LATS().exploration, LATS().depth, LATS().branching) == (5, 1.414, 10, 3)


def test_a_bad_start_is_left_for_another():
    """What looks good at first and never wins loses to its sibling."""
    tree, _ = drive(LATS(simulations=12), lambda word: 0.6 if word == "a" else 0.5 if word[:1] == "b" else 0.0)
    visits = {child.state: child.visits for child in tree.root.children}
    assert visits["b"] > visits["a"]


def test_depth_and_terminal_states_end_a_branch():
    _, asked = drive(LATS(simulations=50, depth=2, branching=2), len, batch_size=2)
    assert max(len(parent) for action, parent in asked if action == "expand") == 1
    assert len([0 for action, _ in asked if action == "expand"]) == 2 + 2 * 2, (
        "the tree is whole before its simulations are used up"
    )

    class Word(str):
        __slots__ = ()
        terminal = True

    algorithm = LATS()
    tree, trials = algorithm.ask_batch(algorithm.init_tree(), 3, ACTIONS)
    for trial in trials:
        tree = algorithm.tell(tree, trial.trial_id, (Word("x"), 0.4))
    tree, trials = algorithm.ask_batch(tree, 3, ACTIONS)
    assert (trials, tree.rounds) == ([], 1), "the score of what has ended is what a simulation would find"


@pytest.mark.parametrize("algorithm", [LATS(), BestFirst(), BeamSearch()])
def test_a_solved_search_ends(algorithm):
    class Solution(str):
        __slots__ = ()
        terminal = True

    tree, trials = algorithm.ask_batch(algorithm.init_tree(), 3, ACTIONS)
    for trial in trials:
        tree = algorithm.tell(tree, trial.trial_id, (Solution("x"), 1.0))
    assert algorithm.ask_batch(tree, 3, ACTIONS)[1] == []
    assert top_k(tree, algorithm, 1) == [("x", 1.0)]


def test_best_first_goes_on_with_the_best_wherever_it_is():
    scores = {"a": 0.5, "b": 0.7, "c": 0.6, "ba": 0.1, "bb": 0.55, "bc": 0.2}
    _, asked = drive(BestFirst(expansions=4), lambda word: scores.get(word, 0.0))
    assert [parent for _, parent in asked[::3]] == ["", "b", "c", "bb"]


def test_a_beam_keeps_the_best_of_each_level():
    scores = {"a": 0.1, "b": 0.9, "c": 0.8, "ba": 0.2, "bb": 0.3, "bc": 0.1, "ca": 0.9, "cb": 0.1, "cc": 0.25}
    tree, asked = drive(BeamSearch(width=2, depth=3), lambda word: scores.get(word, 0.0))
    assert [parent for _, parent in asked[::3]] == ["", "b", "c", "ca", "bb"], "ca has the better score"
    algorithm = BeamSearch(width=2, depth=3)
    assert {*"abc"} < {*algorithm.let_go(tree)} - {None}, "the one that is dropped, and those that have all their children"
    assert algorithm.let_go(tree) == []
    assert [state for state, _ in top_k(tree, BeamSearch(), 2)] == ["b", "ca"]


def test_small_batches_no_further_child_and_unknown_trials():
    algorithm = BestFirst(expansions=2)
    tree, first = algorithm.ask_batch(algorithm.init_tree(), 2, ["x", "y"])
    tree, second = algorithm.ask_batch(tree, 2, ["x", "y"])
    assert [trial.action for trial in (*first, *second)] == ["x", "y", "x"]
    assert algorithm.ask_batch(tree, 2, ACTIONS)[1] == [], "it waits to be told"
    tree = algorithm.tell(tree, "nobody asked for it", ("q", 1.0))
    tree = algorithm.tell(tree, first[0].trial_id, ("a", 0.5))
    tree = algorithm.tell(tree, first[0].trial_id, ("a again", 0.9))
    for trial in (first[1], second[0]):
        tree = algorithm.tell(tree, trial.trial_id, None)
    assert algorithm.get_state_score_pairs(tree) == [("a", 0.5)]
    assert algorithm.ask_batch(tree, 9, ACTIONS)[1][0].parent_state == "a"
