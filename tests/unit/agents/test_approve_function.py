"""`Agent(approve=...)`: a function of the program answers before anybody else; and `Agent(store=...)`."""

import pytest
from support.agents import cell, task
from support.memory_store import MemoryStore
from support.tables import each
from support.waiting import turns

from freeact_sub import (
    Agent,
    ApprovalDecided,
    ApprovalRequest,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    Decision,
    ResponseChunk,
)

CELLS = [[cell(str(number))] for number in range(3)]


async def not_one(request):
    await turns()
    return request.call.code != "1"


def by_itself(request):
    request.approve()


@each(
    ("approve", "ran", "asked", "words"),
    [
        (lambda _: True, "012", 3, ""),
        (lambda _: False, "", 3, "the program says no"),
        (lambda _: None, "", 3, "nobody is there to answer"),
        (lambda _: Decision(allowed=False, reason="not today"), "", 3, "not today"),
        (lambda _: Decision(allowed=True, remember="session"), "012", 1, ""),
        (lambda _: Decision(allowed=True, code="7"), "777", 3, ""),
        (lambda _: Decision(allowed=True, model="small"), "", 3, "does not offer the model"),
        (not_one, "02", 3, "the program says no"),
        (by_itself, "012", 3, ""),
        (lambda _: "yes", "", 3, "it returned 'yes'"),
        (lambda _: 1 / 0, "", 3, "ZeroDivisionError"),
    ],
)
async def test_the_function_answers_also_where_nobody_reads(make, approve, ran, asked, words):
    events = []
    async with make([*CELLS, "ok"], config={"mode": "ask"}, approve=approve, taps=[events.append]) as agent:
        result = await agent.run("go")
    assert result.status == "completed"
    assert "".join(event.text for event in events if isinstance(event, CodeExecutionOutput)) == ran
    requests = [event for event in events if isinstance(event, ApprovalRequest)]
    decided = [event for event in events if isinstance(event, ApprovalDecided)]
    assert len(requests) == len(decided) == asked
    assert all(request.seq < answer.seq for request, answer in zip(requests, decided, strict=True))
    assert any(words in event.reason for event in decided)


async def test_a_reader_is_asked_what_the_function_leaves_open_and_children_ask_it_too(make):
    heard = []

    def approve(request):
        heard.append((request.call.kind, request.depth))
        return True if request.depth else None

    script = {"go": [[task("sub")], "done"], "sub": [[cell("1")], "sub done"]}
    async with make(script, config={"mode": "ask"}, approve=approve) as agent:
        left = []
        async for event in agent.run("go"):
            if isinstance(event, ApprovalRequest) and not event.headless:
                left.append(event.call.kind)
                event.approve()
    assert ("code", 1) in heard
    assert left == [kind for kind, depth in heard if depth == 0] != []


@pytest.mark.features("sessions")
async def test_a_store_is_an_object_of_the_program(make, tmp_path):
    store = MemoryStore(tmp_path / "store")
    async with make(["ok"], session="new", store=store) as agent:
        await agent.run("remember me")
        found, session = agent.sessions, agent.session_id
    assert found is store
    assert [stored.session_id for stored in store.sessions()] == [session]
    again = Agent.resume(session, agent.config, store=store, model=agent.scripted, kernel_provider=agent.provider)
    assert "remember me" in str(again.history[0])


async def test_the_text_of_an_event_has_one_name(make):
    events = []
    async with make([[cell("print('a'); 5")], "ok"], config={"mode": "full"}, taps=[events.append]) as agent:
        await agent.run("go")
    pieces = {
        kind: "".join(event.text for event in events if isinstance(event, kind))
        for kind in {type(e) for e in events}
        if hasattr(kind, "text")
    }
    assert pieces[CodeExecutionOutputChunk].replace("\n", "") in ("a5", "a")
    assert pieces[ResponseChunk] == "ok"
    with_text = {type(event).__name__ for event in events if hasattr(event, "text")}
    assert with_text >= {
        "ResponseChunk",
        "Response",
        "CodeExecutionOutputChunk",
        "CodeExecutionOutput",
        "ToolOutput",
        "AgentFinished",
    }
