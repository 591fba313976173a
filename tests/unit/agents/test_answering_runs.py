"""Approval requests are answered on the run, by their ids: whoever reads the events and whoever answers need not be one."""

import asyncio

import pytest
from pydantic_ai.messages import ToolCallPart
from support.agents import cell

from freeact_sub.events import (
    AgentEvent,
    ApprovalDecided,
    ApprovalRequest,
    Decision,
    QuestionAnswered,
    QuestionRequest,
    ToolOutput,
)


def three_cells(messages, _info):
    return [cell("'one'"), cell("'two'"), cell("'three'")] if len(messages) == 1 else "done"


async def read(run, events, changed):
    async for event in run:
        events.append(event)
        changed.set()


async def until(changed, condition):
    async with asyncio.timeout(60):
        while not condition():
            changed.clear()
            await changed.wait()


async def test_open_requests_are_answered_by_id_in_any_order_and_from_any_thread(make):
    events, changed = [], asyncio.Event()
    async with make(three_cells) as agent, agent.run("go") as run:
        assert run.open_requests == ()
        assert not run.answer("approval-unknown", Decision(allowed=True))
        reader = asyncio.create_task(read(run, events, changed))
        for code in ("one", "two", "three"):
            await until(changed, lambda: run.open_requests and run.open_requests[-1] in events)
            asked = run.open_requests
            assert asked == tuple(event for event in events if isinstance(event, ApprovalRequest))[-len(asked) :]
            request = AgentEvent.from_json(asked[0].to_json())  # another process would have no more than this
            assert isinstance(request, ApprovalRequest)
            decision = Decision(allowed=code != "two", reason="" if code != "two" else "not this one")
            assert await asyncio.to_thread(run.answer, request.request_id, decision)
            assert request.request_id not in [item.request_id for item in run.open_requests]
            assert not run.answer(request.request_id, Decision(allowed=True)), "the first answer counts"
        await reader
        assert (await run.result()).status == "completed"
        assert run.open_requests == ()
    answers = [(event.allowed, event.reason) for event in events if isinstance(event, ApprovalDecided)]
    assert sorted(answers) == [(False, "not this one"), (True, ""), (True, "")]


async def test_a_pattern_that_is_none_leaves_the_question_open(make):
    async with make(lambda messages, _info: cell("1") if len(messages) == 1 else "done") as agent, agent.run("go") as run:
        async for event in run:
            if isinstance(event, ApprovalRequest):
                with pytest.raises(ValueError, match="does not begin with a kind"):
                    run.answer(event.request_id, Decision(allowed=True, remember="session", pattern="no such kind"))
                assert run.open_requests == (event,)
                assert run.answer(event.request_id, Decision(allowed=True))


async def test_nothing_is_open_where_nobody_is_asked_or_the_run_is_cancelled(make):
    async with make(three_cells, config={"headless": "allow"}) as agent, agent.run("go") as run:
        async for event in run:
            assert run.open_requests == ()
            assert not isinstance(event, ApprovalRequest) or not run.answer(event.request_id, Decision(allowed=False))
    async with make(three_cells) as agent, agent.run("go") as run:
        async for event in run:
            if isinstance(event, ApprovalRequest):
                run.cancel()
                asked = event.request_id
        assert run.open_requests == ()
        assert not run.answer(asked, Decision(allowed=True))


async def test_one_question_is_withdrawn_and_the_run_goes_on(make):
    events = []
    async with make(three_cells) as agent, agent.run("go") as run:
        assert not run.withdraw("approval-unknown")
        async for event in run:
            events.append(event)
            if isinstance(event, ApprovalRequest) and "two" in event.call.code:
                assert run.withdraw(event.request_id, "the editor was closed")
                assert not run.withdraw(event.request_id), "it is closed"
            elif isinstance(event, ApprovalRequest):
                event.approve()
        result = await run.result()
    assert (result.status, result.unattended) == ("completed", False)
    decided = [(event.allowed, event.reason) for event in events if isinstance(event, ApprovalDecided)]
    assert sorted(decided) == [(False, "the editor was closed"), (True, ""), (True, "")]


@pytest.mark.features("questions")
async def test_a_model_reads_why_its_question_was_withdrawn(make):
    events = []
    ask = ToolCallPart("ask_user", {"questions": [{"question": "Which one?"}]})
    async with make(lambda messages, _info: ask if len(messages) == 1 else "done") as agent, agent.run("go") as run:
        async for event in run:
            events.append(event)
            if isinstance(event, QuestionRequest):
                assert run.withdraw(event.request_id, "the editor was closed")
        assert (await run.result()).status == "completed"
    assert [event.reason for event in events if isinstance(event, QuestionAnswered)] == ["the editor was closed"]
    assert ["the editor was closed" in event.content for event in events if isinstance(event, ToolOutput)] == [True]
