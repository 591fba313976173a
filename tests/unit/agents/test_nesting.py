"""Many agents, deep agents, few kernels: everything ends, in order, and memory stays flat. Kernels are fakes."""

import asyncio
import gc
from itertools import pairwise

import pytest
from pydantic_ai.messages import ModelResponse
from support.agents import cell, finished, of_kind, read, task
from support.tables import each
from support.waiting import eventually

from freeact_sub.agents.life import MAX_HISTORIES
from freeact_sub.agents.shared import KernelPlaces
from freeact_sub.config.budget import Budget
from freeact_sub.errors import SpawnForbiddenError
from freeact_sub.events import AgentFinished, AgentStarted, ToolOutput
from freeact_sub.testing import first_prompt


def family(levels: int, size: int):
    """Each agent starts children down to the last level, runs a cell, and answers."""

    def turn(messages, info):
        level = 0 if first_prompt(messages) == "root" else int(first_prompt(messages).split()[1])
        done = sum(isinstance(message, ModelResponse) for message in messages)
        if done == 0 and level < levels:
            return [task(f"level {level + 1} {number}") for number in range(size)]
        return [cell("1 + 1")] if done < 2 else f"answer of level {level}"

    return turn


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, 2])
async def test_three_levels_finish_with_few_slots(make, concurrency):
    config = {"subagents": {"max_depth": 3, "max_concurrent": concurrency}}
    async with make(family(3, 3), config=config) as agent:
        events, _ = await asyncio.wait_for(read(agent.run("root")), 120)
        assert agent.debug.free_slots == concurrency
    ends = of_kind(events, AgentFinished)
    assert len(ends) == 1 + 3 + 9 + 27
    assert {end.status for end in ends} == {"completed"}
    assert max(event.depth for event in events) == 3


@each("kernels", [2, 3, 4, 7])
@pytest.mark.slow
async def test_a_bound_on_kernels_makes_work_wait_and_refuses_only_what_could_never_begin(make, kernels):
    config = {"subagents": {"max_depth": 3, "max_concurrent": 5}, "kernel": {"max_live": kernels}}
    most = 0

    async with make(family(3, 2), config=config) as agent:

        def on_event(_event):
            nonlocal most
            most = max(most, sum(kernel.lost_reason is None for kernel in agent.provider.kernels))

        events, _ = await asyncio.wait_for(read(agent.run("root"), on_event=on_event), 120)
        assert (len(agent.debug.kernel_holders), agent.debug.waiting_for_kernels) == (1, 0)
    assert most <= kernels
    assert {end.status for end in of_kind(events, AgentFinished)} == {"completed"}
    refused = [event for event in of_kind(events, ToolOutput) if "`kernel.max_live`" in event.content]
    assert all(event.content.startswith("[ERROR]") and "forbidden" in event.content for event in refused)
    if kernels == 2:
        assert {event.depth for event in refused} == {1}
    if kernels >= 4:
        assert len(of_kind(events, AgentStarted)) > 7
    assert any(event.queued for event in of_kind(events, AgentStarted))


async def test_the_root_works_alone_if_one_kernel_is_allowed(make):
    async with make(family(1, 2), config={"kernel": {"max_live": 1}}) as agent:
        events, result = await asyncio.wait_for(read(agent.run("root")), 120)
    assert result.status == "completed"
    assert len(of_kind(events, AgentStarted)) == 1


async def test_a_child_that_waits_for_a_kernel_can_be_cancelled_and_the_next_gets_it(make):
    silent = asyncio.Event()
    script = {
        "root": [[task("holds", description="a"), task("waits", description="b"), task("next", description="c")], "done"],
        "holds": [["x", silent]],
        "waits": ["never"],
        "next": ["fine"],
    }
    async with make(script, config={"kernel": {"max_live": 2}}) as agent:
        run = agent.run("root")
        names: dict[str, str] = {}

        def on_event(event):
            if isinstance(event, AgentStarted):
                names[event.description] = event.agent_id
                if event.description == "c":
                    asyncio.get_running_loop().call_soon(run.cancel, names["b"])
            if isinstance(event, AgentFinished) and event.agent_id == names.get("b"):
                silent.set()

        events, result = await asyncio.wait_for(read(run, on_event=on_event), 120)
    ends = finished(events)
    assert (ends["a"].status, ends["b"].status, ends["c"].status) == ("completed", "cancelled", "completed")
    assert [event.queued for event in of_kind(events, AgentStarted)][1:] == [False, True, True]
    assert result.status == "completed"


