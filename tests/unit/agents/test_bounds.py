"""The bounds that every run has by default: model requests and children of a run, time of a child. Kernels are fakes."""

import asyncio

import pytest
from pydantic_ai.messages import ToolCallPart
from support.agents import finished, of_kind, read, task

from freeact_sub import Budget, ChildRequest, Config
from freeact_sub.events import AgentFinished, AgentStarted, ToolOutput
from freeact_sub.testing import first_prompt

FULL = {"mode": "full"}


def ask(prompt):
    return ToolCallPart("ask", {"prompt": prompt})


def looping(turn):
    """The root does the same for ever; all others answer."""

    def script(messages, info):
        del info
        return turn(len(messages)) if first_prompt(messages) == "root" else "answer"

    return script


def test_the_bounds_there_are_by_default():
    config = Config()
    assert (config.budget.requests, config.budget.children, config.subagents.budget.seconds) == (1_000, 200, 3_600)
    assert (config.budget.turns, config.budget.seconds, config.subagents.budget.turns) == (None, None, 10)


def test_a_named_bound_replaces_only_its_default():
    for budget in ({"tokens": 5}, Budget(tokens=5)):
        config = Config(budget=budget, subagents={"budget": budget})
        assert (config.budget.tokens, config.budget.requests, config.budget.children) == (5, 1_000, 200)
        assert (config.subagents.budget.tokens, config.subagents.budget.turns) == (5, 10)
    assert Config(budget={"requests": None}).budget.requests is None


@pytest.mark.parametrize("bound", [2, 3, 9])
async def test_requests_end_the_run_as_limit_with_its_last_report_inside_the_bound(make, bound):
    turns = looping(lambda number: [ask(f"question {number} {which}") for which in range(3)])
    async with make(turns, config=FULL | {"budget": {"requests": bound}}) as agent:
        events, result = await asyncio.wait_for(read(agent.run("root")), 120)
        assert agent.scripted.requests == bound
    assert result.status == "limit"
    assert "the limit of requests is reached" in result.error
    assert result.tree_usage.turns == bound
    refused = [event for event in of_kind(events, ToolOutput) if "the model was not asked" in event.content]
    assert all("requests" in event.content for event in refused)


async def test_one_request_is_enough_for_an_answer_and_none_is_none(make):
    async with make({"root": ["answer"]}) as agent:
        _, result = await read(agent.run("root", budget=Budget(requests=1)))
        assert (result.status, result.output) == ("completed", "answer")
        _, result = await read(agent.run("root", budget=Budget(requests=0)))
        assert (result.status, result.tree_usage.turns) == ("limit", 0)


async def test_without_a_last_report_all_requests_are_for_work(make):
    turns = looping(lambda number: ask(f"question {number}"))
    async with make(turns, config=FULL | {"subagents": {"salvage": False}}) as agent:
        _, result = await asyncio.wait_for(read(agent.run("root", budget=Budget(requests=6))), 120)
        assert agent.scripted.requests == 6
    assert result.status == "limit"


async def test_requests_of_all_below_count_and_never_more_are_made_than_the_bound(make):
    turns = looping(lambda number: [task(f"child {number} {which}") for which in range(4)])
    for bound in (1, 2, 5, 8, 13):
        async with make(turns, config=FULL) as agent:
            events, result = await asyncio.wait_for(read(agent.run("root", budget=Budget(requests=bound))), 120)
            assert agent.scripted.requests <= bound
            account = agent.debug.root.run.account
            assert account.counts["requests"] == agent.scripted.requests
        assert result.status == "limit"
        assert {event.status for event in of_kind(events, AgentFinished)} <= {"completed", "limit"}


async def test_a_child_that_would_have_no_request_is_not_started(make):
    async with make({"root": [[task("child")], "so far"]}, config=FULL) as agent:
        events, result = await read(agent.run("root", budget=Budget(requests=2)))
    assert [event.depth for event in of_kind(events, AgentStarted)] == [0]
    [refused] = of_kind(events, ToolOutput)
    assert "the limit of requests is reached" in refused.content
    assert (result.status, result.text) == ("limit", "so far")


async def test_a_child_s_own_bound_ends_it_alone(make):
    def turns(messages, info):
        del info
        prompt = first_prompt(messages).split("\n")[0]
        if prompt == "child":
            return ask(f"{len(messages)}")
        return (
            [task("child", budget={"requests": 4}, description="bounded"), "done"][len(messages) // 2]
            if prompt == "root"
            else "x"
        )

    async with make(turns, config=FULL) as agent:
        events, result = await asyncio.wait_for(read(agent.run("root")), 120)
    ended = finished(events)["bounded"]
    assert (ended.status, ended.usage.turns, result.status) == ("limit", 4, "completed")


async def test_requests_that_fail_count_so_that_a_loop_over_them_ends(make):
    def turns(messages, info):
        del info
        return ask("x") if first_prompt(messages) == "root" else RuntimeError("down")

    async with make(turns, config=FULL) as agent:
        _, result = await asyncio.wait_for(read(agent.run("root", budget=Budget(requests=8))), 120)
        assert agent.scripted.requests <= 8
    assert result.status == "limit"


@pytest.mark.slow
async def test_a_program_that_loops_over_children_ends_at_the_default_bounds(make):
    async with make({"x": ["answer"]}, config=FULL) as agent:

        async def program():
            while True:
                await agent.spawn_and_run(ChildRequest(prompt="x"))

        events, result = await asyncio.wait_for(read(agent.run_program(program)), 110)
    assert len(of_kind(events, AgentStarted)) == 201
    assert result.status == "failed"
    assert "the limit of children is reached: 200 of 200" in result.error
    assert "`budget.children`" in result.error


async def test_a_child_s_time_is_bounded_by_default_and_never_more_than_its_parent_s(make):
    script = {"root": [[task("a"), task("b", budget={"seconds": 60})], "done"], "a": ["x"], "b": ["y"]}
    async with make(script, config=FULL) as agent:
        await read(agent.run("root"))
        assert [info.budget.seconds for info in agent.agents()] == [None, 3_600, 60]
    async with make(script, config=FULL | {"subagents": {"budget": {"seconds": 0.2}}}) as agent:
        script["a"][:] = [[asyncio.Event()]]
        events, result = await asyncio.wait_for(read(agent.run("root")), 120)
    slow = next(event for event in of_kind(events, AgentFinished) if event.status == "timeout")
    assert "`subagents.budget.seconds`" in slow.error
    assert result.status == "completed"
