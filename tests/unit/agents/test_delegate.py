"""`delegate`: plans, their order, their failures."""

import asyncio
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic_ai.messages import ToolCallPart
from support.agents import finished, of_kind, read
from support.tables import each

from freeact_sub.events import AgentFinished, AgentStarted, ApprovalRequest, ToolOutput
from freeact_sub.tools import Delegate
from freeact_sub.tools.children import DelegateArguments, order_of


def delegate(*subtasks, **arguments):
    return ToolCallPart("delegate", {"plan": "the plan", "subtasks": list(subtasks), **arguments})


@given(
    st.integers(0, 6).flatmap(lambda size: st.lists(st.lists(st.integers(-1, 6), max_size=4), min_size=size, max_size=size))
)
def test_an_order_or_a_sentence(graph):
    """Whatever depends on what: each comes after those it needs, or there is a reason why not."""
    if any(not 0 <= other < len(graph) for others in graph for other in others):
        with pytest.raises(ValueError, match=r"^subtask \d depends on subtask -?\d, but there are only subtasks 0 to -?\d$"):
            order_of(graph)
        return
    if not can_be_ordered(graph):
        with pytest.raises(ValueError, match="^these subtasks wait for each other: ") as error:
            order_of(graph)
        circle = [int(number) for number in re.findall(r"\d", str(error.value))]
        assert circle[0] == circle[-1]
        assert all(other in graph[index] for index, other in itertools.pairwise(circle))
        return
    order = order_of(graph)
    assert sorted(order) == list(range(len(graph)))
    assert all(order.index(other) < order.index(index) for index, others in enumerate(graph) for other in others)


def can_be_ordered(graph):
    """Take away what needs nothing that is left, until nothing is left, or nothing can be taken away."""
    left = set(range(len(graph)))
    while free := {index for index in left if not left & set(graph[index])}:
        left -= free
    return not left


@each(
    ("subtasks", "said"),
    [
        ([], "at least 1 item"),
        ([{"task": "x"}] * 6, "at most 5 items"),
        ([{"task": "x", "depends_on": [0]}], "wait for each other: subtask 0, which depends on subtask 0"),
        ([{"task": "x", "depends_on": [1]}], "subtask 0 depends on subtask 1, but there are only subtasks 0 to 0"),
        ([{"task": ""}], "at least 1 character"),
    ],
)
def test_a_plan_that_cannot_be_done_is_refused(subtasks, said):
    with pytest.raises(ValidationError, match=re.escape(said)):
        DelegateArguments(plan="p", subtasks=subtasks)


async def test_independent_subtasks_run_side_by_side_and_answers_are_passed_on(make):
    both, prompts = asyncio.Event(), {}
    working = set()

    def script(messages, info):
        prompt = str(messages[0].parts[0].content)
        name = prompt.split("\n")[0]
        prompts[name] = prompt
        if name == "root":
            return (
                "done"
                if len(messages) > 1
                else delegate({"task": "sum up", "depends_on": [1, 2]}, {"task": "left"}, {"task": "right", "scope": "src"})
            )
        if name in ("left", "right"):
            working.add(name)
            if len(working) == 2:
                both.set()
            return [f"answer of the {name}", both]
        return "all in all"

    async with make(script, config={"headless": "allow"}) as agent:
        events, result = await read(agent.run("root"))
    assert result.output == "done"
    assert "Earlier part (left):\n[agent-" in prompts["sum up"]
    assert "answer of the left" in prompts["sum up"]
    assert "answer of the right" in prompts["sum up"]
    assert "answer of" not in prompts["right"]
    assert "The plan: the plan" in prompts["right"]
    [report] = [event.content for event in of_kind(events, ToolOutput)]
    assert report.startswith("3 of 3 subtasks completed. The plan: the plan\n\n## Subtask 0: completed\nsum up\n\n[agent-")
    assert [event.description for event in of_kind(events, AgentStarted)][1:] == [
        "subtask 1: left",
        "subtask 2: right",
        "subtask 0: sum up",
    ]


@pytest.mark.parametrize("stop", [True, False])
async def test_after_an_error(make, stop):
    begun = []

    def script(messages, info):
        name = str(messages[0].parts[0].content).split("\n")[0]
        if name != "root":
            begun.append(name)
        if name == "root":
            return (
                "done"
                if len(messages) > 1
                else delegate(
                    {"task": "fails"},
                    {"task": "next", "depends_on": [0]},
                    {"task": "last", "depends_on": [1]},
                    stop_on_error=stop,
                )
            )
        return RuntimeError("no luck") if name == "fails" else "fine"

    async with make(script, config={"headless": "allow"}) as agent:
        events, _ = await read(agent.run("root"))
    [report] = of_kind(events, ToolOutput)
    assert report.outcome == "failed"
    statuses = re.findall(r"^## Subtask \d: (.+)$", report.content, re.MULTILINE)
    if stop:
        assert begun == ["fails"]
        assert statuses == ["failed", "not started", "not started"]
        assert report.content.count("Subtask 0 did not complete.") == 2
    else:
        assert begun == ["fails", "next", "last"]
        assert statuses == ["failed", "completed", "completed"]
    assert "no luck" in report.content


@pytest.mark.slow
async def test_a_long_answer_reaches_the_next_in_part(make):
    seen = {}

    def script(messages, info):
        name, prompt = str(messages[0].parts[0].content).split("\n")[0], str(messages[0].parts[0].content)
        seen[name] = len(prompt)
        if name == "root":
            return "done" if len(messages) > 1 else delegate({"task": "long"}, {"task": "next", "depends_on": [0]})
        return "x" * 20_000

    async with make(script, config={"headless": "allow"}) as agent:
        await read(agent.run("root"))
    assert 5_000 < seen["next"] < 8_000


async def test_a_plan_is_one_question_and_a_no_starts_no_child(make):
    script = {"root": [delegate({"task": "one"}, {"task": "two", "agent": "x"}), "done"]}
    requests = []

    def deny(request: ApprovalRequest):
        requests.append(request)
        request.deny("not now")

    async with make(script) as agent:
        events, result = await read(agent.run("root"), rule=deny)
    assert result.output == "done"
    [request] = requests
    assert request.call.prompt == "the plan\n\n0. one\n\n1. two"
    assert "2 children for the plan" in request.call.summary
    assert len(of_kind(events, AgentStarted)) == 1


async def test_a_cancel_ends_all_of_it(make):
    silent = asyncio.Event()
    script = {
        "root": [delegate({"task": "one"}, {"task": "two"}, {"task": "three", "depends_on": [0]})],
        "one": [silent],
        "two": [silent],
    }
    async with make(script, config={"headless": "allow"}) as agent:
        run = agent.run("root")
        waiting = set()

        def cancel(event):
            if isinstance(event, AgentStarted) and event.depth:
                waiting.add(event.agent_id)
                if len(waiting) == 2:
                    run.cancel()

        events, result = await read(run, on_event=cancel)
    assert result.status == "cancelled"
    assert {name: end.status for name, end in finished(events).items()} == {
        "": "cancelled",
        "subtask 0: one": "cancelled",
        "subtask 1: two": "cancelled",
    }
    assert len(of_kind(events, AgentFinished)) == 3


def test_one_child_is_not_children():
    call = Delegate().call(DelegateArguments(plan="p", subtasks=[{"task": "x"}]))
    assert call.description == "1 child for the plan: p"
