"""Messages to a run that ends, and replies that the model has to mend: the same in both loops."""

import asyncio

import pytest
from pydantic import BaseModel
from pydantic_ai.capabilities import AbstractCapability
from support.agents import cell, of_kind, read

from freeact_sub import AgentFinished, Budget, Response
from freeact_sub.agents.children import ChildOwner

PLAIN, GRAPH = {}, {"capabilities": [AbstractCapability()]}
LOOPS = pytest.mark.parametrize("loop", [PLAIN, GRAPH], ids=["plain", "graph"])


@LOOPS
@pytest.mark.parametrize("ending", ["failed", "limit", "completed", "cancelled"])
async def test_a_message_after_the_last_request_is_refused(loop, ending, make):
    scripts = {
        "failed": [[RuntimeError("broken")]],
        "limit": [[cell("1")]] * 5,
        "completed": ["done"],
        "cancelled": [["x", asyncio.Event()]],
    }
    sent = []

    def observe(event):
        if isinstance(event, AgentFinished):
            sent.append(run.send("too late"))
        if ending == "cancelled" and event.type == "ResponseChunk":
            run.cancel()

    async with make(scripts[ending], config={"mode": "full"}, **loop) as agent:
        run = agent.run("go", budget=Budget(tool_calls=2))
        _, result = await read(run, on_event=observe)
        assert result.status == ending
        assert sent == [False]
        assert not run.send("even later")


@LOOPS
async def test_a_message_while_a_run_that_failed_is_closing_is_refused(loop, make, monkeypatch):
    """The run is failed and waits for its children to end."""
    closing, go_on = asyncio.Event(), asyncio.Event()
    end = ChildOwner.end

    async def slow_end(owner):
        closing.set()
        await go_on.wait()
        await end(owner)

    monkeypatch.setattr(ChildOwner, "end", slow_end)
    async with make([[cell("1")], [RuntimeError("broken")]], config={"mode": "full"}, **loop) as agent:
        run = agent.run("go")
        reading = asyncio.create_task(read(run))
        await closing.wait()
        is_taken = run.send("too late")
        go_on.set()
        _, result = await reading
    assert (result.status, is_taken) == ("failed", False)


@LOOPS
async def test_mended_replies_count_in_a_row(loop, make):
    """Eight replies are empty, each mended by a call: no more than one in a row."""
    script = [turn for number in range(8) for turn in ("", [cell(f"{number}")])]
    async with make([*script, "done"], config={"mode": "full", "max_repeats": None}, **loop) as agent:
        events, result = await read(agent.run("go"))
    assert (result.status, result.output) == ("completed", "done")
    assert of_kind(events, Response)


@LOOPS
async def test_unusable_replies_in_a_row_end_the_run(loop, make):
    async with make([""] * 20, config={"mode": "full"}, **loop) as agent:
        _, result = await read(agent.run("go"))
        assert agent.scripted.requests <= 7
    assert result.status == "failed"


class Sum(BaseModel):
    total: int


async def test_typed_answers_that_are_wrong_count_in_a_row(make):
    from pydantic_ai.messages import ToolCallPart

    wrong = [ToolCallPart("final_result", {"total": "many"})]
    script = [turn for number in range(7) for turn in (wrong, [cell(f"{number}")])]
    async with make(
        [*script, [ToolCallPart("final_result", {"total": 3})]], config={"mode": "full"}, output_type=Sum
    ) as agent:
        _, result = await read(agent.run("go"))
    assert (result.status, result.error) == ("completed", "")
    assert result.output == Sum(total=3)
    async with make([wrong] * 20, config={"mode": "full"}, output_type=Sum) as agent:
        _, result = await read(agent.run("go"))
        assert agent.scripted.requests == 6
    assert result.status == "failed"
    assert "total" in result.error


async def test_values_of_an_agent_are_short_to_print(make):
    async with make({"root": ["done"], "child": ["x"]}) as agent:
        await agent.run("root").result()
        await agent.run_parallel(["child"] * 5)
        node = await agent.branch("a branch")
        assert len(repr(agent.debug)) < 5_000
        for value in (agent.debug, agent.debug.root, node, agent.run("root"), agent.agents()):
            assert len(f"{value!r}{value}") < 10_000
        assert agent.agent_id in repr(agent.debug)
