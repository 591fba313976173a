"""Budgets and endings with real kernels: what the fakes cannot show."""

import asyncio
import os

import psutil
import pytest
from support.agents import allow, cell, finished, of_kind, read, task
from support.waiting import WORKS_ON, eventually, turns

from freeact_sub.config.budget import Budget
from freeact_sub.events import AgentFinished, ApprovalRequest, CodeExecutionOutputChunk, ToolOutput
from freeact_sub.kernels.wire import client

pytestmark = pytest.mark.kernel

RAISE_MY_LIMITS = """
for method in ("set_budget", "budget", "set_depth", "config"):
    try:
        print("done", agent._requests.ask(method, turns=99, depth=9, children=99))
    except Exception as error:
        print(error)
"""


async def test_time_ends_a_loop_in_c_and_the_agent_goes_on_with_its_next_run(make, monkeypatch):
    monkeypatch.setattr(client, "INTERRUPT_GRACE_SECONDS", 2.0)
    script = [["begun", cell("sum(range(10**12))")], [cell("6 * 7")], "42", "42"]
    async with make(script, mode="full") as agent:
        loop = asyncio.get_running_loop()
        started = loop.time()
        _, result = await asyncio.wait_for(read(agent.run("loop", budget=Budget(seconds=2))), 120)
        assert (result.status, result.text) == ("timeout", "begun")
        assert loop.time() - started >= 2
        _, after = await asyncio.wait_for(read(agent.run("after")), 120)
        assert (after.status, after.output) == ("completed", "42")


async def test_a_child_whose_time_is_up_takes_its_processes_with_it(make):
    script = {
        "root": [[cell("x = 1")], [task("child", budget={"seconds": 10}, description="c")], "done"],
        "child": [[cell("import subprocess; p = subprocess.Popen(['sleep', '987']); print(p.pid); p.wait()")]],
    }
    pids: list[int] = []
    async with make(script, mode="full") as agent:

        def on_event(event):
            if isinstance(event, CodeExecutionOutputChunk) and event.output.text.strip():  # the line end may come by itself
                pids.append(int(event.output.text))

        events, result = await asyncio.wait_for(read(agent.run("root"), on_event=on_event), 120)
        assert (finished(events)["c"].status, result.status) == ("timeout", "completed")
        assert pids
        await eventually(lambda: not psutil.pid_exists(pids[0]))


async def test_spawns_and_cancels_leave_no_process_and_no_descriptor(make):
    script = {
        "root": [[task("hangs")], "done"],
        "hangs": [[cell(f"print('here', flush=True); {WORKS_ON}")]],
    }
    async with make(script, mode="full", kernel={"spares": 0}) as agent:
        numbers = []
        for cycle in range(8):
            agent.history.clear()
            run = agent.run("root")
            async for event in run:
                if isinstance(event, ApprovalRequest):
                    event.decide(allow(event))
                if isinstance(event, CodeExecutionOutputChunk):
                    run.cancel(event.agent_id if cycle % 2 else None)
            assert (await run.result()).status == ("completed" if cycle % 2 else "cancelled")
            if cycle >= 2:  # by then the root's kernel, the fork server and all that is kept are there
                left = lambda: (len(psutil.Process().children(recursive=True)), len(os.listdir("/proc/self/fd")))
                if numbers:
                    # what is opened once may come late; what each cycle leaves would be more by the end
                    await eventually(lambda: left()[0] <= numbers[0][0] and left()[1] <= numbers[0][1] + 3)
                else:
                    await turns()
                    numbers.append(left())


async def test_a_kernel_that_is_killed_in_a_child_leaves_the_accounts_in_order(make):
    script = {
        "root": [[task("dies", description="d"), task("lives", description="l")], "done"],
        "dies": [[cell("import os; os.kill(os.getpid(), 9)")], [cell("6 * 7")], "went on"],
        "lives": [[cell("1")], "fine"],
    }
    async with make(script, mode="full") as agent:
        events, result = await asyncio.wait_for(read(agent.run("root", budget=Budget(tokens=10**6))), 120)
        assert agent.debug.root.run.account.in_flight.tokens == agent.debug.root.run.account.for_reports.tokens == 0
    assert result.status == "completed"
    assert {end.status for end in of_kind(events, AgentFinished)} == {"completed"}
    assert any(event.content == "42" for event in of_kind(events, ToolOutput))


async def test_code_in_a_kernel_cannot_raise_what_its_agent_may_spend(make):
    script = {"root": [[cell(RAISE_MY_LIMITS)], [task("a child all the same")], "done"]}
    bounds = Budget(turns=4, requests=100, children=0, depth=0)
    async with make(script, mode="full") as agent:
        events, result = await asyncio.wait_for(read(agent.run("root", budget=bounds)), 120)
        assert agent.agents()[0].budget == bounds
    first, second = of_kind(events, ToolOutput)
    assert first.content.count("unknown request") == 4
    assert "done" not in first.content
    assert "forbidden" in second.content
    assert result.status == "completed"
