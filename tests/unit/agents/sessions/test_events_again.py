"""A stored session is told again as the events of its runs."""

import pytest
from support.agents import cell, read, task
from support.sessions import as_after_a_crash

from freeact_sub import SessionError, session_events
from freeact_sub.events import (
    AgentFinished,
    AgentStarted,
    ApprovalRequest,
    CodeExecutionOutputChunk,
    ResponseChunk,
    ThoughtsChunk,
)

PIECES = (ResponseChunk, ThoughtsChunk, CodeExecutionOutputChunk)


def told(events):
    """Each event by what it says, without output, whose pieces are joined."""
    return [event for event in events if not isinstance(event, PIECES)]


async def test_the_events_are_those_of_the_runs(make, store):
    script = {"root": [["I compute.", cell("6 * 7")], [task("child")], "done"], "child": [[cell("1")], "one"]}
    async with make(script, session="new") as agent:
        first, _ = await read(agent.run("root"))
        await agent.debug.root.shared.journal.committed()
        assert told(session_events(agent.session_id, store=store)) == told(first), "while it is open"
        second, _ = await read(agent.run("root"))
    again = [*session_events(agent.session_id[:-2], store=store)]
    assert told(again) == told([*first, *second])
    assert [event.output for event in again if isinstance(event, CodeExecutionOutputChunk)]
    assert told(session_events(agent.session_id, store=store, last_prompts=1)) == told(second)
    assert [*session_events(agent.session_id, store=store, last_prompts=0)] == []
    for more in (2, 3, 5):
        assert told(session_events(agent.session_id, store=store, last_prompts=more)) == told(again)
    with pytest.raises(SessionError, match="there is no session"):
        next(session_events("nobody", store=store))


async def test_what_was_undone_is_left_out_and_what_was_cut_off_has_its_end(make, store, tmp_path):
    async with make({"root": [[task("child")], "done"], "child": [[cell("1")], "one"]}, session="new") as agent:
        agent.keep_undo()
        await read(agent.run("gone"))
        await agent.undo()
        async with agent.run("root") as run:
            async for event in run:
                if isinstance(event, ApprovalRequest) and event.parent_id is not None:
                    crashed = await as_after_a_crash(agent, tmp_path / "crash")
                if isinstance(event, ApprovalRequest):
                    event.approve()
    again = [*session_events(agent.session_id, store=crashed)]
    assert [event.prompt for event in again if isinstance(event, AgentStarted)] == ["root", "child"]
    ends = [(event.depth, event.status, event.error) for event in again if isinstance(event, AgentFinished)]
    assert ends == [(1, "cancelled", "the program ended before it did"), (0, "cancelled", "the program ended before it did")]
