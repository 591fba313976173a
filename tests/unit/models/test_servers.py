"""Servers as they are, over real HTTP: refusals with a time to wait, broken connections, full contexts, silence."""

import asyncio
import json
import time
from pathlib import Path

import pytest
from support.agents import of_kind, read
from support.chat_server import ChatCall, ChatServer, Drop, HttpError
from support.tables import each

from freeact_sub import Agent, Budget, Config
from freeact_sub.events import CodeExecutionOutput, Compacted, Response
from freeact_sub.models.observers import RequestState, watch
from freeact_sub.testing import FakeKernelProvider

pytestmark = pytest.mark.usefixtures("allow_model_requests")

OVERFLOW = HttpError(
    400,
    "the request exceeds the available context size, try increasing it",
    body={"type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 4096},
)


def agent_of(server, tmp_path, *, output_type=str, **settings):
    config = Config(workspace=tmp_path, model="openai-chat:local", base_url=server.base_url, mode="full", **settings)
    return Agent(config, kernel_provider=FakeKernelProvider(), output_type=output_type)


def turns_of(request):
    return sum(message["role"] == "assistant" for message in request["messages"])


def in_order(*replies):
    """A script by request, not by turn: the first reply to the first request, whatever was asked."""
    waiting = list(replies)
    return lambda _: waiting.pop(0)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_names_a_time_to_wait_is_asked_again_then(status, tmp_path):
    refusal = HttpError(status, "later", headers={"Retry-After": "1"})
    async with ChatServer(in_order(refusal, ["It is 42."])) as server, agent_of(server, tmp_path) as agent:
        began = time.monotonic()
        _, result = await read(agent.run("go"))
    assert (result.status, result.output) == ("completed", "It is 42.")
    assert time.monotonic() - began >= 1
    assert result.usage.turns == 1


async def test_a_stream_that_breaks_is_asked_for_once_more(tmp_path):
    broken = ["I run:\n", "```python\nprint('never')", Drop()]
    whole = ["I run it:\n```python\nprint(42)\n```"]
    async with (
        ChatServer(in_order(broken, whole, ["It is 42."])) as server,
        agent_of(server, tmp_path, code_actions="block") as agent,
    ):
        events, result = await read(agent.run("Print 42."))
        answers = [part.content for message in agent.history if message.kind == "response" for part in message.parts[:1]]
    assert (result.status, result.output) == ("completed", "It is 42.")
    assert [event.text for event in of_kind(events, CodeExecutionOutput)] == ["42"]
    assert [event.content for event in of_kind(events, Response)] == ["I run:\n", "I run it:\n", "It is 42."]
    assert answers == ["I run it:\n", "It is 42."]
    assert len(server.requests) == 3


async def test_text_held_back_of_a_broken_reply_is_not_shown_as_that_of_an_empty_one(tmp_path):
    broken = ["I run:\n", "```python\nprint('never')", Drop()]
    async with (
        ChatServer(in_order(broken, [], ["It is 42."])) as server,
        agent_of(server, tmp_path, code_actions="block") as agent,
    ):
        events, result = await read(agent.run("Print 42."))
    assert (result.status, result.output, len(server.requests)) == ("completed", "It is 42.", 3)
    assert [event.content for event in of_kind(events, Response)] == ["I run:\n", "It is 42."]


async def test_a_call_that_breaks_off_is_not_run(tmp_path):
    broken = [ChatCall("execute_ipython_cell", {"code": "print('twice')"}), Drop()]
    whole = [ChatCall("execute_ipython_cell", {"code": "print('once')"})]
    async with ChatServer(in_order(broken, whole, ["Done."])) as server, agent_of(server, tmp_path) as agent:
        events, result = await read(agent.run("go"))
    assert result.output == "Done."
    assert [event.text for event in of_kind(events, CodeExecutionOutput)] == ["once"]


@pytest.mark.slow
async def test_a_stream_that_breaks_again_and_again_fails(tmp_path):
    async with (
        ChatServer(lambda _: ["half", Drop()]) as server,
        agent_of(server, tmp_path, rate_limit_seconds=1) as agent,
    ):
        _, result = await read(agent.run("go"))
    assert result.status == "failed"
    assert "model request failed" in result.error
    assert len(server.requests) == 3


async def test_older_outputs_are_shortened_when_the_context_is_full(tmp_path):
    def script(request):
        turn = turns_of(request)
        if turn < 3:
            return [ChatCall("execute_ipython_cell", {"code": f"print('{turn}' * 3000)"})]
        return OVERFLOW if sum(len(str(message["content"])) for message in request["messages"]) > 7000 else ["Done."]

    async with ChatServer(script) as server, agent_of(server, tmp_path) as agent:
        _, result = await read(agent.run("go"))
        kept = [len(part.content) for message in agent.history if message.kind == "request" for part in message.parts]
    assert (result.status, result.output) == ("completed", "Done.")
    sizes = [len(message["content"]) for message in server.requests[-1]["messages"] if message["role"] == "tool"]
    assert sizes[0] == sizes[1] < 600
    assert sizes[2] == 3000
    assert "left out to make room" in server.requests[-1]["messages"][3]["content"]
    assert kept[-3:] == [*sizes[:2], 3000]
    assert len(server.requests) == 5


async def test_the_newest_output_is_shortened_last_and_a_file_has_it_whole(tmp_path):
    def script(request):
        if turns_of(request) == 0:
            return [ChatCall("execute_ipython_cell", {"code": "print('x' * 9000)"})]
        return OVERFLOW if len(request["messages"][-1]["content"]) > 2000 else ["Done."]

    async with ChatServer(script) as server, agent_of(server, tmp_path) as agent:
        _, result = await read(agent.run("go"))
        note = server.requests[-1]["messages"][-1]["content"]
        assert "x" * 9000 in Path(note.rpartition("all of the output is in ")[2].rstrip("]")).read_text()
    assert result.output == "Done."
    assert len(server.requests) == 3


@pytest.mark.parametrize("typed", [False, True], ids=["text", "value"])
async def test_a_request_that_was_refused_keeps_all_but_the_outputs(typed, tmp_path):
    def script(request):
        if turns_of(request) == 0:
            return [ChatCall("execute_ipython_cell", {"code": "print('x' * 9000)"})]
        if len(request["messages"][-1]["content"]) > 6000:
            return OVERFLOW
        return [ChatCall("final_result", {"response": 42})] if typed else ["42"]

    async with ChatServer(script) as server, agent_of(server, tmp_path, output_type=int if typed else str) as agent:
        events, result = await read(agent.run("go"))
    assert (result.status, str(result.output)) == ("completed", "42")
    refused, accepted = server.requests[-2:]
    assert {**refused, "messages": None} == {**accepted, "messages": None}
    assert [message for message in refused["messages"] if message["role"] != "tool"] == [
        message for message in accepted["messages"] if message["role"] != "tool"
    ]
    [compacted] = of_kind(events, Compacted)
    assert compacted.outputs == 1


async def test_a_refused_report_at_a_limit_is_asked_for_again(tmp_path):
    def script(request):
        if turns_of(request) == 0:
            return [ChatCall("execute_ipython_cell", {"code": "print('x' * 9000)"})]
        assert "Your budget is used up" in str(request["messages"])
        return OVERFLOW if len(request["messages"][-1]["content"]) > 6000 else ["My report."]

    async with ChatServer(script) as server, agent_of(server, tmp_path) as agent:
        _, result = await read(agent.run("go", budget=Budget(turns=1)))
    assert (result.status, result.text) == ("limit", "My report.")


async def test_outputs_become_notes_where_a_small_context_leaves_no_room(tmp_path):
    listed = [{"id": "local", "object": "model", "owned_by": "x", "meta": {"n_ctx": 4096}}]
    letters = iter("abc")

    def script(request):
        if "tools" not in request:
            return ["The letters were printed."]
        letter = next(letters, None)
        return [ChatCall("execute_ipython_cell", {"code": f"print('{letter}' * 9000)"})] if letter else ["Done."]

    async with ChatServer(script, models=listed) as server, agent_of(server, tmp_path, code_actions="tool") as agent:
        _, result = await read(agent.run("go"))
    assert result.output == "Done."
    assert max(len(json.dumps(request["messages"])) for request in server.requests) < 4096 * 3
    contents = [message["content"] for message in server.requests[-1]["messages"] if message["role"] == "tool"]
    assert "all of the output is in" in contents[-1]
    assert len(contents[-1]) > 1000, "the newest keeps more than a line"


async def test_a_context_that_stays_too_small_ends_the_run_clearly(tmp_path):
    async with ChatServer(lambda _: OVERFLOW) as server, agent_of(server, tmp_path) as agent:
        _, result = await read(agent.run("go"))
    assert result.status == "failed"
    assert result.error.startswith("the conversation does not fit into the model's context of 4,096 tokens")
    assert len(server.requests) == 1


async def test_a_stream_without_usage_is_estimated_and_marked(tmp_path):
    async with ChatServer(lambda _: ["It is 42."], usage=False) as server, agent_of(server, tmp_path) as agent:
        _, result = await read(agent.run("go"))
    assert (result.status, result.output) == ("completed", "It is 42.")
    assert (result.usage.turns, result.usage.estimated_requests) == (1, 1)
    assert result.usage.output_tokens >= 3
    assert "tokens at least " in str(result.usage)


async def test_a_server_that_stays_silent_is_given_up(tmp_path):
    async with (
        ChatServer(lambda _: [asyncio.Event()]) as server,
        agent_of(server, tmp_path, first_event_timeout_seconds=0.5) as agent,
    ):
        _, result = await read(agent.run("go"))
    assert result.status == "failed"
    assert "timed out after 0.5 seconds without producing any output" in result.error


@pytest.mark.slow
async def test_a_reply_that_is_held_back_counts_as_an_answer(tmp_path):
    """It begins like a call, so nothing of it can be shown; the clock for the first event has stopped all the same."""
    released = asyncio.Event()
    reply = ["```python\n", released, "print(42)\n```"]
    async with (
        ChatServer(in_order(reply, ["It is 42."])) as server,
        agent_of(server, tmp_path, first_event_timeout_seconds=5, code_actions="block") as agent,
    ):
        asyncio.get_running_loop().call_later(6, released.set)
        _, result = await read(agent.run("Print 42."))
    assert (result.status, result.output) == ("completed", "It is 42.")


async def test_progress_is_told(tmp_path):
    told: list[RequestState] = []
    async with ChatServer(in_order(["a ", Drop()], ["It ", "is ", "42."])) as server, agent_of(server, tmp_path) as agent:
        with watch(lambda meter: told.append(meter.state)):
            await read(agent.run("go"))
    assert told[0].first_event_seconds is None
    assert [progress.attempt for progress in told] == sorted(progress.attempt for progress in told)
    last = told[-1]
    assert last.attempt == 2
    assert last.pieces >= 3
    assert last.first_event_seconds <= last.seconds
    assert last.pieces_per_second > 0


@each(
    ("models", "settings", "small"),
    [
        ([{"id": "other", "meta": {"n_ctx": 131072}}, {"id": "local", "meta": {"n_ctx": 16384}}], {}, True),
        ([{"id": "/models/file.gguf", "meta": {"n_ctx": 4096}}], {}, True),
        ([{"id": "local", "max_model_len": 8192}], {}, True),
        ([{"id": "local", "meta": {"n_ctx": 32768}}], {}, False),
        ([{"id": "local", "meta": {"n_ctx": 4096}}], {"profile": "full"}, False),
        ([{"id": "local"}], {}, False),
        ([], {}, False),
        ([], {"profile": "small"}, True),
    ],
)
async def test_the_small_profile_is_chosen_where_the_server_tells_of_a_small_context(models, settings, small, tmp_path):
    acting = {"code_actions": "tool", **settings}
    async with ChatServer(lambda _: ["Done."], models=models) as server, agent_of(server, tmp_path, **acting) as agent:
        _, result = await read(agent.run("go"))
    assert result.output == "Done."
    # with it, `auto` is `block` from the first request on
    async with (
        ChatServer(lambda _: ["Done."], models=models) as server_of_auto,
        agent_of(server_of_auto, tmp_path, **settings) as agent,
    ):
        await read(agent.run("go"))
    assert ("tools" not in server_of_auto.requests[0]) == small
    tools = {tool["function"]["name"]: tool["function"] for tool in server.requests[0]["tools"]}
    assert (list(tools["task"]["parameters"]["properties"]) == ["prompt"]) is small
    if small:
        told = len(json.dumps(server.requests[0]["tools"])) + len(server.requests[0]["messages"][0]["content"])
        assert told < 900 * 3  # characters; a token of English and JSON has more than three of them


async def test_agents_that_begin_at_once_act_alike(tmp_path):
    listed = [{"id": "local", "meta": {"n_ctx": 4096}}]
    async with ChatServer(lambda _: ["Done."], models=listed) as server, agent_of(server, tmp_path) as agent:
        results = await agent.run_parallel(["a", "b", "c"])
    assert [result.status for result in results] == ["completed"] * 3
    assert ["tools" in request for request in server.requests] == [False] * 3


async def test_the_small_profile_is_small_with_blocks_too(tmp_path):
    settings = {"profile": "small", "code_actions": "block"}
    async with ChatServer(lambda _: ["Done."]) as server, agent_of(server, tmp_path, **settings) as agent:
        await read(agent.run("go"))
    assert "tools" not in server.requests[0]
    assert len(server.requests[0]["messages"][0]["content"]) < 900 * 3
