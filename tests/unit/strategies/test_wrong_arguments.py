"""Strategies given nothing, numbers below one, rubbish from a model or a user's function, and work that is cancelled by itself."""

import asyncio
import math
from types import SimpleNamespace
from typing import get_args

import pytest
from support.searches import Hidden, Words
from support.tables import each
from support.waiting import soon

from freeact_sub.errors import SpawnForbiddenError, StrategyError
from freeact_sub.events.ending import RunStatus
from freeact_sub.strategies import (
    LATS,
    BeamSearch,
    BestFirst,
    Evaluation,
    Member,
    ModelPlayer,
    Search,
    SearchNode,
    Simulation,
    Step,
    debate,
    mixture,
    parallel,
    pipeline,
    plan_and_execute,
    search,
    vote,
)
from freeact_sub.strategies.plans import Review


def searching(**arguments):
    return lambda _: search(None, "", root=Words(), player=Hidden(1), **arguments)


async def stepping(**arguments):
    async with Search(Words(), Hidden(1)) as begun:
        await begun.step(**arguments)


@pytest.mark.parametrize(
    ("start", "names"),
    [
        (lambda agent: vote(agent, "?", -1), "voter"),
        (lambda agent: vote(agent, "?", []), "voter"),
        (lambda agent: debate(agent, "?", 0), "debater"),
        (lambda agent: debate(agent, "?", rounds=-1), "rounds"),
        (lambda agent: mixture(agent, "?", ()), "proposer"),
        (lambda agent: mixture(agent, "?", layers=0), "layers"),
        (lambda agent: plan_and_execute(agent, "?", max_replans=-1), "max_replans"),
        (lambda agent: plan_and_execute(agent, "?", max_steps=0), "max_steps"),
        (lambda agent: plan_and_execute(agent, "?", levels=0), "levels"),
        (lambda _: Search(Words(), Hidden(1), actions=()), "actions"),
        (lambda _: stepping(batch_size=0), "batch_size"),
        (searching(max_trials=0), "max_trials"),
        (lambda _: LATS(simulations=0), "simulations"),
        (lambda _: LATS(branching=0), "branching"),
        (lambda _: BestFirst(expansions=-1), "expansions"),
        (lambda _: BeamSearch(width=0), "width"),
        (lambda _: BeamSearch(depth=0), "depth"),
    ],
)
async def test_nothing_and_numbers_below_one_are_refused_by_name_before_anybody_is_asked(fake, start, names):
    agent = fake(lambda *_: "x")
    with pytest.raises(ValueError, match=names):
        await start(agent)
    assert not agent.asked


async def test_no_items_are_no_results():
    assert await parallel([]) == await pipeline([]) == []
    assert await pipeline([1, 2]) == [1, 2]


async def test_what_an_iterable_raises_is_raised_as_it_is_and_nothing_was_begun():
    begun = []

    async def work():
        begun.append(1)

    def thunks():
        yield work
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        await parallel(thunks())
    assert not begun


async def cancels_itself(*_):
    raise asyncio.CancelledError


async def test_work_that_is_cancelled_by_itself_is_a_failure_in_its_place(fake):
    """As when a user's function waits for a task that somebody else cancels: nobody has cancelled the strategy."""
    one, two = await parallel([cancels_itself, lambda: soon(2)])
    assert isinstance(one, StrategyError)
    assert two == 2
    [lost] = await pipeline([1], cancels_itself)
    assert isinstance(lost, StrategyError)

    def second_is_cancelled():
        return fake(lambda *_: cancels_itself() if len(agent.asked) == 2 else "x")

    agent = second_is_cancelled()
    assert (await vote(agent, "?", 3)).votes == 2
    agent = second_is_cancelled()
    found = await debate(agent, "?", 3)
    assert (found.answer, found.vote.votes, isinstance(found.rounds[0][1], StrategyError)) == ("x", 3, True)
    agent = second_is_cancelled()
    assert (await debate(agent, "?", 2, rounds=1)).vote.failures, "one that has said nothing has no answer"
    agent = second_is_cancelled()
    assert (await mixture(agent, "?", 3)).answer == "x"


