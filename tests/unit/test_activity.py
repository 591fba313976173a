"""What agents do right now, as `Agent.agents()` tells."""

import asyncio

from support.agents import cell, task
from support.waiting import eventually

from freeact_sub.activity import Activities
from freeact_sub.events import (
    AgentFinished,
    AgentStarted,
    ApprovalRequest,
    ResponseChunk,
    ThoughtsChunk,
    ToolCallStarted,
    ToolOutput,
)

ROOT = {"agent_id": "agent-1"}


async def test_agents_tell_what_they_do_until_they_have_ended(make):
    go = asyncio.Event()
    script = {"root": [task("child", description="the child"), "done"], "child": [[go, cell("\n1\n2")], "fine"]}

    def does():
        return [info.action for info in agent.agents()]

    async with make(script) as agent:
        assert does() == [""]
        run = agent.run("root")
        seen = []
        async for event in run:
            if isinstance(event, ApprovalRequest):
                seen.append(does())
                event.approve()
            if isinstance(event, AgentStarted) and event.depth == 1:
                await eventually(lambda: does() == ["task: the child", "waiting for the model"])
                go.set()
        assert seen == [
            ["waiting for approval: start a child agent: the child"],
            ["task: the child", "waiting for approval: run code: 1 (+1 lines)"],
        ]
        assert does() == ["", ""]


def test_what_a_cell_calls_is_told_before_the_cell():
    activities = Activities()

    def after(*events):
        for event in events:
            activities.observe(event)
        return activities.of("agent-1")

    code = {**ROOT, "tool_call_id": "call-1"}
    assert after(AgentStarted(**ROOT, prompt="x")) == "waiting for the model"
    assert after(ThoughtsChunk(**ROOT, content="hm")) == "thinking"
    assert after(ResponseChunk(**ROOT, content="I")) == "writing"
    ran = ToolCallStarted(**code, tool_name="execute_ipython_cell", args={"code": "go()\x1b[2J"})
    assert after(ran) == "run code: go()"
    assert after(ToolCallStarted(**code, tool_name="fetch", args={"url": "x"})) == "fetch(url='x') (and 1 more)"
    assert after(ToolOutput(**code, tool_name="fetch", content="")) == "run code: go()"
    assert after(ResponseChunk(**ROOT, content="I")) == "writing"
    assert after(AgentFinished(**ROOT, status="completed")) == ""
    assert activities.of("agent-2") == ""
