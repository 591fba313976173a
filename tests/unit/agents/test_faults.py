"""An ending is forced everywhere: whatever fails, at whatever step, each agent ends once and nothing is left.

Kernels are fakes; a few cycles with real ones are in `tests/kernel/test_agents_in_kernels.py`.
"""

import asyncio
import gc
import os

import pytest
from pydantic_ai.capabilities import AbstractCapability
from support.agents import allow, cell, check_stream, finished, of_kind, read, task
from support.tables import each
from support.thorough import THOROUGH, sample
from support.waiting import eventually, turns

from freeact_sub.config.budget import Budget
from freeact_sub.errors import KernelStartError
from freeact_sub.events import AgentFinished, AgentStarted, ApprovalRequest, ResponseChunk
from freeact_sub.testing import FakeKernelProvider

FAMILY = {
    "root": [[cell("1"), task("child a", description="a"), task("child b", description="b")], "done"],
    "child a": [[cell("1"), task("leaf", description="leaf")], "answer a"],
    "child b": [["some text", cell("2")], "answer b"],
    "leaf": [[cell("3")], "leaf"],
}
DEEP = {"subagents": {"max_depth": 2, "max_concurrent": 1}, "kernel": {"max_live": 4}, "mode": "full"}
BOUNDS = Budget(tokens=10**6, seconds=1000)
ENDED = {"completed", "failed", "timeout", "limit", "cancelled", "rejected", "kernel_lost"}


def nothing_is_held(agent) -> None:
    """All that agents share is back where it was: slots, places, amounts; only the root's kernel lives."""
    debug = agent.debug
    assert not debug.at_work
    assert debug.free_slots == agent.config.subagents.max_concurrent
    assert debug.kernel_holders == (agent.agent_id,)
    assert (debug.waiting_for_kernels, debug.waiting_for_budget) == (0, 0)
    for node in debug.agents.values():
        account, status = node.run.account, node.run.status
        assert (account.in_flight.tokens, account.for_reports.tokens, account.open_reservation) == (0, 0, None)
        assert status in ENDED or (status == "idle" and node.parent is None)  # cancelled before it began
    living = [kernel for kernel in agent.provider.kernels if kernel.lost_reason is None]
    assert {kernel.spec.owner_id for kernel in living} <= {agent.agent_id}


async def read_while(run, steps, action):
    """Read a run to its end, and do something after so many steps of the event loop."""
    events = []

    async def reader():
        async for event in run:
            events.append(event)

    reading = asyncio.create_task(reader())
    await turns(steps)
    done = reading.done()
    action()
    await asyncio.wait_for(reading, 120)
    check_stream(events)
    return events, await run.result(), done


async def own_tasks(before):
    left = lambda: [task for task in asyncio.all_tasks() - before if "kernel of" not in task.get_name()]
    await eventually(lambda: not left())


@pytest.mark.slow
async def test_a_cancel_at_any_step_ends_a_whole_family(make):
    reached_end = False
    for steps in range(0, 1000, 3 if THOROUGH else 29):
        async with make(FAMILY, config=DEEP) as agent:
            before = asyncio.all_tasks()
            run = agent.run("root", budget=BOUNDS)
            events, result, reached_end = await read_while(run, steps, run.cancel)
            whole = (result.status, result.text) == ("completed", "done")  # also when it came as all was being closed
            assert whole or (result.status == "cancelled" and not reached_end), steps
            nothing_is_held(agent)
            await own_tasks(before)
            assert result.tree_usage.turns == sum(end.usage.turns for end in of_kind(events, AgentFinished))
        if reached_end:
            break
    assert reached_end


@pytest.mark.slow
async def test_one_child_is_cancelled_at_any_step_and_the_others_go_on(make):
    statuses = set()
    for steps in sample(range(20, 500, 12), 11):
        async with make(FAMILY, config=DEEP) as agent:
            run = agent.run("root", budget=BOUNDS)

            def cancel():
                names = {info.description: info.agent_id for info in agent.agents()}
                run.cancel(names.get("a", "nobody"))

            events, result, _ = await read_while(run, steps, cancel)
            ends = finished(events)
            statuses.add(ends["a"].status)
            assert (result.status, ends["b"].status) == ("completed", "completed"), steps
            nothing_is_held(agent)
    assert statuses == {"completed", "cancelled"}


@pytest.mark.slow
async def test_a_kernel_dies_at_any_step_and_the_run_goes_on(make):
    deaths = 0
    for steps in sample(range(20, 500, 12), 11):
        async with make(FAMILY, config=DEEP) as agent:
            run = agent.run("root", budget=BOUNDS)

            def die():
                nonlocal deaths
                for kernel in agent.provider.kernels:
                    if kernel.lost_reason is None:
                        deaths += 1
                        kernel.die("killed by signal 9")

            events, result, _ = await read_while(run, steps, die)
            assert {end.status for end in of_kind(events, AgentFinished)} == {"completed"}
            assert result.status == "completed"
            nothing_is_held(agent)
    assert deaths > 3


