"""Questions that nobody answers, and the clocks meanwhile."""

import asyncio
import logging
from types import SimpleNamespace

import pytest
from support.agents import cell, finished, of_kind, read, task
from support.askers import AskerFake
from support.virtual_time import in_virtual_time
from support.waiting import eventually

from freeact_sub import Budget
from freeact_sub.approvals import Gate, Policy
from freeact_sub.calls import CodeAction
from freeact_sub.channel import Emitter, EventChannel
from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.events import ApprovalDecided, ApprovalRequest, Decision, ToolOutput

NEVER = 1e6


def nobody(_):
    return None


@pytest.mark.slow
async def test_a_question_without_an_answer_is_denied_with_that_reason_and_the_run_goes_on(make):
    script = {"root": [[task("child"), cell("1")], "done"], "child": [cell("2"), "answer"]}

    def rule(request):
        return Decision(allowed=True) if request.call.kind == "spawn" else None

    async with make(script, config={"approval_timeout_seconds": 5}) as agent:
        events, result = await asyncio.wait_for(read(agent.run("root"), rule), 120)
        assert result.status == "completed"
        requests = of_kind(events, ApprovalRequest)
        answers = {event.request_id: event for event in of_kind(events, ApprovalDecided)}
        assert len(requests) == len(answers) == 3
        assert not any(request.approve() for request in requests)  # too late
    for request in requests:
        denied = request.call.kind != "spawn"
        assert answers[request.request_id].allowed is not denied
        assert not denied or "nobody has answered within 5 s" in answers[request.request_id].reason
    outputs = [event.content for event in of_kind(events, ToolOutput) if event.tool_name == "execute_ipython_cell"]
    assert len(outputs) == 2
    assert all("(setting `approval_timeout_seconds`)" in text for text in outputs)


async def test_an_unanswered_request_ends_the_run_where_a_denial_does(make):
    config = {"approval_timeout_seconds": 0.05, "on_denial": "end"}
    async with make({"root": [cell("1"), "done"]}, config=config) as agent:
        _, result = await asyncio.wait_for(read(agent.run("root"), nobody), 120)
    assert (result.status, "approval_timeout_seconds" in result.error) == ("rejected", True)


async def test_an_answer_in_time_counts_and_none_is_needed_without_a_bound(make):
    for timeout in (NEVER, None):
        async with make({"root": [cell("6 * 7"), "done"]}, config={"approval_timeout_seconds": timeout}) as agent:
            events, _ = await read(agent.run("root"))
        assert [event.content for event in of_kind(events, ToolOutput)] == ["42"]


@pytest.fixture
def gate(tmp_path):
    """Asks one question; `received()` is its event."""
    channel = EventChannel()

    def start(**kwargs):
        emitter = Emitter(channel=channel, agent_id="agent-1")
        asker = AskerFake(policy=Policy(workspace=tmp_path), emitter=emitter, path=("agent-1",))
        check = Gate(**kwargs).check(CodeAction(code="print(1)"), asker)
        return SimpleNamespace(task=asyncio.create_task(check), received=channel.receive)

    return start


async def test_the_log_tells_of_a_question_that_no_front_end_shows(gate, caplog):
    caplog.set_level(logging.WARNING)
    asked = gate(unshown_seconds=0.01)
    request = await asked.received()
    await eventually(lambda: caplog.records)
    assert "agent-1 waits for an answer" in caplog.text
    assert "event.approve()" in caplog.text
    assert "print(1)" in caplog.text
    assert request.approve()
    await asked.task
    assert len(caplog.records) == 1


@in_virtual_time
async def test_shown_and_answered_requests_are_not_logged(gate, caplog):
    caplog.set_level(logging.WARNING)
    shown = gate(unshown_seconds=0.05)
    (await shown.received()).shown()
    late = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.2, late.set_result, None)
    answered = gate(unshown_seconds=0.1)
    (await answered.received()).approve()
    await answered.task
    await late
    shown.task.cancel()
    await asyncio.wait({shown.task})
    assert not caplog.records


@in_virtual_time
async def test_a_cancel_ends_the_timers(gate, caplog):
    caplog.set_level(logging.WARNING)
    asked = gate(unshown_seconds=0.05, timeout_seconds=0.05)
    await asked.received()
    asked.task.cancel()
    await asyncio.wait({asked.task})
    answered = await asked.received()
    assert (answered.allowed, answered.reason) == (False, "the call has ended")
    ended = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.2, ended.set_result, None)
    await ended
    assert not caplog.records


async def test_the_bound_holds_where_the_answer_comes_from_another_thread(gate):
    asked = gate(timeout_seconds=0.05)
    request = await asked.received()
    with pytest.raises(ApprovalDeniedError, match="nobody has answered"):
        await asked.task
    assert not await asyncio.to_thread(request.approve)


@pytest.mark.slow
async def test_a_question_stops_the_time_of_those_above_and_of_nobody_else(make):
    """The child that asks, and the root, have less time than the question is open; a sibling that works has not."""
    script = {
        "root": [
            [
                task("asks", budget={"seconds": 3.0}, description="asks"),
                task("hangs", budget={"seconds": 3.0}, description="hangs"),
            ],
            "done",
        ],
        "asks": [cell("1"), "answer"],
        "hangs": [[asyncio.Event()]],
    }
    asked, hanging = [], []

    def rule(request):
        if request.call.kind == "spawn":
            return Decision(allowed=True)
        asked.append(request)
        return None

    async with make(script) as agent:

        def on_event(event):
            if event.depth == 1 and type(event).__name__ == "AgentFinished":
                hanging.append(event)
                asyncio.get_running_loop().call_later(1.0, lambda: [request.approve() for request in asked])

        events, result = await asyncio.wait_for(read(agent.run("root", budget=Budget(seconds=3.5)), rule, on_event), 120)
    ends = finished(events)
    assert (ends["hangs"].status, ends["asks"].status, result.status) == ("timeout", "completed", "completed")


@pytest.mark.slow
async def test_a_child_that_waits_for_its_turn_has_its_time_before_it(make):
    silent = asyncio.Event()
    script = {
        "root": [[task("first"), task("second", budget={"seconds": 2.0}, description="waits")], "done"],
        "first": [["x", silent]],
        "second": ["fine"],
    }
    async with make(script, config={"mode": "full", "subagents": {"max_concurrent": 1}}) as agent:
        begun = []

        def on_event(event):
            if type(event).__name__ == "AgentStarted" and event.depth:
                begun.append(event)
                if len(begun) == 2:
                    asyncio.get_running_loop().call_later(2.5, silent.set)

        events, _ = await asyncio.wait_for(read(agent.run("root"), on_event=on_event), 120)
    assert finished(events)["waits"].status == "completed"
