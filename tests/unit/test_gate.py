"""Rules and the gate."""

import asyncio

import pytest

from freeact_sub.approvals import Gate, Rules, decide, pattern_of
from freeact_sub.calls import CodeAction, McpCall, SpawnCall, ToolCall
from freeact_sub.channel import Emitter, EventChannel
from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.events import ApprovalAnswered, ApprovalRequest

CALLS = [
    CodeAction(code="1"),
    McpCall(server="a", tool="t"),
    McpCall(server="a", tool="u"),
    SpawnCall(prompt="p"),
    ToolCall(tool_name="mine"),
]


@pytest.mark.parametrize("default", ["ask", "allow", "deny"])
@pytest.mark.parametrize("call", CALLS)
def test_the_default_decides_where_nothing_else_does(call, default):
    assert decide(call, Rules(default=default)) == default


def test_what_was_allowed_always_covers_its_own_kind_only_and_never_beats_deny():
    for call in CALLS:
        rules = Rules(allowed=frozenset({pattern_of(call)}))
        assert [decide(other, rules) for other in CALLS] == ["allow" if other is call else "ask" for other in CALLS]
        assert decide(call, Rules(default="deny", allowed=rules.allowed)) == "deny"


def test_restarting_the_own_kernel_needs_no_question():
    assert decide(ToolCall(tool_name="reset_kernel"), Rules()) == "allow"
    assert decide(ToolCall(tool_name="reset_kernel"), Rules(default="deny")) == "deny"


@pytest.fixture
def channel():
    return EventChannel()


@pytest.fixture
def emitter(channel):
    return Emitter(channel=channel, agent_id="agent-1")


async def ask(gate, call, emitter, **kwargs):
    return asyncio.create_task(gate.check(call, emitter, path=("agent-1",), **kwargs))


async def test_questions_are_answered_in_any_order_each_by_its_own_event(channel, emitter):
    gate = Gate(Rules())
    calls = [CodeAction(code=str(number)) for number in range(20)]
    tasks = [await ask(gate, call, emitter, tool_call_id=call.code) for call in calls]
    requests = [await channel.receive() for _ in calls]
    for request in reversed(requests):
        assert request.tool_call_id == request.call.code
        assert request.approve() if int(request.call.code) % 2 else request.deny(f"no {request.call.code}")
        assert not request.approve(), "the first answer counts"
    for number, task in enumerate(tasks):
        await asyncio.wait({task})
        if number % 2:
            assert task.exception() is None
        else:
            assert task.exception().reason == f"no {number}"


async def test_a_cancelled_question_is_withdrawn_and_an_answer_comes_too_late(channel, emitter):
    task = await ask(Gate(Rules()), CALLS[0], emitter)
    request = await channel.receive()
    task.cancel()
    await asyncio.wait({task})
    answered = await channel.receive()
    assert isinstance(answered, ApprovalAnswered)
    assert (answered.request_id, answered.allowed) == (request.request_id, False)
    assert not request.approve()


async def test_always_answers_open_questions_of_the_same_kind_as_well(channel, emitter):
    gate = Gate(Rules())
    first, same, other = [await ask(gate, call, emitter) for call in (CALLS[0], CodeAction(code="2"), CALLS[3])]
    request = await channel.receive()
    request.approve(remember=True)
    await asyncio.wait_for(asyncio.gather(first, same), 5)
    await gate.check(CodeAction(code="3"), emitter, path=())
    assert not other.done()
    gate.abandon()
    with pytest.raises(ApprovalDeniedError, match="nobody"):
        await other


async def test_nobody_to_answer_means_no_and_never_a_hang(channel, emitter):
    gate = Gate(Rules())
    channel.abandon()
    with pytest.raises(ApprovalDeniedError, match="nobody"):
        await asyncio.wait_for(gate.check(CALLS[0], emitter, path=()), 5)


async def test_asking_stops_the_clock_that_is_given(channel, emitter):
    log: list[str] = []

    class Pause:
        def __enter__(self):
            log.append("stopped")

        def __exit__(self, *_):
            log.append("goes on")

    task = await ask(Gate(Rules()), CALLS[0], emitter, pause=Pause())
    request: ApprovalRequest = await channel.receive()
    assert log == ["stopped"]
    request.approve()
    await task
    assert log == ["stopped", "goes on"]
