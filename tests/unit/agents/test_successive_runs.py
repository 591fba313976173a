"""Runs that follow each other: what a run waits for, and what it refuses to wait for."""

import asyncio
import contextlib
import gc

import pytest
from pydantic_ai.messages import ToolReturnPart
from support.agents import as_read, cell, read
from support.tables import each
from support.waiting import soon

from freeact_sub import AgentBusyError, ApprovalDeniedError, ChildRequest, FreeactError
from freeact_sub.testing import prompts

ANSWERS = {"go": "done", "again": "once more", "child": "a child's answer", "kept": "kept"}


def reply(messages, _):
    """Answers the last prompt; to two prompts it never finishes its answer."""
    if isinstance(messages[-1].parts[-1], ToolReturnPart):
        return "kept"
    prompt = prompts(messages)[-1]
    known = next(key for key in (*ANSWERS, "never", "slow") if key in prompt)
    if known == "kept":
        return [cell("x = 1")]
    return ANSWERS.get(known) or ["x", asyncio.Event()]


async def branch(agent):
    await agent.branch()


async def execute(agent):
    node = await agent.branch()
    assert (await node.execute("1 + 1")).status == "ok"


async def denied(agent):
    node = await agent.branch()
    agent.allowed = ()
    with pytest.raises(ApprovalDeniedError):
        await node.execute_asked("import os; os.remove('/nothing/here')")


async def adopt(agent):
    node = await agent.branch()
    await agent.adopt(node)


async def promote(agent):
    await agent.promote(await agent.branch())


async def spawn_and_run(agent):
    assert (await agent.spawn_and_run("child")).output == "a child's answer"


async def task(agent):
    assert (await agent.task("child")).output == "a child's answer"


async def in_parallel(agent):
    await agent.run_parallel(["child", "child"])


async def wait_for_a_child(agent):
    await (await agent.spawn("child")).result()


async def keep_a_child(agent):
    assert (await agent.spawn_and_run(ChildRequest(prompt="kept", keep=True))).node.is_open


async def give_up(agent):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await agent.spawn_and_run("never")


async def refused(agent):
    with pytest.raises(FreeactError):
        await agent.spawn_and_run(ChildRequest(prompt="x", agent="no such type"))


async def leave_a_stream(agent):
    async for _ in agent.stream("slow"):
        break


async def close_a_stream(agent):
    async with contextlib.aclosing(agent.stream("slow")) as events:
        async for _ in events:
            break


async def fail_in_a_stream(agent):
    async def look():
        async for _ in agent.stream("slow"):
            raise KeyError

    with contextlib.suppress(KeyError):
        await look()


async def cancel_a_run(agent):
    run = agent.run("slow")
    async for _ in run:
        assert run.cancel()
        return


async def never_start(agent):
    agent.run("go")
    agent.run("go")
    agent.run_cell("1 + 1")
    agent.stream("go")


WAYS = [
    *(branch, execute, adopt, promote, spawn_and_run, task, in_parallel, wait_for_a_child, keep_a_child, give_up, refused),
    *(leave_a_stream, close_a_stream, fail_in_a_stream, cancel_a_run, never_start),
]


@each("way", WAYS)
@pytest.mark.parametrize(
    "following",
    ["run", "run_cell", "run_program", "stream", pytest.param("undo", marks=pytest.mark.features("undo")), "task"],
)
@pytest.mark.slow
async def test_the_agent_can_be_used_at_once_after(way, following, make):
    async with make(reply, config={"mode": "full"}) as agent:
        for _ in range(2):
            await asyncio.wait_for(way(agent), 120)
            match following:
                case "run":
                    assert (await asyncio.wait_for(read(agent.run("again")), 120))[1].status == "completed"
                case "run_cell":
                    assert (await asyncio.wait_for(agent.run_cell("1 + 1").result(), 120)).status == "completed"
                case "run_program":
                    assert (await agent.run_program(lambda: soon(7)).result()).output == 7
                case "stream":
                    assert [event async for event in agent.stream("again")][-1].status == "completed"
                case "undo":
                    with pytest.raises(FreeactError, match="keep_undo"):  # not because it is busy
                        await agent.undo()
                case _:
                    assert (await agent.task("child")).output == "a child's answer"
        assert gc.collect() >= 0


