"""A model that falls silent in the middle of an answer is asked once more, then it has failed."""

import asyncio

import anyio
import pytest
from pydantic_ai.exceptions import ModelConnectionError
from support.agents import read
from support.chat_server import ChatCall, ChatServer
from support.virtual_time import in_virtual_time, passes

from freeact_sub import Agent, Config
from freeact_sub.models.sending import Silence
from freeact_sub.testing import FakeKernelProvider

pytestmark = pytest.mark.usefixtures("allow_model_requests")


def agent_of(server, tmp_path, **settings):
    config = Config(workspace=tmp_path, model="openai-chat:local", base_url=server.base_url, mode="full", **settings)
    return Agent(config, kernel_provider=FakeKernelProvider())


@pytest.mark.parametrize("begun", [["some words "], [ChatCall("execute_ipython_cell", {"code": "print('never')"})]])
@in_virtual_time
async def test_a_stream_that_falls_silent_is_asked_for_once_more(begun, tmp_path):
    replies = [[*begun, asyncio.Event()], ["It is 42."]]
    async with ChatServer(lambda _: replies.pop(0)) as server, agent_of(server, tmp_path, stall_seconds=4) as agent:
        _, result = await asyncio.wait_for(read(agent.run("go")), 120)
    assert (result.status, result.output, len(server.requests)) == ("completed", "It is 42.", 2)
    assert result.usage.estimated_requests == 1
    assert server.given_up == 1, "the silent connection is closed"


@in_virtual_time
async def test_one_that_falls_silent_again_and_again_has_failed_and_says_so(tmp_path):
    async with (
        ChatServer(lambda _: ["words ", asyncio.Event()]) as server,
        agent_of(server, tmp_path, stall_seconds=40) as agent,
    ):
        _, result = await asyncio.wait_for(read(agent.run("go")), 200)
    assert (result.status, len(server.requests)) == ("failed", 3)
    assert "local: nothing came for 40 seconds in the middle of an answer (setting `stall_seconds`)" in result.error
    assert result.text == "words ", "what there was is kept"
    assert result.usage.estimated_requests == 3


@in_virtual_time
async def test_silence_before_the_first_piece_is_no_stall(tmp_path):
    released = asyncio.Event()
    async with (
        ChatServer(lambda _: [released, "It is 42."]) as server,
        agent_of(server, tmp_path, stall_seconds=4) as agent,
    ):
        asyncio.get_running_loop().call_later(5, released.set)
        _, result = await read(agent.run("go"))
    assert (result.output, len(server.requests)) == ("It is 42.", 1)


@in_virtual_time
async def test_a_reader_that_is_slow_is_no_stall(tmp_path):
    """Nobody waits for the model then."""
    async with (
        ChatServer(lambda _: ["word "] * 40) as server,
        agent_of(server, tmp_path, stall_seconds=4, event_buffer=1) as agent,
        agent.run("go") as run,
    ):
        slept = False
        async for event in run:
            if event.seq == 5 and not slept:
                slept = True
                await passes(5)
        result = await run.result()
    assert (result.status, len(server.requests)) == ("completed", 1)


async def is_cancelled(listen):
    """Whether it ends as cancelled when it is cancelled after two seconds."""
    listening = asyncio.create_task(listen())
    await passes(2)
    listening.cancel()
    await asyncio.wait({listening})
    return listening.cancelled()


@in_virtual_time
async def test_a_stall_leaves_no_cancel_behind_and_a_cancel_is_no_stall():
    async def falls_silent():
        yield 1
        await asyncio.Event().wait()

    async def listen():
        async for _ in Silence("local", first_event_seconds=None, stall_seconds=4).watched(falls_silent()):
            pass

    with pytest.raises(ModelConnectionError):
        await listen()
    assert asyncio.current_task().cancelling() == 0
    with anyio.move_on_after(2) as scope:
        await listen()
    assert scope.cancelled_caught
    assert await is_cancelled(listen)


@in_virtual_time
async def test_a_cancelled_answer_whose_end_outlasts_the_limit_of_silence_is_cancelled():
    async def ends_slowly():
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            await passes(5)

    async def listen():
        async for _ in Silence("local", first_event_seconds=None, stall_seconds=4).watched(ends_slowly()):
            pass

    assert await is_cancelled(listen)


@in_virtual_time
async def test_the_time_for_the_first_piece_begins_when_a_request_is_sent(tmp_path):
    """Not while it waits for its turn."""
    released = asyncio.Event()

    def script(request):
        if request["messages"][-1]["role"] == "tool":
            return ["done"]
        if "child" in request["messages"][1]["content"]:
            return ["first ", released, "words"]
        return [ChatCall("task", {"prompt": f"child {n}"}, f"c{n}") for n in range(2)]

    limits = {"models": {"max_concurrent": 1}, "first_event_timeout_seconds": 5}
    async with ChatServer(script) as server, agent_of(server, tmp_path, **limits) as agent:
        asyncio.get_running_loop().call_later(8, released.set)
        _, result = await read(agent.run("go"))
    assert (result.status, result.tree_usage.turns) == ("completed", 4)
