"""Background children that outlive a prompt: who follows them hears them between runs, and answers what they ask."""

import asyncio

import pytest
from support.agents import cell, of_kind, task
from support.waiting import eventually

from freeact_sub.events import AgentFinished, ApprovalDecided, ApprovalRequest, CodeExecutionOutput


async def test_a_follower_of_background_children_hears_them_between_runs_and_answers_their_questions(make):
    go = asyncio.Event()
    script = {"root": [task("one", background=True), "I go home", "I know"], "one": [[go, cell("print('it')")], "found it"]}
    heard = []

    def hear(event):
        heard.append(event)
        if isinstance(event, ApprovalRequest):
            event.approve()

    async with make(script, config={"mode": "ask"}) as agent:
        agent.follow_background(hear)
        events = []
        async for event in agent.run("root"):
            events.append(event)
            if isinstance(event, ApprovalRequest):
                event.approve()
        assert [event.agent_id for event in of_kind(events, AgentFinished)] == [agent.agents()[0].agent_id]
        go.set()
        await eventually(lambda: of_kind(heard, AgentFinished))
        assert len(of_kind(heard, ApprovalDecided)) == len(of_kind(heard, ApprovalRequest)) > 0
        assert [end.text for end in of_kind(heard, CodeExecutionOutput)] == ["it"]
        again = [event async for event in agent.run("and now?")]
        prompt = str(agent.history[-2])
    assert "found it" in prompt
    assert "and now?" in prompt
    child = of_kind(heard, AgentFinished)[0].agent_id
    assert child not in {event.agent_id for event in of_kind([*events, *again], AgentFinished)}, "told once over all streams"


async def test_a_question_that_is_open_when_the_run_ends_stays_with_who_follows(make):
    home, heard = asyncio.Event(), []
    script = {"root": [task("one", background=True), [home, "I go home"]], "one": [cell("print(1)"), "done"]}
    async with make(script, config={"mode": "ask"}) as agent:
        agent.follow_background(heard.append)
        left = None
        async for event in agent.run("root"):
            if isinstance(event, ApprovalRequest) and event.depth == 0:
                event.approve()
            elif isinstance(event, ApprovalRequest):
                left = event
                home.set()
        assert left is not None
        assert left.approve()
        await eventually(lambda: of_kind(heard, AgentFinished))
    assert of_kind(heard, AgentFinished)[0].status == "completed"


@pytest.mark.parametrize("follows", [True, False])
async def test_a_background_child_is_cancelled_between_runs_or_ends_with_the_agent(make, follows):
    script = {"root": [task("one", background=True), "I go home"], "one": [[asyncio.Event()]]}
    heard = []
    async with make(script, config={"headless": "allow"}) as agent:
        if follows:
            agent.follow_background(heard.append)
        await agent.run("root").result()
        child = agent.agents()[1]
        assert child.status == "running"
        if follows:
            assert agent.cancel(child.agent_id)
            await eventually(lambda: agent.agents()[1].status == "cancelled")
            assert not agent.cancel(child.agent_id)
            assert not agent.cancel("agent-unknown")
    assert agent.agents()[1].status == "cancelled"
    assert [event.status for event in of_kind(heard, AgentFinished)] == ["cancelled"] * follows