@pytest.mark.slow
async def test_hundreds_of_children_finish_and_of_most_of_them_only_a_line_is_kept(make):
    waves, size = 4, 50

    def turn(messages, info):
        if first_prompt(messages) == "root":
            done = sum(isinstance(message, ModelResponse) for message in messages)
            return [task(f"child {done} {number}") for number in range(size)] if done < waves else "done"
        return "x" * 2_000

    async with make(turn, config={"subagents": {"max_concurrent": 20}, "mode": "full"}, chunk_chars=4_000) as agent:
        ended, objects, most = 0, [], 0
        run = agent.run("root", budget=Budget(children=waves * size))
        async for event in run:
            if isinstance(event, AgentFinished) and event.depth == 1:
                ended += 1
                if ended % size == 0:
                    most = max(most, sum(kernel.lost_reason is None for kernel in agent.provider.kernels))
                    agent.provider.kernels.clear()
                    objects.append(our_objects())
        result = await run.result()
        assert sum(bool(child.run.record.history) for child in agent.debug.agents.values() if child.parent) == MAX_HISTORIES
    assert (result.status, ended, result.tree_usage.turns) == ("completed", waves * size, waves * size + waves + 1)
    assert most <= 21
    grown = [(later - earlier) / size for earlier, later in pairwise(objects[1:])]
    assert max(grown) < 40, f"objects of ours that a child leaves: {grown}"


def our_objects() -> int:
    """How many objects of ours there are; what libraries keep in bounded caches comes and goes with other tests."""
    gc.collect()
    return sum(str(type(item).__module__).startswith("freeact_sub") for item in gc.get_objects())


class HoldingAgent:
    def __init__(self, *, waits: bool = False, keeps: bool = False) -> None:
        self.waits_for_child = waits
        self.keeps_kernel = keeps


async def test_places_for_kernels_are_given_in_order():
    places, holders, order = KernelPlaces(1), [HoldingAgent() for _ in range(4)], []
    places.take_now(holders[0])

    async def work(holder):
        await places.take(holder)
        order.append(holders.index(holder))
        places.give_back(holder)

    waiting = [asyncio.create_task(work(holder)) for holder in holders[1:]]
    await eventually(lambda: places.waiting == 3)
    assert not places.stuck
    waiting[1].cancel()
    await asyncio.wait({waiting[1]})
    places.give_back(holders[0])
    await asyncio.wait_for(asyncio.gather(waiting[0], waiting[2]), 120)
    assert order == [1, 3]
    assert not places.full


async def test_places_are_stuck_when_somebody_waits_and_all_who_have_one_wait_for_children():
    places, parent, other = KernelPlaces(2), HoldingAgent(), HoldingAgent()
    places.take_now(parent)
    places.take_now(other)
    waiting = asyncio.create_task(places.take(HoldingAgent()))
    await eventually(lambda: places.waiting == 1)
    assert (places.stuck, places.would_never_come(parent)) == (False, False)
    other.waits_for_child = True
    assert (places.stuck, places.would_never_come(parent)) == (False, True)
    parent.waits_for_child = True
    assert places.stuck
    places.give_back(other)
    await asyncio.wait_for(waiting, 120)
    assert not places.stuck


async def test_a_waiting_child_is_refused_when_the_last_place_goes_to_a_node():
    places, parent, worker, node = KernelPlaces(2), HoldingAgent(waits=True), HoldingAgent(), HoldingAgent(keeps=True)
    places.take_now(parent)
    places.take_now(worker)
    first = asyncio.create_task(places.take(node))
    await eventually(lambda: places.waiting == 1)
    second = asyncio.create_task(places.take(HoldingAgent()))
    await eventually(lambda: places.waiting == 2)
    places.give_back(worker)
    await asyncio.wait_for(first, 120)
    with pytest.raises(SpawnForbiddenError, match=r"kernel\.max_live"):
        await asyncio.wait_for(second, 120)
    assert places.would_never_come(parent)
    places.give_back(node)
    await asyncio.wait_for(places.take(HoldingAgent()), 120)
