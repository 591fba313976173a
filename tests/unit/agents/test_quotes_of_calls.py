"""Many calls that are known to come are quoted: children of one response, requests and children of a strategy."""

import asyncio
from decimal import Decimal

import pytest
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturnPart
from support.agents import task

from freeact_sub import Agent, AgentFinished, ApprovalRequest, Config, Notice
from freeact_sub.calls import FanOut
from freeact_sub.strategies import Member, vote
from freeact_sub.testing import FakeKernelProvider, ScriptedModel, first_prompt

pytestmark = pytest.mark.features("quotes")


def delegated(number):
    subtasks = [{"task": f"child {number}.{at}"} for at in range(5)]
    return ToolCallPart("delegate", {"plan": f"plan {number}", "subtasks": subtasks})


def priced(answer):
    """A model with a known price."""
    return ScriptedModel(answer, name="gpt-4o")


@pytest.fixture
def opened(tmp_path):
    def make(*turns, **config):
        """An agent whose model starts children in each turn, and then says how many have answered."""

        def answer(messages, info):
            del info
            if "child" in first_prompt(messages):
                return "word " * 20
            if first_prompt(messages) != "root":
                return "yes"
            at = sum(isinstance(message, ModelResponse) for message in messages)
            returned = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
            return turns[at] if at < len(turns) else " | ".join(str(part.content).splitlines()[-1] for part in returned)

        models = {"max_concurrent": 4, **config.pop("models", {})}
        settings = Config(workspace=tmp_path, models=models, **config)
        return Agent(settings, model=priced(answer), kernel_provider=FakeKernelProvider())

    return make


async def followed(run, decide=lambda request: request.approve()):
    """Follow a run with a person; return the questions, notices, what each child took, the result."""
    asked, told, ended = [], [], []
    async for event in run:
        if isinstance(event, ApprovalRequest) and isinstance(event.call, FanOut):
            asked.append(event.call)
            decide(event)
        elif isinstance(event, ApprovalRequest):
            event.approve()
        told += [event.content] if isinstance(event, Notice) else []
        ended += [event.usage] if isinstance(event, AgentFinished) and event.depth and event.usage.tokens else []
    return asked, told, ended, await run.result()


def children(number, first=0):
    return [task(f"child {at}") for at in range(first, first + number)]


async def test_many_children_of_one_turn_are_quoted_once_and_the_bound_is_that_of_the_quote(opened):
    async with opened(children(40)) as agent:
        [call], _, ended, result = await followed(agent.run("root"))
    assert len(ended) == 40
    assert (call.what, call.more) == ("task", 37)
    assert call.text.startswith("task: 37 more: about ")
    assert agent.agents()[0].fan_out == call
    _, low, high = call.cost_usd
    assert low <= call.more * float(ended[0].cost_usd) <= high
    assert result.tree_usage.cost_usd > 40 * ended[0].cost_usd


@pytest.mark.parametrize(("reason", "told"), [("too much", "[ERROR] denied: too much"), ("", "[ERROR] denied")])
async def test_a_no_ends_what_waits_and_no_more_of_the_turn_is_asked_about(opened, reason, told):
    async with opened(children(30), children(3, first=30)) as agent:
        asked, _, ended, result = await followed(agent.run("root"), lambda request: request.deny(reason))
    assert len(asked) == 1
    assert len(ended) == 6, "three of the first turn and three of the next"
    assert result.output.split(" | ").count(told) == 27
    assert result.status == "completed"


@pytest.mark.slow
async def test_few_children_in_each_of_many_responses_are_not_quoted(opened):
    async with opened(*[children(4, first=4 * turn) for turn in range(5)]) as agent:
        asked, told, ended, _ = await followed(agent.run("root"))
    assert (asked, told) == ([], [])
    assert len(ended) == 20


async def test_subtasks_count_as_children(opened):
    async with opened([delegated(0), delegated(1), delegated(2)], models={"quote_above": 4}) as agent:
        [call], _, ended, _ = await followed(agent.run("root"))
        assert len(ended) == 15
        assert call.what == "task"


@pytest.mark.slow
async def test_an_agreement_covers_a_later_fan_out_that_fits_and_a_larger_one_is_asked_about(opened):
    async with opened(children(40), children(11, first=40), children(160, first=51), budget={"children": 1000}) as agent:
        asked, _, ended, _ = await followed(agent.run("root"))
    assert len(ended) == 211
    first, *later = asked
    assert first.more == 37
    assert later
    assert all(call.more > 1 for call in later), "the eleven fit into what was left"


