"""A child's handle: what it says, how it is stored, and what another program finds out with it."""

import asyncio
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ToolCallPart
from support.sessions import as_after_a_crash
from support.tables import each
from support.waiting import eventually

from freeact_sub import Agent, Budget, ChildRecord, ChildRequest, SessionError, depth_of, parent_of
from freeact_sub.testing import first_prompt

READER = """
import sys
from freeact_sub import ChildRecord
print(ChildRecord.from_json(sys.stdin.read()).renewed().to_json())
"""


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """The user has no sessions."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def elsewhere(record, **environment):
    """The record as another program renews it."""
    done = subprocess.run(
        [sys.executable, "-c", READER],
        input=record.to_json(),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environment,
        timeout=120,
    )
    return ChildRecord.from_json(done.stdout)


def turns(messages, _info):
    """What children answer to their prompts."""
    prompt = first_prompt(messages)
    if prompt.startswith("loop"):
        return [ToolCallPart("execute_ipython_cell", {"code": "1"})]
    if prompt.startswith("fail"):
        return RuntimeError("the server is gone")
    return f"the answer to {prompt}"


ENDS = {
    "an answer": (ChildRequest(prompt="one"), "completed", "", "the answer to one"),
    "an answer that is not ASCII": (
        ChildRequest(prompt="zwölf ☃\n", description="Größe"),
        "completed",
        "",
        "the answer to zwölf ☃\n",
    ),
    "a failure": (ChildRequest(prompt="fail now"), "failed", "the server is gone", ""),
    "a limit": (ChildRequest(prompt="loop", budget=Budget(turns=1)), "limit", "the limit of turns is reached", ""),
}


@each("case", ENDS)
@pytest.mark.parametrize("session", [None, pytest.param("new", marks=pytest.mark.features("sessions"))])
@pytest.mark.process
async def test_a_handle_tells_task_and_end_here_and_elsewhere(make, case, session):
    request, status, error, output = ENDS[case]
    config = {"mode": "full", "subagents": {"salvage": False}}
    async with make(turns, config=config, session=session) as agent:
        child = await agent.spawn(request)
        before = child.record
        assert (child.task, child.description, child.error, child.ended) == (request.prompt, request.description, "", None)
        assert not before.has_ended
        result = await child.result()
        after = child.record
    assert child.ended is result
    assert (child.status, after.status, after.output) == (status, status, output)
    assert error in child.error
    assert bool(child.error) == bool(error)
    assert (after.error, after.task, after.agent_id) == (child.error, request.prompt, child.agent_id)
    assert (depth_of(after.key), parent_of(after.key)) == (1, f"agent:{agent.agent_id}")
    assert ChildRecord.from_json(before.to_json()) == before
    if session is None:
        with pytest.raises(SessionError, match="without a session"):
            before.renewed()
        return
    assert before.renewed() == after
    if not before.task.isascii():  # one other program is enough
        assert await asyncio.to_thread(elsewhere, before) == after


@pytest.mark.slow
async def test_a_child_whose_program_was_killed_is_interrupted(make, tmp_path):
    go = asyncio.Event()
    async with make(lambda *_: [go, "late"], session="new") as agent:
        child = await agent.spawn("wait")
        await eventually(lambda: child.status == "running")
        await as_after_a_crash(agent, tmp_path / "crashed")
        found = await asyncio.to_thread(elsewhere, child.record, XDG_STATE_HOME=str(tmp_path / "crashed"))
        assert (found.status, found.error) == ("interrupted", "its program ended before it")
        assert (await asyncio.to_thread(elsewhere, child.record)).status == "running"  # its program is here
        go.set()
        await child.result()
        assert child.record.output == "late"


@pytest.mark.features("sessions")
async def test_each_handle_stands_for_its_own_run(make):
    def answers(messages, _info):
        return f"answer {sum(message.kind == 'response' for message in messages) + 1}"

    async with make(answers, session="new") as agent:
        first = await agent.spawn("one")
        await first.result()
        again = await agent.spawn(ChildRequest(prompt="and now?", resume=first.agent_id))
        await again.result()
    records = [handle.record.renewed() for handle in (first, again)]
    assert [(record.agent_id, record.run, record.output) for record in records] == [
        (first.agent_id, 1, "answer 1"),
        (first.agent_id, 2, "answer 2"),
    ]


@pytest.mark.features("sessions")
async def test_a_stored_child_is_resumed_in_another_session_of_work(make, tmp_path):
    async with make(turns, session="new") as agent:
        child = await agent.spawn("one")
        await child.result()
        line = child.record.to_json()
    record = ChildRecord.from_json(line).renewed()
    again = Agent.resume(record.session_id, agent.config, model=agent.scripted, kernel_provider=agent.provider)
    async with again:
        result = await again.spawn_and_run(ChildRequest(prompt="two", resume=record.agent_id))
    assert (result.status, result.agent_id) == ("completed", child.agent_id)


@pytest.mark.features("sessions")
async def test_a_session_that_is_gone_is_said(make):
    async with make(turns, session="new") as agent:
        child = await agent.spawn("one")
        await child.result()
    with pytest.raises(SessionError, match="there is no session"):
        ChildRecord.from_json(child.record.to_json().replace(agent.session_id, "19990101-000000-none")).renewed()


@given(st.text(), st.text(), st.sampled_from(["running", "completed", "kernel_lost", "interrupted"]))
def test_any_record_is_the_same_after_it_was_stored(task, output, status):
    record = ChildRecord(agent_id="agent-1", key="agent:a:subagent:b", task=task, output=output, status=status)
    line = record.to_json()
    assert "\n" not in line
    assert ChildRecord.from_json(line) == record


@each(
    "line",
    [
        "",
        "x",
        "[]",
        "null",
        "{}",
        '{"agent_id": 1}',
        json.dumps({"agent_id": "a", "key": "k", "task": "t", "status": "well"}),
    ],
)
def test_a_line_that_is_no_record_is_an_error_with_the_reason(line):
    with pytest.raises(ValueError, match="not a record of a child"):
        ChildRecord.from_json(line)
