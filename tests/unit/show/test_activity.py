"""What agents do right now, as `Agent.agents()` tells."""

import asyncio
import json
from dataclasses import replace

from support.agents import cell, task
from support.sample_events import CHILD, USAGE, request
from support.stories import apply, block_of
from support.waiting import eventually

from freeact_sub.activity import Activities, Activity
from freeact_sub.calls import CodeAction
from freeact_sub.events import (
    AgentFinished,
    AgentStarted,
    ApprovalDecided,
    ApprovalRequest,
    ModelProgress,
    ResponseChunk,
    ThoughtsChunk,
    ToolCallStarted,
    ToolOutput,
    ToolProgress,
    UsageUpdated,
)
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.feed import Feed
from freeact_sub.show.heads import doing

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
            ["task: the child", "waiting for approval: run code: 1 (+1 line)"],
        ]
        assert does() == ["", ""]


async def test_all_that_shows_agents_at_work_says_the_same():
    cell = {**CHILD, "tool_call_id": "call-1"}
    stream = [
        AgentStarted(**CHILD, prompt="x", queued=True),
        ThoughtsChunk(**CHILD, content="hm"),
        ModelProgress(**CHILD, seconds=1, tokens=0, paused_seconds=3.0),
        UsageUpdated(**CHILD, usage=USAGE, tree_usage=USAGE + USAGE),
        ToolCallStarted(**cell, tool_name="execute_ipython_cell", args={"code": "go()"}),
        request("r", CodeAction(code="go()"), **cell),
        ApprovalDecided(**cell, request_id="r", allowed=True),
        ToolOutput(**cell, tool_name="execute_ipython_cell", content=""),
        AgentFinished(**CHILD, status="limit", usage=USAGE, tree_usage=USAGE),
    ]
    activities, views, block, feed = Activities(), Stories(), block_of(stream[0]), Feed()

    async def read():
        for event in stream:
            yield event

    await feed.read(read())
    messages = feed.after()
    said = []
    for event in stream:
        activities.observe(event)
        view = views.observe(event)
        apply(block, event)
        page = json.loads((await anext(messages))[1])
        assert activities.of(event.agent_id) == view.text == block.text
        assert page["does"] == doing(view)
        assert (view.status, view.tree_usage) == (block.status, block.tree_usage)
        said.append(view.text)
    await messages.aclose()
    assert [text.partition(":")[0] for text in said] == [
        "waiting for the model",
        "thinking",
        "the provider is busy; trying again in 3 s",
        "thinking",
        "run code",
        "waiting for approval",
        "run code",
        "thinking",
        "",
    ]


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


def test_the_times_of_agents_leave_out_the_time_that_a_person_takes_to_answer():
    views = Stories()

    def at(time, kind, of, **values):
        views.observe(kind(**of, time=time, **values))

    def seconds(now):
        return [view.seconds(now) for view in views.by_id.values()]

    grandchild = {"agent_id": "agent-3", "parent_id": CHILD["agent_id"], "depth": 2}
    at(100, AgentStarted, {"agent_id": CHILD["parent_id"]}, prompt="p")
    at(102, AgentStarted, CHILD, prompt="p", queued=True)
    at(104, ToolCallStarted, CHILD, tool_name="t", args={})  # it has its turn from now on
    at(105, AgentStarted, grandchild, prompt="p")
    assert seconds(106) == [6, 2, 1]
    views.observe(replace(request("r", CodeAction(code="go()"), **CHILD), time=106))
    assert seconds(116) == [6, 2, 11]  # the grandchild works on
    views.observe(replace(request("s", CodeAction(code="go()"), **grandchild), time=111))
    at(116, ApprovalDecided, CHILD, request_id="r", allowed=True)
    assert seconds(120) == [6, 2, 6]
    at(121, ApprovalDecided, grandchild, request_id="s", allowed=False)
    at(121, ApprovalDecided, grandchild, request_id="s", allowed=False)
    assert seconds(124) == [9, 5, 9]
    at(130, AgentStarted, CHILD, prompt="again")
    assert seconds(131) == [16, 1, 16]


def test_open_calls_tell_how_far_they_are():
    activity = Activity.of(AgentStarted(**ROOT, prompt="x"))
    model, code = {**ROOT, "tool_call_id": "one"}, {**ROOT, "tool_call_id": "two", "call_id": "call-1"}

    def after(*events):
        for event in events:
            activity.observe(event)
        return activity.text

    assert after(ToolProgress(**model, tool_name="s_count", progress=1)) == "waiting for the model"  # no open call
    after(ToolCallStarted(**model, tool_name="s_count", args={}))
    assert after(ToolProgress(**model, tool_name="s_count", progress=1.5)) == "s_count(): 1.5"
    after(ToolCallStarted(**code, tool_name="s.load", args={}))
    hostile = "\x1b]0;title\x07 a\nb"
    assert after(ToolProgress(**code, tool_name="s.load", progress=1500, total=1e6, message=hostile)) == (
        "s.load(): 1,500 of 1,000,000, a b (and 1 more)"
    )
    assert after(ToolOutput(**code, tool_name="s.load", content="")) == "s_count(): 1.5"
    assert after(ToolOutput(**model, tool_name="s_count", content="")) == "waiting for the model"
    assert activity.reached == {}