@pytest.mark.slow
async def test_nothing_runs_past_what_was_agreed(opened):
    """The first children say nothing of the others, which take 100 times as much."""
    taken = {"children": 0}

    def answer(messages, info):
        if first_prompt(messages) == "root":
            return "end" if any(isinstance(message, ModelResponse) for message in messages) else children(60)
        taken["children"] += 1
        most = (info.model_settings or {}).get("max_tokens", 10**6)
        return "word " * min(most, 10 if taken["children"] <= 10 else 5_000)

    provider = FakeKernelProvider()
    async with opened() as agent, Agent(agent.config, model=priced(answer), kernel_provider=provider) as dear:
        [call], _, ended, result = await followed(dear.run("root"))
    bound = Decimal(call.bound.removeprefix("$"))
    ended.sort(key=lambda usage: usage.cost_usd)
    assert ended[-1].output_tokens > 1_000, "not all were cut off"
    assert sum(usage.cost_usd for usage in ended[10:]) <= bound
    assert result.status == "completed"


@pytest.mark.parametrize("config", [{"mode": "auto", "headless": "auto"}, {"mode": "full"}])
@pytest.mark.slow
async def test_a_notice_has_the_figures_of_calls_if_nobody_is_asked(opened, config):
    async with opened(children(40), **config) as agent:
        asked, told, ended, _ = await followed(agent.run("root"))
    assert (asked, len(ended)) == ([], 40)
    assert [text for text in told if text.startswith("task: 37 more: ")]


@pytest.mark.parametrize("acts", [False, True])
@pytest.mark.slow
async def test_a_strategy_of_a_program_is_quoted_by_its_name_with_the_steps_that_are_left(opened, acts):
    voters = [Member(name=f"voter {at}", acts=acts) for at in range(40)]
    async with opened() as agent:
        run = agent.run_program(lambda: vote(agent, "child?" if acts else "true?", voters))
        [call], _, _, result = await followed(run)
    assert (call.what, call.more) == ("vote", 37)
    assert result.output.votes == 40


@pytest.mark.parametrize("mode", ["ask", "auto"])
@pytest.mark.parametrize("how", ["task", "delegate", "run_parallel"])
async def test_a_list_is_quoted_after_three_in_every_mode_in_which_a_person_answers(opened, how, mode):
    turn = [delegated(number) for number in range(3)] if how == "delegate" else children(15)
    async with opened(turn, mode=mode) as agent:
        parallel = lambda: agent.run_parallel([f"child {at}" for at in range(15)])
        run = agent.run_program(parallel) if how == "run_parallel" else agent.run("root")
        [call], _, ended, _ = await followed(run, lambda request: request.deny("dear"))
    assert (call.what, call.more, len(ended)) == ("task", 12, 3)


async def test_a_list_of_a_program_that_reads_no_events_begins_a_run_and_is_not_stopped(opened):
    async with opened() as agent:
        results = await agent.run_parallel([f"child {at}" for at in range(16)])
    assert [result.status for result in results] == ["completed"] * 16


async def test_other_calls_of_a_program_are_its_own_business(opened):
    async def program():
        await vote(agent, "true?", 5)
        return await asyncio.gather(*[agent.ask(f"{at}?") for at in range(30)])

    async with opened() as agent:
        asked, told, _, result = await followed(agent.run_program(program))
    assert (asked, told) == ([], [])
    assert result.output == ["yes"] * 30


@pytest.mark.process
async def test_calls_that_fail_at_once_cost_nothing_and_are_not_quoted(opened):
    def fail(messages, info):
        return RuntimeError("down")

    async with opened() as agent, Agent(agent.config, model=priced(fail)) as broken:
        run = broken.run_program(lambda: vote(broken, "true?", 30))
        asked, _, _, result = await followed(run)
    assert asked == []
    assert "nobody answered" in result.error


async def test_a_question_that_is_cancelled_lets_nothing_through(opened):
    async with opened(children(40)) as agent:
        run = agent.run("root")
        asked, _, ended, result = await followed(run, lambda request: run.cancel())
    assert len(asked) == 1
    assert result.status == "cancelled"
    assert len(ended) <= 3


@pytest.mark.slow
async def test_children_run_with_the_cheaper_model_that_was_chosen(opened):
    small = ScriptedModel(lambda messages, info: "word " * 20, name="gpt-4o-mini")
    async with opened(children(40), models={"small": small}) as agent:
        asked, _, ended, result = await followed(agent.run("root"), lambda request: request.approve(model="small"))
    assert [*asked[0].cheaper] == ["small"]
    assert result.status == "completed"
    assert small.requests == sum(call.more for call in asked) == len(ended) - 3
