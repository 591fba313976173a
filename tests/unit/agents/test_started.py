"""`AgentStarted` tells which call has started a child, and what it is."""

import json

import pytest
from pydantic_ai.messages import ToolCallPart
from support.agents import of_kind, read, task

from freeact_sub import AgentStarted, ChildRequest, ToolCallStarted
from freeact_sub.testing import first_prompt


def children(events):
    return {event.prompt.splitlines()[0]: event for event in of_kind(events, AgentStarted) if event.depth}


@pytest.mark.features("agent_types")
async def test_a_child_is_linked_to_the_call_that_started_it_and_tells_its_type_mode_and_model(make, tmp_path):
    folder = tmp_path / "types"
    folder.mkdir()
    (folder / "reader.md").write_text("---\ndescription: Reads.\nmode: plan\n---\n")
    plan = ToolCallPart("delegate", {"plan": "p", "subtasks": [{"task": "planned"}]}, tool_call_id="call-plan")
    turn = [
        task("typed", agent="reader"),
        task("plain"),
        task("behind", background=True),
        plan,
    ]
    for number, call in enumerate(turn[:3]):
        call.tool_call_id = f"call-{number}"

    def script(messages, info):
        first = first_prompt(messages) == "root" and sum(m.kind == "response" for m in messages) == 0
        return turn if first else "done"

    async with make(script, config={"agent_folders": (folder,), "mode": "full"}) as agent:
        events, _ = await read(agent.run("root"))
    [root] = [event for event in of_kind(events, AgentStarted) if not event.depth]
    assert (root.tool_call_id, root.agent_type, root.mode, root.model) == (None, None, "full", "function:scripted")
    begun = children(events)
    typed, plain, behind = begun["typed"], begun["plain"], begun["behind"]
    assert (typed.tool_call_id, typed.agent_type, typed.mode) == ("call-0", "reader", "plan")
    assert (plain.tool_call_id, plain.agent_type, plain.mode, plain.model) == ("call-1", None, "full", "function:scripted")
    assert behind.tool_call_id == "call-2"
    [planned] = [event for event in begun.values() if event.tool_call_id == "call-plan"]
    assert "planned" in planned.prompt
    calls = {event.tool_call_id for event in of_kind(events, ToolCallStarted)}
    assert {event.tool_call_id for event in begun.values()} <= calls
    shown = json.loads(typed.to_json())
    assert {"tool_call_id": "call-0", "agent_type": "reader", "mode": "plan"}.items() <= shown.items()


async def test_a_child_that_a_factory_makes_anew_keeps_its_link_and_one_without_a_model_names_none(make):
    class Answers:
        async def run(self, prompt, context):
            return "by itself"

    class Factory:
        def create(self, request, context):
            return Answers() if "itself" in request.prompt else ChildRequest(prompt=request.prompt)

    turn = [task("itself"), task("anew")]
    for number, call in enumerate(turn):
        call.tool_call_id = f"call-{number}"

    def script(messages, info):
        first = first_prompt(messages) == "root" and sum(m.kind == "response" for m in messages) == 0
        return turn if first else "done"

    async with make(script, config={"mode": "full"}, factory=Factory()) as agent:
        events, _ = await read(agent.run("root"))
        result = await agent.spawn_and_run("from the program")
    begun = children(events)
    assert (begun["itself"].tool_call_id, begun["itself"].model) == ("call-0", "")
    assert (begun["anew"].tool_call_id, begun["anew"].model) == ("call-1", "function:scripted")
    assert result.status == "completed"
