"""Who an agent is never changes; what is known of its run is plain data. Kernels are fakes."""

import time

from pydantic import TypeAdapter
from support.agents import cell, read, task
from support.waiting import eventually

from freeact_sub.agents.life import RunRecord
from freeact_sub.events import AgentFinished, ApprovalRequest


async def test_the_record_of_a_run_can_be_written_and_read_back(make):
    script = {"child": ["x"], "root": [[cell("1 + 1"), task("child")], "done"]}
    async with make(script, config={"mode": "full"}) as agent:
        await read(agent.run("root"))
        runs = [node.run for node in agent.debug.agents.values()]
    records = [run.record for run in runs]
    adapter = TypeAdapter(RunRecord)
    stored = [adapter.dump_json(record) for record in records]
    assert [adapter.dump_json(adapter.validate_json(text)) for text in stored] == stored
    assert [(run.status, run.account.own_usage.turns) for run in runs] == [("completed", 2), ("completed", 1)]
    assert len(records[0].history) == 4


async def test_an_ended_run_is_not_live_and_cannot_be_cancelled(make):
    async with make(["done"]) as agent:
        await read(agent.run("root"))
        assert not agent.debug.root.run.is_live
        assert not agent.debug.root.run.cancel()


async def test_the_seconds_of_a_run_leave_out_those_in_which_a_person_was_asked(make):
    """A child asks, and is answered after a while; neither its time nor that of its parent has grown by it."""
    answered_after = 0.3
    told, ages, began = [], [], {}

    async def follow(event):
        if isinstance(event, ApprovalRequest) and event.depth == 1:
            asked = time.monotonic()
            await eventually(lambda: time.monotonic() >= asked + answered_after)  # a person thinks
            event.approve()
        elif isinstance(event, ApprovalRequest):
            began[1] = time.monotonic()  # the child starts
            event.approve()
        elif isinstance(event, AgentFinished):
            told.append(event.seconds)
            ages.append(time.monotonic() - began[event.depth])

    async with make({"child": [cell("1"), "x"], "root": [task("child"), "done"]}) as agent:
        began[0] = time.monotonic()
        async for event in agent.run("root"):
            await follow(event)
    for seconds, age in zip(told, ages, strict=True):
        assert 0 < seconds <= age - answered_after
