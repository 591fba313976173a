"""Children that a program starts: `spawn`, `spawn_and_run`, `run_parallel`, `run_program`; and factories. Kernels are fakes."""

import asyncio

import pytest
from support.agents import cell, check_stream, finished, of_kind, read, task

from freeact_sub import AgentFactory, Budget, ChildRequest, FreeactError, RunResult, SpawnForbiddenError
from freeact_sub.errors import AgentBusyError
from freeact_sub.events import AgentFinished, AgentStarted, ToolOutput

SCRIPT = {"one": ["first"], "two": ["second"], "breaks": [ValueError("no")], "root": ["done"]}


def outputs(results):
    return [result.output if isinstance(result, RunResult) else str(result) for result in results]


async def test_parallel_children_come_back_in_order_with_failures_in_place(make):
    events = []
    async with make(SCRIPT, taps=[events.append]) as agent:
        results = await agent.run_parallel(
            ["two", ChildRequest(prompt="breaks"), ChildRequest(prompt="x", agent="none"), "one"]
        )
        assert (await agent.run("root").result()).output == "done"  # nothing of it is left
    assert [type(result) is RunResult for result in results] == [True, True, False, True]
    assert (results[0].output, results[3].output) == ("second", "first")
    assert results[1].status == "failed"
    assert "none" in str(results[2])
    first_run = events[: next(index for index, event in enumerate(events) if index and event.seq == 0)]
    check_stream(first_run)
    assert [event.depth for event in of_kind(first_run, AgentStarted)] == [0, 1, 1, 1]
    assert len(of_kind(first_run, AgentFinished)) == 4
    assert first_run[-1].usage.turns == 0


async def test_children_of_several_callers_share_one_run(make):
    async with make(SCRIPT) as agent:
        for _ in range(3):
            results = await asyncio.gather(agent.spawn_and_run("one"), agent.spawn_and_run("two"))
            assert outputs(results) == ["first", "second"]
        assert len(agent.agents()) == 7
        assert agent.agents()[0].status == "completed"


async def test_the_run_that_begins_for_a_child_can_be_seen_and_cancelled(make):
    async with make({"never": [["x", asyncio.Event()]]}) as agent:
        assert agent.present_run is None
        child = await agent.spawn("never")
        run = agent.present_run
        assert run.cancel()
        assert (await asyncio.wait_for(child.result(), 120)).status == "cancelled"
        await run.ended()
        assert (run.status, agent.present_run) == ("cancelled", None)


async def test_code_that_goes_on_between_runs_starts_no_child(make):
    async with make(SCRIPT, config={"mode": "full"}) as agent:
        await read(agent.run("root"))
        with pytest.raises(FreeactError, match="cannot start children now"):
            await agent.provider.kernels[0].ask_host("task", task_id="0" * 32, prompt="one")
        assert len(agent.agents()) == 1


async def test_a_child_started_during_a_run_is_in_its_stream_and_ends_before_it(make):
    silent, started = asyncio.Event(), []
    async with make({"root": [["x", silent], "done"], "never": [["y", asyncio.Event()]], "one": ["first"]}) as agent:
        run = agent.run("root")

        async def work():
            started.append(await agent.spawn(ChildRequest(prompt="never", description="left")))
            result = await agent.spawn_and_run(ChildRequest(prompt="one", description="waited for"))
            silent.set()
            return result

        async with run:
            working = asyncio.create_task(work())
            events, result = await asyncio.wait_for(read(run), 120)
            assert (await working).output == "first"
        assert (await started[0].result()).status == started[0].status == "cancelled"
    assert result.status == "completed"
    ends = finished(events)
    assert (ends["left"].status, ends["waited for"].status) == ("cancelled", "completed")


async def test_a_program_is_a_run_with_a_stream_a_budget_and_a_result(make):
    async with make({"look": [[cell("1 + 1")], "two"]}, config={"mode": "ask"}) as agent:

        async def program():
            return [*outputs(await agent.run_parallel(["look"] * 2)), *outputs(await agent.run_parallel(["look"]))]

        events, result = await read(agent.run_program(program, budget=Budget(children=2)))
    assert result.status == "completed"
    assert result.output[:2] == ["two", "two"]
    assert "children" in result.output[2]
    assert result.usage.turns == 0
    assert result.tree_usage.turns == 4
    assert len(of_kind(events, ToolOutput)) == 2


