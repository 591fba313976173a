"""Children and questions that code in a cell begins at once are quoted; those that come one by one are not."""

import pytest
from support.agents import cell, of_kind, read, root_text

from freeact_sub.calls import FanOut
from freeact_sub.events import ApprovalDecided, ApprovalRequest, Decision, Notice

pytestmark = pytest.mark.kernel

ASK = """
import asyncio
answers = await asyncio.gather(*[agent.ask(f"ask {n}") for n in range(30)], return_exceptions=True)
print(len([one for one in answers if one == "yes"]), "answers;", {str(one) for one in answers if one != "yes"})
"""
ONE_BY_ONE = """
done = [(await agent.task(f"child {n}")).output for n in range(14)]
print(len(done), "children;", len([await agent.ask(f"ask {n}") for n in range(14)]), "answers")
"""


def script(code):
    return {"root": [[cell(code)], "end"], "ask": ["yes"], "child": ["done"]}


def person(allowed):
    return lambda request: Decision(
        allowed=allowed or not isinstance(request.call, FanOut), reason="" if allowed else "dear"
    )


@pytest.mark.parametrize("allowed", [True, False])
async def test_many_calls_that_a_cell_begins_at_once_are_quoted_and_a_no_reaches_the_code(make, allowed):
    async with make(script(ASK)) as agent:
        events, result = await read(agent.run("root"), person(allowed))
    questions = [event for event in of_kind(events, ApprovalRequest) if isinstance(event.call, FanOut)]
    [question] = questions if not allowed else questions[:1]
    assert (question.call.what, question.call.more) == ("ask", 27)
    assert question.tool_call_id is None or question.agent_id == result.agent_id
    text = root_text(events)
    if allowed:
        assert "30 answers; set()" in text
    else:
        assert "3 answers; {" in text
        assert "dear" in text
    assert len([one for one in of_kind(events, ApprovalDecided) if one.request_id == question.request_id]) == 1


async def test_calls_that_come_one_by_one_are_not_quoted(make):
    async with make(script(ONE_BY_ONE)) as agent:
        events, _ = await read(agent.run("root"), person(allowed=False))
    assert not [event for event in of_kind(events, ApprovalRequest) if isinstance(event.call, FanOut)]
    assert "14 children; 14 answers" in root_text(events)


GATHERED = """
import asyncio
async def child(n):
    return (await agent.task(f"child {n}")).output
done = await asyncio.gather(*[child(n) for n in range(16)], return_exceptions=True)
print(len([one for one in done if one == "done"]), "children")
"""


async def test_in_auto_what_a_cell_begins_at_once_is_quoted_after_three(make):
    async with make(script(GATHERED), mode="auto") as agent:
        events, _ = await read(agent.run("root"), person(allowed=False))
    [question] = of_kind(events, ApprovalRequest)
    assert (question.call.what, question.call.more) == ("task", 13)
    assert "3 children" in root_text(events)


async def test_in_full_a_notice_has_the_figures(make):
    async with make(script(ASK), mode="full") as agent:
        events, _ = await read(agent.run("root"))
    assert "30 answers; set()" in root_text(events)
    assert not of_kind(events, ApprovalRequest)
    assert [one for one in of_kind(events, Notice) if one.content.startswith("ask: ")]
