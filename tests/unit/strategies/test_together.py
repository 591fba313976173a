"""`parallel`, `pipeline`, `vote`, `debate`, `mixture`: order, failures in their place, and every message as the papers have it."""

import asyncio
from dataclasses import dataclass

import pytest
from support.waiting import soon, turns

from freeact_sub.errors import StrategyError
from freeact_sub.strategies import Member, debate, mixture, parallel, pipeline, plan_and_execute, vote


def in_turn(*answers):
    """Answers one after another, whoever asks."""
    rest = list(answers)
    return lambda _prompt, _request: rest.pop(0)


async def test_parallel_keeps_order_and_puts_failures_in_their_place():
    second = asyncio.Event()

    async def first():
        await second.wait()
        return 1

    async def fails():
        second.set()
        raise LookupError("no")

    one, two = await asyncio.wait_for(parallel([first, fails]), 60)
    assert one == 1
    assert isinstance(two, LookupError)


async def test_parallel_that_is_cancelled_has_ended_all_when_it_returns():
    begun, ended = asyncio.Event(), []

    async def slow(name):
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await turns()  # its end takes a moment
            ended.append(name)

    work = asyncio.create_task(parallel([lambda: slow("a"), lambda: slow("b")]))
    await asyncio.wait_for(begun.wait(), 60)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert sorted(ended) == ["a", "b"]


async def test_a_pipeline_has_no_barrier():
    """The second item is through both stages while the first is still in its first one: a barrier would hang here."""
    done = asyncio.Event()

    async def read(item):
        if item == "slow":
            await done.wait()
        if item == "bad":
            raise ValueError(item)
        return item

    async def write(item):
        done.set()
        return item.upper()

    slow, quick, bad = await asyncio.wait_for(pipeline(["slow", "quick", "bad"], read, write), 60)
    assert (slow, quick) == ("SLOW", "QUICK")
    assert isinstance(bad, ValueError)


async def test_a_vote_asks_the_same_n_times_and_takes_the_most(fake):
    agent = fake(in_turn("4", " 5", "5\n", RuntimeError("down"), "4 "))
    found = await vote(agent, "2 + 3?")
    assert [request["prompt"] for request in agent.asked] == ["2 + 3?"] * 5
    assert all(request["history"] == [] for request in agent.asked)
    assert (found.answer, found.votes, found.tied) == ("4", 2, True), "of as many, the one given first"
    assert found.counts == (("4", 2), (" 5", 2))
    assert [str(error) for error in found.failures] == ["down"]


async def test_votes_are_counted_by_key_and_a_clear_one_is_not_tied(fake):
    agent = fake(in_turn("so: 7", "hence: 8", "that is: 8"))
    found = await vote(agent, "?", ["small", Member(model="large"), Member()], key=lambda text: text.split()[-1])
    assert [request["model"] for request in agent.asked] == ["small", "large", None]
    assert (found.answer, found.votes, found.tied) == ("hence: 8", 2, False)
    with pytest.raises(StrategyError, match="nobody answered: down"):
        await vote(fake(lambda *_: RuntimeError("down")), "?", 2)
    with pytest.raises(ValueError, match="at least one voter"):
        await vote(agent, "?", 0)


async def test_a_typed_vote_counts_values(fake):
    @dataclass
    class Point:
        x: int

    agent = fake(in_turn(Point(1), Point(2), Point(2)))
    found = await vote(agent, "?", 3, output=Point)
    assert (found.answer, found.votes) == (Point(2), 2)
    assert agent.asked[0]["output"] is Point


async def test_a_debate_is_message_by_message_that_of_du_et_al(fake):
    agent = fake(in_turn("10", "12", "10", "10", "10", "12"))
    found = await debate(agent, "What is 5 + 5?")
    first, second = agent.asked[:3], agent.asked[3:]
    assert first == [{"prompt": "What is 5 + 5?", "model": None, "output": None, "history": []}] * 3
    assert agent.labels[:3] == ["debater 1", "debater 2", "debater 3"]
    for own, others, request in (("10", "12 10", second[0]), ("12", "10 10", second[1]), ("10", "10 12", second[2])):
        assert request["history"] == ["What is 5 + 5?", own]
        one, other = others.split()
        assert request["prompt"] == (
            "These are the solutions to the problem from other agents:\n\n"
            f"One agent's solution:\n{one}\n\nOne agent's solution:\n{other}\n\n"
            "Using the solutions from other agents as additional information, give your answer to the problem. "
            "The original problem is:\n\nWhat is 5 + 5?"
        )
    assert found.rounds == (("10", "12", "10"), ("10", "10", "12"))
    assert (found.answer, found.vote.votes, found.judged) == ("10", 2, False)


async def test_in_a_third_round_the_conversation_has_all_before_it(fake):
    agent = fake(in_turn("a", "b", "c", "d", "e", "f"))
    await debate(agent, "?", 2, 3)
    assert agent.asked[4]["history"] == ["?", "a", agent.asked[2]["prompt"], "c"]
    assert "One agent's solution:\nd" in agent.asked[4]["prompt"]
    assert "One agent's solution:\nb" not in agent.asked[4]["prompt"], "what counts is the round before"