async def test_a_step_that_is_cancelled_by_itself_has_failed_and_nothing_after_it_begins(fake):
    answers = iter([[Step(task="a"), Step(task="b", depends_on=[0])], Review(answer="none")])
    agent = fake(lambda _, request: next(answers) if "history" in request else cancels_itself())
    result = await plan_and_execute(agent, "?")
    assert [bool(step.error) for step in result.steps] == [True, True]
    assert len(agent.tasks) == 1


@pytest.mark.parametrize(
    ("reviews", "problem"),
    [
        ([Review()], "neither an answer nor steps"),
        ([Review(answer=" \n")], "neither an answer nor steps"),
        ([Review(steps=[Step(task=" ")])], "step 0 has no text"),
    ],
)
async def test_a_review_that_says_nothing_is_given_back_and_then_refused(fake, reviews, problem):
    right = [[Step(task="a")], *reviews, Review(answer="yes")]
    agent = fake(lambda _, request: right.pop(0) if "history" in request else "x")
    assert (await plan_and_execute(agent, "?")).answer == "yes"
    assert problem in agent.asked[-1]["prompt"]
    agent = fake(
        lambda _, request: ([[Step(task="a")]] + reviews * 3)[len(agent.asked) - 1] if "history" in request else "x"
    )
    with pytest.raises(StrategyError, match=problem):
        await plan_and_execute(agent, "?")


async def test_a_key_that_raises_or_has_no_hash_takes_one_answer_only(fake):
    answers = iter(["1", "two", "1"])
    found = await vote(fake(lambda *_: next(answers)), "?", 3, key=int)
    assert (found.answer, found.votes, len(found.failures)) == ("1", 2, 1)
    with pytest.raises(StrategyError, match="unhashable"):
        await vote(fake(lambda *_: "x"), "?", 2, key=lambda answer: [answer])


async def test_answers_that_json_cannot_say_are_counted_and_quoted(fake):
    circle = {}
    circle["self"] = circle
    for answer in ({(1, 2): "a"}, {1: "a", "b": 2}, circle, math.nan):
        found = await debate(fake(lambda *_, answer=answer: answer), "?", 2)
        assert found.vote.votes == 2


async def test_one_name_and_one_member_are_a_list_of_one(fake):
    agent = fake(lambda *_: "x")
    await vote(agent, "?", "small")
    await mixture(agent, "?", Member(model="large"), "small")
    assert [request["model"] for request in agent.asked] == ["small", "large", "small"]


class WrongPlayer(Hidden):
    """Returns, or raises, what it was given for a method, and else plays."""

    def __init__(self, **given):
        super().__init__(3)
        self.given = given

    async def _do(self, method, *arguments):
        if method not in self.given:
            return await getattr(super(), method)(*arguments)
        given = self.given[method]
        if isinstance(given, BaseException):
            raise given
        return given

    async def propose(self, node, n):
        return await self._do("propose", node, n)

    async def evaluate(self, node):
        return await self._do("evaluate", node)

    async def simulate(self, node):
        return await self._do("simulate", node)


RUBBISH = [None, "good", 7, Simulation(score=math.nan), Evaluation(score=None), Evaluation(score="much")]


@each("rubbish", RUBBISH)
@each("method", ["evaluate", "simulate"])
async def test_a_judgement_that_is_none_counts_as_neutral_with_a_warning(method, rubbish):
    root = Words()
    result = await search(None, "", tree=LATS(simulations=3), root=root, player=WrongPlayer(**{method: rubbish}))
    assert any(f"the player's {method[:-1]}" in warning and "neutral" in warning for warning in result.warnings)
    judged = [node.score if method == "evaluate" else node.simulation.score for node in result.nodes if node.simulation]
    assert judged
    assert {*judged} == {0.5}
    assert {node.status for node in result.nodes} == {"ok"}
    assert root.world.open == {root}
    assert result.svg()