async def test_a_denied_cell_of_a_node_leaves_the_agent_usable(make):
    async with make(reply, config={"mode": "ask", "headless": "deny"}) as agent:
        await asyncio.wait_for(denied(agent), 120)
        assert (await agent.run("again").result()).output == "once more"


async def test_events_of_the_run_before_are_not_in_the_next_one(make):
    for _ in range(3):
        async with make(reply) as agent:
            await agent.branch()
            events, _ = await read(agent.run("go"))
            assert {event.agent_id for event in events} == {agent.agent_id}
            assert [event.seq for event in events] == list(range(len(events)))


async def test_only_one_of_two_runs_is_live(make):
    async with make(reply) as agent:
        first, second = agent.run("slow"), agent.run("again")
        assert (first.status, first.usage.turns, agent.present_run) == ("idle", 0, None)
        async with first:
            assert agent.present_run is first
            with pytest.raises(AgentBusyError, match="wait for its run to end, cancel it"):
                second.start()
            with pytest.raises(AgentBusyError):
                await second.result()
            with pytest.raises(AgentBusyError):
                agent.run("go")
        assert (await second.result()).output == "once more"
        assert (first.status, second.status) == ("cancelled", "completed")
        assert (first.usage.turns, second.usage.turns) == (0, 1)


async def test_a_child_at_work_keeps_the_next_run_out(make):
    async with make(reply) as agent:
        child = await agent.spawn("never")
        with pytest.raises(AgentBusyError):
            agent.run("go")
        child.cancel()
        await child.result()
        assert (await agent.run("go").result()).output == "done"


async def test_a_run_that_waits_can_be_cancelled_and_closed(make):
    async with make(reply) as agent:
        await agent.branch()
        run = agent.run("slow")
        run.start()
        assert run.cancel()
        assert (await asyncio.wait_for(run.result(), 120)).status == "cancelled"
        await agent.branch()
        run = agent.run("slow")
        run.start()
        await run.aclose()
        await agent.branch()
        run = agent.run("slow")
        run.start()
    assert (await asyncio.wait_for(run.result(), 120)).status == "cancelled"


async def test_a_run_of_an_agent_that_was_closed_says_so(make):
    agent = make(reply)
    async with agent:
        run = agent.run("go")
    with pytest.raises(FreeactError, match="closed before this run began"):
        await run.result()
    async with agent:
        assert (await agent.run("go").result()).output == "done"


async def test_a_run_whose_result_is_not_awaited_any_more_is_cancelled(make):
    async with make(reply) as agent:
        for ends in (lambda run: asyncio.wait_for(run.result(), 0.05), lambda run: asyncio.wait_for(run.result(), 0)):
            run = agent.run("slow")
            with pytest.raises(TimeoutError):
                await ends(run)
            assert (await agent.run("go").result()).output == "done"
        async with agent.run("slow") as run:  # whoever has begun it ends it
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(run.result(), 0.05)
            assert not run.is_ending


async def test_a_bare_agent_keeps_its_variables_over_a_change_of_mode(make):
    """No feature is asked to save them; the model reads it with its next prompt."""
    async with make(["done"] * 2, config={"mode": "full"}, features=()) as agent:
        await agent.execute("x = 1")
        agent.mode = "ask"
        assert (await agent.execute("print(x)")).text == "1"
        await read(agent.run("go on"))
        await read(agent.run("again"))
        assert as_read(agent.history) == ["[Your kernel is new. These variables came back:\n- x]\n\ngo on", "again"]
    assert len(agent.provider.kernels) == 2