@pytest.mark.slow
async def test_the_reader_leaves_at_any_step(make):
    for steps in sample(range(0, 400, 16), 8):
        async with make(FAMILY, config=DEEP) as agent:
            before = asyncio.all_tasks()

            async def leave():
                async for _ in agent.stream("root", budget=BOUNDS):
                    await turns()

            reading = asyncio.create_task(leave())
            await turns(steps)
            reading.cancel()
            await asyncio.wait({reading}, timeout=120)
            if agent.present_run is not None:
                await agent.present_run.aclose()
            if agent.debug.root.run.status != "idle":
                nothing_is_held(agent)
            await own_tasks(before)


class Fails(AbstractCapability):
    """Raises in one hook, the n-th time it is called."""

    def __init__(self, hook: str, count: int) -> None:
        self.calls = 0

        async def fail(*args, **kwargs):
            self.calls += 1
            if self.calls == count:
                raise RuntimeError(f"{hook} failed")
            return await getattr(AbstractCapability, hook)(self, *args, **kwargs)

        setattr(self, hook, fail)


@each("count", [1, 3, 6])
@each(
    "hook",
    ["prepare_tools", "before_model_request", "wrap_model_request", "after_model_request", "wrap_tool_execute", "wrap_run"],
)
@pytest.mark.slow
async def test_an_exception_of_a_capability_ends_only_its_agent(make, hook, count):
    failing = Fails(hook, count)
    async with make(FAMILY, config=DEEP, capabilities=[failing]) as agent:
        events, result = await asyncio.wait_for(read(agent.run("root", budget=BOUNDS)), 120)
        nothing_is_held(agent)
    ends = of_kind(events, AgentFinished)
    failed = [end for end in ends if end.status == "failed"]
    if failing.calls >= count:
        assert len(failed) == 1
        assert f"{hook} failed" in failed[0].error
    broken = {end.agent_id for end in failed}
    for end in ends:  # an agent that a failed one waited for ends with it
        assert end.status in (("failed",) if end.agent_id in broken else ("completed", "cancelled"))
        assert end.status != "cancelled" or end.parent_id in broken or end.depth == 2
    assert result.tree_usage.turns == sum(end.usage.turns for end in ends)


@each("start", [1, 2, 3, 4])
async def test_a_kernel_that_does_not_start_fails_a_call_or_an_agent_and_nobody_else(make, start):
    class Provider(FakeKernelProvider):
        starts = 0

        async def start(self, spec, handler):
            self.starts += 1
            if self.starts == start:
                raise KernelStartError("no memory")
            return await super().start(spec, handler)

    async with make(FAMILY, config=DEEP, kernel_provider=Provider()) as agent:
        events, result = await asyncio.wait_for(read(agent.run("root", budget=BOUNDS)), 120)
        nothing_is_held(agent)
    assert result.status == "completed"
    assert len(of_kind(events, AgentFinished)) == len(of_kind(events, AgentStarted)) == 4


@pytest.mark.slow
async def test_a_provider_that_fails_at_any_request_ends_its_agent_alone(make):
    for failing in range(1, 9):
        requests = 0

        def script(messages, info):
            nonlocal requests
            requests += 1
            if requests == failing:
                raise RuntimeError("the provider is down")
            from freeact_sub.testing import first_prompt

            turns = FAMILY[next(key for key in FAMILY if key in first_prompt(messages))]
            return turns[min(sum(message.kind == "response" for message in messages), len(turns) - 1)]

        async with make(script, config=DEEP) as agent:
            events, _ = await asyncio.wait_for(read(agent.run("root", budget=BOUNDS)), 120)
            nothing_is_held(agent)
        failed = [end for end in of_kind(events, AgentFinished) if end.status == "failed"]
        assert len(failed) == 1, failing
        assert "the provider is down" in failed[0].error


async def our_objects() -> int:
    """How many objects of ours there are, but for those that asyncio keeps with timers that are cancelled and not yet due."""
    for _ in range(1000):  # of so many that are cancelled it keeps none
        asyncio.get_running_loop().call_later(3600, print).cancel()
    await turns()
    gc.collect()
    return sum(str(type(item).__module__).startswith("freeact_sub") for item in gc.get_objects())


@pytest.mark.slow
async def test_many_spawns_and_cancels_leave_everything_where_it_was(make):
    cycles = 50 if THOROUGH else 20
    script = {"root": [[task("hangs")], "done"], "hangs": [["text", cell("!sleep 1000"), asyncio.Event()]]}
    async with make(script, config={"mode": "full"}) as agent:
        before, files, objects = asyncio.all_tasks(), 0, []
        for cycle in range(3 * cycles):
            agent.history.clear()
            run = agent.run("root", budget=BOUNDS)
            async for event in run:
                if isinstance(event, ApprovalRequest):
                    event.decide(allow(event))
                if isinstance(event, ResponseChunk) and event.depth == 1:
                    run.cancel(event.agent_id if cycle % 2 else None)
            assert (await run.result()).status == ("completed" if cycle % 2 else "cancelled")
            if cycle % cycles == cycles - 1:
                agent.provider.kernels[1:] = []
                objects.append(await our_objects())
                files = files or len(os.listdir("/proc/self/fd"))
                assert len(os.listdir("/proc/self/fd")) <= files + 3  # a library may open something late, once
                await own_tasks(before)
        nothing_is_held(agent)
    # 26 are the record of a child, with its accounts
    assert (objects[2] - objects[1]) / cycles <= 29, objects
