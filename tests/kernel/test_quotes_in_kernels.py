"""Code in a cell that starts many children, or asks many questions, is quoted; what follows counts as one fan-out."""

import pytest
from support.agents import cell, of_kind, read, root_text

from freeact_sub.calls import FanOut
from freeact_sub.events import AgentStarted, ApprovalDecided, ApprovalRequest, Decision, Notice

pytestmark = pytest.mark.kernel

ASK = """
import asyncio
answers = await asyncio.gather(*[agent.ask(f"ask {n}") for n in range(30)], return_exceptions=True)
print(len([one for one in answers if one == "yes"]), "answers;", {str(one) for one in answers if one != "yes"})
"""
TASK = """
done = []
for n in range(14):
    try:
        done.append((await agent.task(f"child {n}")).output)
    except Exception as error:
        print(type(error).__name__, error)
print(len(done), "children")
"""


def script(code):
    return {"root": [[cell(code)], "end"], "ask": ["yes"], "child": ["done"]}


def person(allowed):
    return lambda request: Decision(
        allowed=allowed or not isinstance(request.call, FanOut), reason="" if allowed else "dear"
    )


@pytest.mark.parametrize(("code", "what", "allowed"), [(ASK, "ask", True), (ASK, "ask", False), (TASK, "task", False)])
async def test_many_calls_of_a_cell_are_quoted_and_a_no_reaches_the_code(make, code, what, allowed):
    async with make(script(code)) as agent:
        events, result = await read(agent.run("root"), person(allowed))
    questions = [event for event in of_kind(events, ApprovalRequest) if isinstance(event.call, FanOut)]
    [question] = questions if not allowed else questions[:1]
    if what == "ask":  # begun at once
        assert (question.call.what, question.call.more, question.call.counted) == (what, 27, True)
    else:  # nobody knows how many follow
        assert (question.call.what, question.call.counted) == (what, False)
    assert question.tool_call_id is None or question.agent_id == result.agent_id
    text = root_text(events)
    if what == "task":
        assert "10 children" in text
        assert "dear" in text
        assert len([event for event in of_kind(events, AgentStarted) if event.depth]) == 10
    elif allowed:
        assert "30 answers; set()" in text
    else:
        assert "3 answers; {" in text
        assert "dear" in text
    assert len([one for one in of_kind(events, ApprovalDecided) if one.request_id == question.request_id]) == 1


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
