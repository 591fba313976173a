"""`update_plan`: people see it on the stream, nobody is asked, and `delegate` tells its subtasks in the same way."""

import pytest
from pydantic import ValidationError
from pydantic_ai.messages import ToolCallPart
from support.agents import of_kind, read
from support.tables import each

from freeact_sub.activity import MAX_PLANS, Activities, Activity
from freeact_sub.events import AgentStarted, ApprovalRequest, PlanUpdated, ToolOutput
from freeact_sub.events.progress import PlanStep
from freeact_sub.features.plan import MAX_STEPS, PlanArguments


def update(*states, **arguments):
    plan = [{"step": f"step {number}", "status": status} for number, status in enumerate(states)]
    return ToolCallPart("update_plan", {"plan": plan, **arguments})


def states(event):
    return [step.status for step in event.steps]


@pytest.mark.features("plan")
@pytest.mark.parametrize("mode", ["plan", "ask"])
async def test_a_plan_is_on_the_stream_of_its_agent_and_nobody_is_asked(make, mode):
    script = [
        [update("in_progress", "pending", explanation="as\nasked\x1b[2J")],
        [update("completed", "in_progress")],
        *["done"] * 2,
    ]
    async with make(script, config={"mode": mode}) as agent:
        events, result = await read(agent.run("go"))
    assert result.output == "done"
    assert not of_kind(events, ApprovalRequest)
    first, second = of_kind(events, PlanUpdated)
    assert first.steps == (PlanStep(step="step 0", status="in_progress"), PlanStep(step="step 1"))
    assert (first.explanation, first.plan_id, first.agent_id) == ("as asked", "", agent.agent_id)
    assert states(second) == ["completed", "in_progress"]
    assert [event.outcome for event in of_kind(events, ToolOutput)] == ["success"] * 2


async def test_subtasks_of_delegate_are_a_plan_too(make):
    subtasks = [{"task": "a"}, {"task": "fails", "depends_on": [0]}, {"task": "never", "depends_on": [1]}]

    def script(messages, info):
        name = str(messages[0].parts[0].content).split("\n")[0]
        if name != "root":
            return RuntimeError("no luck") if name == "fails" else "fine"
        return "done" if len(messages) > 1 else ToolCallPart("delegate", {"plan": "the plan", "subtasks": subtasks}, "d")

    async with make(script, config={"headless": "allow"}) as agent:
        events, _ = await read(agent.run("root"))
    plans = of_kind(events, PlanUpdated)
    assert [states(event) for event in plans] == [
        ["in_progress", "pending", "pending"],
        ["completed", "pending", "pending"],
        ["completed", "in_progress", "pending"],
        ["completed", "failed", "pending"],
        ["completed", "failed", "failed"],
    ]
    assert {(event.agent_id, event.plan_id, event.explanation) for event in plans} == {(agent.agent_id, "d", "the plan")}
    assert [event.is_over for event in plans] == [False] * 4 + [True]


@each(
    "arguments",
    [
        {"plan": []},
        {"plan": [{"step": "", "status": "pending"}]},
        {"plan": [{"step": "a", "status": "done"}]},
        {"plan": [{"step": "a", "status": "pending"}] * (MAX_STEPS + 1)},
        {},
    ],
)
def test_invalid_plans_are_refused(arguments):
    with pytest.raises(ValidationError):
        PlanArguments.model_validate(arguments)


def test_an_agent_has_its_newest_plans_until_its_next_run():
    activity = Activity.of(AgentStarted(agent_id="a", prompt="x"))
    for number in range(20):
        steps = (PlanStep(step="x"),)
        activity.observe(PlanUpdated(agent_id="a", steps=steps, plan_id=str(number)))
    assert len(activity.plans) == MAX_PLANS
    activity.observe(AgentStarted(agent_id="a", prompt="y"))
    assert not activity.plans
    assert Activities().of("a") == ""