async def test_a_program_that_raises_or_is_cancelled_takes_its_children_with_it(make):
    async with make({"never": [["x", asyncio.Event()]]}) as agent:

        async def fails():
            await agent.spawn("never")
            raise LookupError("not there")

        events, result = await asyncio.wait_for(read(agent.run_program(fails)), 120)
        assert (result.status, result.error) == ("failed", "LookupError: not there")
        assert [event.status for event in of_kind(events, AgentFinished)] == ["cancelled", "failed"]

        run = agent.run_program(lambda: agent.spawn_and_run("never"))
        events, result = await asyncio.wait_for(
            read(run, on_event=lambda event: event.depth and isinstance(event, AgentStarted) and run.cancel()), 20
        )
        assert [event.status for event in of_kind(events, AgentFinished)] == ["cancelled", "cancelled"]


async def test_giving_up_waiting_ends_the_child_and_closing_the_agent_ends_all(make):
    events, begun = [], asyncio.Event()

    def tap(event):
        events.append(event)
        if event.depth and isinstance(event, AgentStarted):
            begun.set()

    async with make({"never": [["x", asyncio.Event()]], "one": ["first"]}, taps=[tap]) as agent:
        waiting = asyncio.create_task(agent.spawn_and_run("never"))
        await asyncio.wait_for(begun.wait(), 120)
        with pytest.raises(AgentBusyError):
            agent.run("one")
        waiting.cancel()
        await asyncio.wait({waiting})
        assert (await asyncio.wait_for(agent.spawn_and_run("one"), 20)).output == "first"
        left = await agent.spawn("never")
    assert (await asyncio.wait_for(left.result(), 20)).status == "cancelled"
    with pytest.raises(FreeactError, match="not open"):
        await agent.spawn("one")


class Answers:
    def __init__(self, contexts):
        self.contexts = contexts

    async def run(self, prompt, context):
        self.contexts.append((context, context.cancelled))
        if prompt == "fail":
            raise LookupError("not there")
        return {"echo": prompt}


class Factory:
    """Answers itself what begins with `echo`, refuses `bad`, gives others another prompt."""

    def __init__(self):
        self.asked, self.own = [], []

    def create(self, request, context):
        self.asked.append((request.prompt, context.agent_id, context.depth, context.budget_left.children))
        match request.prompt:
            case "echo" | "fail":
                return Answers(self.own)
            case "bad":
                raise SpawnForbiddenError("nothing bad here")
            case "crash":
                raise KeyError("x")
            case "nothing":
                return None
        return request.replace(prompt="one", mode="full")


async def test_a_factory_decides_what_every_child_is(make):
    factory: AgentFactory = Factory()
    script = {**SCRIPT, "root": [[task("echo"), task("anything", description="b"), task("bad")], "done"]}
    async with make(script, factory=factory, config={"mode": "auto"}) as agent:
        events, _ = await read(agent.run("root", budget=Budget(children=5)))
        assert len(agent.provider.kernels) == 2  # a child that answers by itself has none
        texts = [event.content for event in of_kind(events, ToolOutput)]
        results = await agent.run_parallel(["fail", "crash", "nothing"])
        ids = [info.agent_id for info in agent.agents()]
        assert agent.debug.agents[ids[2]].policy.mode == "auto"  # a factory lifts no bound
    assert any('{"echo": "echo"}' in text for text in texts)
    assert any(text.endswith("first") for text in texts)
    assert any("forbidden: nothing bad here" in text for text in texts)
    assert {(agent_id, depth) for _, agent_id, depth, _ in factory.asked} == {(ids[0], 0)}
    assert [left for *_, left in factory.asked[:3]] == [5, 4, 3]
    context, cancelled = factory.own[0]
    assert (context.agent_id, context.parent_id, context.depth, cancelled) == (ids[1], ids[0], 1, False)
    assert (results[0].status, results[0].error) == ("failed", "LookupError: not there")
    assert "KeyError" in str(results[1])
    assert "NoneType" in str(results[2])
