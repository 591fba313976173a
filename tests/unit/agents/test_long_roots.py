"""A root that works for weeks: what is kept of its children, and of the events of its runs, is bounded."""

import asyncio

import pytest
from support.agents import read

from freeact_sub import ChildRequest
from freeact_sub.agents import life
from freeact_sub.show.feed import Feed

SCRIPT = {"child": ["a child's answer"], "root": ["done"], "never": [["x", asyncio.Event()]]}


MAX_ENDED = 20


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    assert life.MAX_ENDED > MAX_ENDED
    monkeypatch.setattr(life, "MAX_ENDED", MAX_ENDED)


@pytest.mark.slow
async def test_children_that_have_ended_are_forgotten_in_the_end(make):
    async with make(SCRIPT, config={"budget": {"children": None}}) as agent:
        kept = await agent.spawn_and_run(ChildRequest(prompt="child", description="kept", keep=True))
        for _ in range(6):
            await agent.run_parallel(["child"] * 5)
        assert len(agent.agents()) <= MAX_ENDED + 5 + 2
        ids = [info.agent_id for info in agent.agents()]
        assert ids[0] == agent.agent_id
        assert kept.agent_id in ids  # its kernel is open
        assert len(agent.debug.agents) == len(ids)
        again = await agent.spawn_and_run(ChildRequest(prompt="child", resume=ids[-1]))
        assert again.agent_id == ids[-1]


@pytest.mark.slow
async def test_the_children_of_one_run_are_all_listed(make):
    async with make(SCRIPT, config={"budget": {"children": None}}) as agent:

        async def program():
            await agent.run_parallel(["child"] * (MAX_ENDED + 20))
            return len(agent.agents())

        assert (await agent.run_program(program).result()).output == MAX_ENDED + 21


async def test_a_feed_keeps_the_newest_messages(make):
    feed = Feed(most=5)
    async with make({"root": ["word " * 20]}) as agent:
        events, _ = await read(agent.run("root"))

    async def stream():
        for event in events:
            yield event

    await feed.read(stream())
    assert len(events) > 8

    async def numbers(after):
        seen = []
        async for number, _ in feed.after(after):
            seen.append(number)
            if number == len(events) - 1:
                break
        return seen

    newest = [*range(len(events) - 5, len(events))]
    assert await numbers(-1) == newest
    assert await numbers(2) == newest
    assert await numbers(len(events) - 3) == newest[-2:]
