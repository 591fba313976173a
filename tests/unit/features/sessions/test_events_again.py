"""A stored session is told again as the events of its runs."""

import pytest
from pydantic_ai.messages import ToolCallPart
from support.agents import cell, read, task
from support.sessions import as_after_a_crash

from freeact_sub import SessionError, session_events
from freeact_sub.events import (
    AgentFinished,
    AgentStarted,
    ApprovalDecided,
    ApprovalRequest,
    Cancelled,
    CodeExecutionOutputChunk,
    QuestionAnswered,
    QuestionRequest,
    ResponseChunk,
    ThoughtsChunk,
)
from freeact_sub.export import export_session
from freeact_sub.notebook.display import read_stored

PIECES = (ResponseChunk, ThoughtsChunk, CodeExecutionOutputChunk)

CHOICE = {"question": "Which database?", "choices": ["a", "b"]}
ASKED = {
    "a cell": [[cell("1")], "done"],
    "an answer": [[ToolCallPart("ask_user", {"questions": [CHOICE]})], "done"],
    "a child": [[task("a cell of the child")], "done"],
    "two cells": [[task("a cell of the child"), cell("2")], "done"],
}


def told(events):
    """Each event by what it says, without output, whose pieces are joined."""
    return [event for event in events if not isinstance(event, PIECES)]


async def test_the_events_are_those_of_the_runs(make, store):
    script = {"root": [["I compute.", cell("6 * 7")], [task("child")], "done"], "child": [[cell("1")], "one"]}
    async with make(script, session="new") as agent:
        first, _ = await read(agent.run("root"))
        await agent.debug.root.shared.features.named("sessions").journal.committed()
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


@pytest.mark.process
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


def questions_and_ends(events):
    """The ids of open questions, and the events that close one or an agent."""
    asked = {event.request_id for event in events if isinstance(event, ApprovalRequest | QuestionRequest)}
    closed = [event for event in events if isinstance(event, ApprovalDecided | QuestionAnswered)]
    return asked - {event.request_id for event in closed}, closed


@pytest.mark.parametrize("asks", ASKED)
async def test_a_question_that_a_kill_left_open_is_closed_wherever_the_session_is_drawn(asks, make, store, tmp_path):
    script, asked = {"a cell of the child": [[cell("3")], "one"], **ASKED}, []
    async with make(script, session="new") as agent, agent.run(asks) as run:
        async for event in run:
            if isinstance(event, ApprovalRequest) and event.call.kind == "spawn":
                event.approve()
            elif isinstance(event, ApprovalRequest | QuestionRequest):
                asked.append(event)
                if len(asked) == (2 if asks == "two cells" else 1):
                    crashed = await as_after_a_crash(agent, tmp_path / "crash")
                    break
    again = [*session_events(agent.session_id, store=crashed)]
    left, closed = questions_and_ends(again)
    assert not left
    assert closed[-1].reason == "the program ended before anybody answered"
    for event in closed:
        assert again.index(event) < next(
            place for place, end in enumerate(again) if isinstance(end, AgentFinished) and end.agent_id == event.agent_id
        )
    events, goes_on = read_stored(crashed, agent.session_id, None)
    assert (questions_and_ends(events)[0], goes_on) == (set(), False)
    assert "the program ended before anybody answered" in export_session(agent.session_id, "html", store=crashed)


@pytest.mark.parametrize("way", ["stream", "block", "dropped"])
async def test_the_record_of_a_run_whose_reader_has_left_is_whole(way, make, store):
    async with make({"root": [[cell("1")], "done"]}, session="new") as agent:

        async def leave(events):
            async for event in events:
                if isinstance(event, ApprovalRequest):
                    break

        match way:
            case "stream":
                await leave(agent.stream("root"))
            case "dropped":
                await leave(agent.run("root"))
            case _:
                async with agent.run("root") as run:
                    await leave(run)
    again = [*session_events(agent.session_id, store=store)]
    assert questions_and_ends(again)[0] == set()
    assert [event.error for event in again if isinstance(event, AgentFinished)] == ["the run was cancelled"]
    assert len([event for event in again if isinstance(event, Cancelled)]) == 1