async def test_a_judge_reads_the_last_answers_and_decides(fake):
    agent = fake(in_turn("a", "b", "a", "b", "b it is"))
    found = await debate(agent, "?", 2, judge=Member(role="You are fair.", model="large"))
    last = agent.asked[-1]
    assert (found.answer, found.judged, found.vote.tied) == ("b it is", True, True)
    assert last["prompt"].startswith("You are fair.\n\nThese are the solutions to the problem from other agents:")
    assert "solution:\na\n\nOne agent's solution:\nb\n\nYou are the judge." in last["prompt"]
    assert (last["model"], last["history"]) == ("large", [])


async def test_a_debater_that_fails_takes_nothing_from_the_others(fake):
    agent = fake(in_turn("a", RuntimeError("down"), "b", "c", RuntimeError("down again"), "c"))
    found = await debate(agent, "?")
    assert [str(answer) for answer in found.rounds[0]] == ["a", "down", "b"]
    assert agent.asked[3]["prompt"].count("One agent's solution") == 1
    assert agent.asked[4]["history"] == [], "it has said nothing so far"
    assert [str(answer) for answer in found.rounds[1]] == ["c", "down again", "c"]
    assert (found.answer, found.vote.votes) == ("c", 2)
    assert [str(error) for error in found.vote.failures] == ["down again"]
    with pytest.raises(StrategyError):
        await debate(fake(lambda *_: RuntimeError("down")), "?")
    with pytest.raises(ValueError, match="rounds"):
        await debate(agent, "?", rounds=0)


async def test_debaters_that_act_are_children_and_read_what_was_said_as_text(fake):
    agent = fake(in_turn("1", "2", "2", "2"))
    found = await debate(
        agent, "?", [Member(name="code", acts=True), Member(name="books", agent_type="reader", role="Be brief.")]
    )
    assert not agent.asked
    assert [(task["description"], task.get("agent")) for task in agent.tasks[:2]] == [("code", None), ("books", "reader")]
    assert agent.tasks[1]["prompt"] == "Be brief.\n\n?"
    again = agent.tasks[3]["prompt"]
    assert "You were asked:\nBe brief.\n\n?\n\nYou answered:\n2\n\nNow:\n\nThese are the solutions" in again
    assert found.answer == "2"
    with pytest.raises(ValueError, match="agent_type"):
        Member(acts=True, model="large")


async def test_a_mixture_hands_all_proposals_to_the_aggregator(fake):
    agent = fake(in_turn("Paris.", RuntimeError("down"), "It is Paris.", "Paris"))
    found = await mixture(agent, "Capital of France?", ["one", "two", "three"], "big", output=str)
    assert [request["prompt"] for request in agent.asked[:3]] == ["Capital of France?"] * 3
    assert [request["model"] for request in agent.asked] == ["one", "two", "three", "big"]
    last = agent.asked[-1]["prompt"]
    assert "Responses from models:\n1. Paris.\n2. It is Paris.\n\n" in last
    assert last.endswith("The query:\n\nCapital of France?")
    assert found.answer == "Paris"
    assert [str(answer) for answer in found.layers[0]] == ["Paris.", "down", "It is Paris."]


async def test_proposers_of_a_second_layer_read_all_of_the_first(fake):
    agent = fake(in_turn("a", "b", "c", "d", "e"))
    found = await mixture(agent, "?", 2, layers=2)
    second = [request["prompt"] for request in agent.asked[2:4]]
    assert second[0] == second[1]
    assert "1. a\n2. b" in second[0]
    assert "1. c\n2. d" in agent.asked[4]["prompt"]
    assert found.layers == (("a", "b"), ("c", "d"))
    with pytest.raises(StrategyError, match="no proposer answered: down"):
        await mixture(fake(lambda *_: RuntimeError("down")), "?", 2)


@pytest.mark.parametrize("strategy", [vote, debate, mixture])
async def test_a_cancel_at_any_step_leaves_nothing(fake, strategy):
    for steps in range(1, 40, 3):
        agent = fake(lambda *_: soon("x"))
        work = asyncio.create_task(strategy(agent, "?", 3))
        await turns(steps)
        work.cancel()
        await asyncio.wait({work}, timeout=60)
        assert work.done()
        assert agent.at_work == 0, f"after {steps} steps"


@pytest.mark.parametrize(
    "strategy",
    [
        lambda agent: debate(agent, "?", 1, 1, Member(name="judge")),
        lambda agent: mixture(agent, "?", 1),
        lambda agent: plan_and_execute(agent, "?"),
    ],
)
async def test_a_last_voice_that_is_cancelled_by_itself_fails_and_cancels_nothing(fake, strategy):
    async def cancelled():
        raise asyncio.CancelledError

    agent = fake(lambda *_: cancelled() if len(agent.asked) == 2 or "Make a plan" in agent.asked[0]["prompt"] else "x")
    with pytest.raises(StrategyError, match="it was cancelled"):
        await strategy(agent)
