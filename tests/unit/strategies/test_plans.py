"""`plan_and_execute`: what depends on what, replanning, hierarchy, and its bounds."""

import asyncio

import pytest
from support.waiting import soon, turns

from freeact_sub.errors import StrategyError
from freeact_sub.strategies import Step, plan_and_execute
from freeact_sub.strategies.plans import Review


def planner(plans, results):
    """Plans come from a list, results of steps by the step's text."""
    rest = list(plans)

    def answer(prompt, request):
        if "history" in request:
            return rest.pop(0)
        return next(value for text, value in results.items() if prompt.startswith(text))

    return answer


async def test_steps_get_what_they_depend_on_and_the_planner_gives_the_answer(fake):
    steps = [Step(task="read a"), Step(task="read b"), Step(task="compare", depends_on=[0, 1])]
    agent = fake(planner([steps, Review(answer="a is longer")], {"read a": "10 lines", "read b": "9 lines", "compare": "a"}))
    result = await plan_and_execute(agent, "Which is longer, a or b?")
    assert (result.answer, result.plans) == ("a is longer", 1)
    assert [step.output for step in result.steps] == ["10 lines", "9 lines", "a"]
    prompts = {task["prompt"].split("\n")[0]: task["prompt"] for task in agent.tasks}
    assert "Which is longer, a or b?" in prompts["read a"]
    assert "10 lines" not in prompts["read b"]
    assert "- read a\n  10 lines\n- read b\n  9 lines" in prompts["compare"]
    review = agent.asked[-1]
    assert review["history"][0] == agent.asked[0]["prompt"], "the planner remembers its plan"
    assert "- compare\n  a" in review["prompt"]


async def test_what_is_independent_runs_side_by_side(fake):
    both = asyncio.Barrier(2)

    async def meet():
        await both.wait()
        return "met"

    steps = [Step(task="one"), Step(task="two")]
    agent = fake(
        lambda prompt, request: [steps, Review(answer="x")][len(agent.asked) - 1] if "history" in request else meet()
    )
    result = await asyncio.wait_for(plan_and_execute(agent, "?"), 60)
    assert [step.output for step in result.steps] == ["met", "met"]


async def test_a_step_that_fails_is_planned_again_with_what_is_there(fake):
    first = [Step(task="download"), Step(task="parse", depends_on=[0]), Step(task="summarise", depends_on=[1])]
    second = Review(steps=[Step(task="use the copy")])
    results = {"download": "<html>", "parse": RuntimeError("no table"), "use the copy": "3 rows"}
    agent = fake(planner([first, second, Review(answer="3")], results))
    result = await plan_and_execute(agent, "How many rows?")
    assert (result.answer, result.plans) == ("3", 2)
    assert [step.error for step in result.steps] == ["", "no table", "it has not begun, as another step has failed", ""]
    assert "- parse\n  failed: no table" in agent.asked[1]["prompt"]
    assert "<html>" in agent.tasks[-1]["prompt"], "what was found before is told to the steps of the new plan"
    assert not any(task["prompt"].startswith("summarise") for task in agent.tasks)


async def test_a_large_step_gets_a_plan_of_its_own_one_level_down(fake):
    def answer(prompt, request):
        if "history" not in request:
            return f"did {prompt.split('.')[0]}"
        if prompt.startswith("Make a plan") and prompt.endswith("The task:\nwhole"):
            return [Step(task="large.", divide=True)]
        if prompt.startswith("Make a plan"):
            assert "divide" not in prompt, "at the last level nothing is divided"
            return [Step(task="small.", divide=True)]
        return Review(answer="done: " + prompt.split("\n  ")[1].split("\n")[0])

    agent = fake(answer)
    result = await plan_and_execute(agent, "whole")
    assert len(agent.tasks) == 1
    assert result.answer == "done: done: did small"
    assert result.steps[0].plan.steps[0].output == "did small"


async def test_a_plan_that_cannot_be_carried_out_is_given_back_and_then_refused(fake):
    circle = [Step(task="a", depends_on=[1]), Step(task="b", depends_on=[0])]
    agent = fake(planner([circle, [Step(task="a")], Review(answer="yes")], {"a": "x"}))
    assert (await plan_and_execute(agent, "?")).answer == "yes"
    assert "step 0 depends on step 1, which is not before it" in agent.asked[1]["prompt"]
    with pytest.raises(StrategyError, match="it has no steps"):
        await plan_and_execute(fake(lambda *_: []), "?")


async def test_a_planner_that_fails_in_the_end_loses_no_result(fake):
    agent = fake(planner([[Step(task="count")], RuntimeError("no budget is left")], {"count": "7 rows"}))
    with pytest.raises(StrategyError, match="(?s)no budget is left.*- count\n  7 rows"):
        await plan_and_execute(agent, "How many rows?")


async def test_plans_and_steps_are_bounded(fake):
    endless = [[Step(task="a")], *[Review(steps=[Step(task="a")])] * 9]
    agent = fake(planner(endless, {"a": "x"}))
    with pytest.raises(StrategyError, match="not done after 3 plans"):
        await plan_and_execute(agent, "?", max_replans=2)
    assert len(agent.tasks) == 3
    with pytest.raises(StrategyError, match=r"max_steps \(2\)"):
        await plan_and_execute(fake(planner([[Step(task="a")] * 3], {})), "?", max_steps=2)


async def test_a_cancel_at_any_step_leaves_nothing(fake):
    steps = [Step(task="a"), Step(task="b"), Step(task="c", depends_on=[0, 1])]
    for after in range(1, 40, 2):
        agent = fake(
            lambda prompt, request: soon(
                "x" if "history" not in request else steps if request["output"] == list[Step] else Review(answer="y")
            )
        )
        work = asyncio.create_task(plan_and_execute(agent, "?"))
        await turns(after)
        work.cancel()
        await asyncio.wait({work}, timeout=60)
        assert work.done()
        assert agent.at_work == 0, f"after {after} steps"
