"""Callbacks on the stream of a run."""

import asyncio
import logging

import pytest
from support.agents import cell, task
from support.waiting import turns

from freeact_sub import Callbacks, dispatch
from freeact_sub.errors import FreeactError


class Calls(list):
    """Notes what was called, and for whom."""

    def note(self, name, raises=None):
        def call(event):
            self.append((name, event.agent_id))
            if raises is not None:
                raise raises

        return call

    def all(self, **others):
        names = ("on_start", "on_text", "on_tool_start", "on_tool_end", "on_finish", "on_error", "on_approval")
        return Callbacks(**{name: self.note(name) for name in names} | others)


async def test_each_is_called_with_the_id_of_its_agent(make):
    script = {"root": [[task("one"), task("two")], "done"], "one": [cell("1"), "fine"], "two": [RuntimeError("no luck")]}
    calls, approve = Calls(), lambda event: event.approve()
    async with make(script) as agent:
        run = agent.run("root")
        await dispatch(run, calls.all(on_approval=approve))
        result = await run.result()
        one, two = (info.agent_id for info in agent.agents()[1:])
    assert result.status == "completed"
    root = agent.agent_id
    assert [name for name, agent_id in calls if agent_id == two] == ["on_start", "on_error"]
    assert list(dict.fromkeys(name for name, agent_id in calls if agent_id == one)) == [
        "on_start",
        "on_tool_start",
        "on_tool_end",
        "on_text",
        "on_finish",
    ]
    assert calls.count(("on_tool_start", root)) == calls.count(("on_tool_end", root)) == 2
    assert calls[-1] == ("on_finish", root)


async def test_one_that_raises_is_logged_and_the_run_goes_on(make, caplog):
    async with make([cell("1"), "done"]) as agent:
        run = agent.run("root")
        broken = {
            name: Calls().note(name, raises=RuntimeError("mine"))
            for name in ("on_start", "on_text", "on_finish", "on_approval")
        }
        with caplog.at_level(logging.ERROR):
            await dispatch(run, Callbacks(**broken))
        result = await run.result()
    assert result.status == "completed"
    assert "a callback failed on AgentStarted of agent-" in caplog.text
    assert "RuntimeError: mine" in caplog.text


async def test_coroutine_functions_are_awaited_in_order(make):
    order = []

    async def slow(event):
        order.append("begin")
        await turns()
        order.append("end")

    async with make([[cell("1")], "done"], config={"headless": "allow"}) as agent:
        await dispatch(agent.run("root"), Callbacks(on_tool_start=slow, on_tool_end=slow))
    assert order == ["begin", "end"] * 2


async def test_without_a_callback_for_approvals_nobody_is_asked(make):
    async with make([cell("1"), "done"]) as agent:
        calls = Calls()
        await dispatch(agent.run("root"), Callbacks(on_tool_end=lambda event: calls.append(event.outcome)))
    assert calls == ["denied"]


async def test_a_cancel_of_the_reader_is_passed_on(make):
    async with make([[asyncio.Event()]]) as agent:
        started = asyncio.Event()
        async with agent.run("root") as run:
            reading = asyncio.create_task(dispatch(run, Callbacks(on_start=lambda _: started.set())))
            await started.wait()
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
        assert run.status == "cancelled"


@pytest.mark.parametrize("begun_before", [False, True])
async def test_a_run_that_it_begins_is_cancelled_with_it(make, begun_before):
    talks = asyncio.Event()
    async with make([["I begin. ", asyncio.Event()]]) as agent:
        run = agent.run("root")
        if begun_before:
            run.start()
        reading = asyncio.create_task(dispatch(run, Callbacks(on_text=lambda event: talks.set())))
        await talks.wait()
        reading.cancel()
        await asyncio.wait({reading})
        assert run.is_ending != begun_before
        run.cancel()
        assert (await run.result()).status == "cancelled"


async def test_a_second_task_that_reads_a_run_gets_one_sentence_and_takes_nothing_from_the_first(make):
    async with make([["I begin. ", asyncio.Event()]]) as agent:
        run, talks = agent.run("root"), asyncio.Event()
        reading = asyncio.create_task(dispatch(run, Callbacks(on_text=lambda event: talks.set())))
        await talks.wait()
        await turns()
        for second in (run.result, run.__anext__, lambda: dispatch(run, Callbacks())):
            with pytest.raises(FreeactError, match="another task reads this run"):
                await second()
        run.cancel()
        await reading
        assert (await run.result()).status == "cancelled"