@each("method", ["evaluate", "simulate", "propose"])
@each("error", [RuntimeError(), asyncio.CancelledError()])
async def test_a_player_that_raises_or_is_cancelled_by_itself_fails_where_it_is(method, error):
    root = Words()
    run = search(None, "", tree=LATS(simulations=2), root=root, player=WrongPlayer(**{method: error}))
    told = "RuntimeError" if isinstance(error, RuntimeError) else "it was cancelled"
    if method == "simulate":
        result = await run
        assert (result.warnings, result.nodes[0].status) == ((told,), "ok")
    else:
        with pytest.raises(StrategyError, match=told):
            await run
    assert root.world.open == {root}


@each("tree", [LATS(), BestFirst(), BeamSearch()])
@each("proposed", [None, "abc", [1], [["a"]], 7])
async def test_a_proposal_that_is_no_list_of_texts_is_none(tree, proposed):
    root = Words()
    with pytest.raises(StrategyError, match="no state"):
        await search(None, "", tree=tree, root=root, player=WrongPlayer(propose=proposed))
    assert root.world.open == {root}
    assert len(root.world.made) == 1
    with pytest.raises(StrategyError, match="nothing was proposed"):
        await search(None, "", tree=tree, root=root, player=WrongPlayer(propose=[]))


async def test_what_runs_out_half_way_ends_the_search_with_what_was_found():
    class Spent(Hidden):
        async def evaluate(self, node):
            if self.calls > 8:
                raise RuntimeError("requests: 8 of 8 are used")
            return await super().evaluate(node)

        async def propose(self, node, n):
            if self.calls > 8:
                raise RuntimeError("requests: 8 of 8 are used")
            return await super().propose(node, n)

    for tree in (LATS(), BestFirst(), BeamSearch()):
        root = Words()
        result = await search(None, "", tree=tree, root=root, player=Spent(3))
        assert result.warnings == ("requests: 8 of 8 are used",)
        assert result.best.score > 0
        assert root.world.open == {root}


def ended(status):
    error = RuntimeError(status)
    error.result = SimpleNamespace(status=status)
    return error


@pytest.mark.parametrize(
    ("end", "score", "answer"),
    [
        ("24", 1.0, "24"),
        *((ended(status), 0.0 if status == "failed" else 0.5, None) for status in get_args(RunStatus)[1:]),
        (SpawnForbiddenError("no child may be started"), 0.5, None),
    ],
)
async def test_a_simulation_by_a_child_scores_by_how_it_ended_and_is_neutral_where_none_can_start(fake, end, score, answer):
    agent = fake(lambda *_: end)
    node = SearchNode(name="0.1", action="x = 1", parent=SearchNode(name=""), state="a node")
    found = await ModelPlayer(agent, "Reach 24.", own_files=True).simulate(node)
    assert (found.score, found.answer) == (score, answer)
    [child] = agent.tasks
    assert (child["branch_of"], child["own_files"], child["max_turns"]) == ("a node", True, 10)


async def test_a_model_that_proposes_blanks_and_too_much_is_given_as_many_as_it_was_asked_for(fake):
    agent = fake(lambda *_: ["", " \n", "a", "b", "c"])
    node = SearchNode(name="", children=[SearchNode(name="0", action="tried()")])
    assert await ModelPlayer(agent, "?").propose(node, 2) == ["a", "b"]
    assert "Tried already, do not repeat it:\ntried()" in agent.asked[0]["prompt"]


async def test_a_root_of_its_own_is_closed_if_the_tree_cannot_begin():
    class Agent:
        async def branch(self, description):
            del description
            self.root = Words()
            return self.root

    class Broken:
        def init_tree(self):
            raise LookupError("no tree")

    agent = Agent()
    with pytest.raises(LookupError, match="no tree"):
        await search(agent, "", tree=Broken())
    assert not agent.root.world.open
