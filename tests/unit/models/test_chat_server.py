"""pydantic-ai's OpenAI chat model really talks to the chat server of the tests."""

import asyncio

import pytest
from pydantic_ai import (
    Agent,
    AgentRunResultEvent,
    PartDeltaEvent,
    PartStartEvent,
    RequestUsage,
    TextPartDelta,
    ToolCallPartDelta,
)
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from support.chat_server import INPUT_TOKENS, OUTPUT_TOKENS, ChatCall, ChatServer, Drop, HttpError, by_turn
from support.waiting import eventually

from freeact_sub.config.schema import Config
from freeact_sub.models import build_model

pytestmark = pytest.mark.usefixtures("allow_model_requests")


def agent_of(server: ChatServer) -> Agent:
    return Agent(build_model(Config(model="openai-chat:local", base_url=server.base_url)), retries=0)


async def test_text_and_tool_calls_are_streamed_in_pieces_and_usage_is_counted() -> None:
    replies = [
        ["Let me ", "add ", ChatCall("add", {"a": 17, "b": 25}), ChatCall("add", {"a": 1, "b": 1})],
        ["It is ", "42 ", "and 2."],
    ]
    async with ChatServer(by_turn(*replies)) as server, agent_of(server) as agent:

        @agent.tool_plain
        def add(a: int, b: int) -> int:
            return a + b

        async with agent.run_stream_events("What is 17 + 25?") as stream:
            events = [event async for event in stream]

    assert isinstance(events[-1], AgentRunResultEvent)
    result = events[-1].result
    assert result.output == "It is 42 and 2."
    assert (result.usage.requests, result.usage.tool_calls) == (2, 2)
    assert (result.usage.input_tokens, result.usage.output_tokens) == (2 * INPUT_TOKENS, 2 * OUTPUT_TOKENS)

    deltas = [event.delta for event in events if isinstance(event, PartDeltaEvent)]
    assert [delta.content_delta for delta in deltas if isinstance(delta, TextPartDelta)] == ["add ", "42 ", "and 2."]
    pieces = [delta.args_delta for delta in deltas if isinstance(delta, ToolCallPartDelta)]
    assert "".join(pieces) == '{"a": 17, "b": 25}{"a": 1, "b": 1}'
    assert len(pieces) == 6
    assert sum(isinstance(event, PartStartEvent) for event in events) == 4

    first, second = server.requests
    assert first["model"] == "local"
    assert [tool["function"]["name"] for tool in first["tools"]] == ["add"]
    assert [message["content"] for message in second["messages"] if message["role"] == "tool"] == ["42", "2"]


async def test_answers_without_streaming() -> None:
    async with ChatServer(by_turn([ChatCall("add", {"a": 1})], ["done"])) as server, agent_of(server) as agent:

        @agent.tool_plain
        def add(a: int) -> int:
            return a + 1

        result = await agent.run("go")
    assert result.output == "done"
    assert result.response.usage == RequestUsage(input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS)


async def test_conversations_run_side_by_side() -> None:
    def script(request: dict) -> list[str]:
        return [request["messages"][-1]["content"].upper()]

    async with ChatServer(script) as server, agent_of(server) as agent:
        results = await asyncio.gather(*(agent.run(f"prompt {number}") for number in range(5)))
    assert [result.output for result in results] == [f"PROMPT {number}" for number in range(5)]


async def test_an_http_error_reaches_the_client() -> None:
    async with ChatServer(lambda _: HttpError(400, "too much text")) as server, agent_of(server) as agent:
        with pytest.raises(ModelHTTPError, match="too much text") as caught:
            await agent.run("go")
    assert caught.value.status_code == 400


async def test_a_broken_connection_reaches_the_client() -> None:
    async with (
        ChatServer(lambda _: ["half an ans", Drop()]) as server,
        agent_of(server) as agent,
        agent.run_stream_events("go") as stream,
    ):
        with pytest.raises(ModelAPIError):
            [event async for event in stream]


async def test_silence_lasts_until_it_is_ended() -> None:
    released = asyncio.Event()
    async with ChatServer(lambda _: ["one ", released, "two"]) as server, agent_of(server) as agent:
        async with agent.run_stream_events("go") as stream:
            async for event in stream:
                if isinstance(event, PartStartEvent):
                    assert event.part.content == "one "
                    released.set()
        assert event.result.output == "one two"
        assert server.given_up == 0


async def test_who_leaves_during_silence_is_noticed() -> None:
    async with ChatServer(lambda _: [asyncio.Event()]) as server, agent_of(server) as agent:
        run = asyncio.create_task(agent.run("go"))
        await eventually(lambda: server.requests)
        run.cancel()
        await eventually(lambda: server.given_up == 1)
        assert (await asyncio.gather(run, return_exceptions=True))[0].__class__ is asyncio.CancelledError


async def test_other_paths_are_not_there() -> None:
    async with ChatServer(lambda _: ["never"]) as server:
        model = build_model(Config(model="openai-chat:local", base_url=server.base_url + "/other"))
        async with Agent(model, retries=0) as agent:
            with pytest.raises(ModelHTTPError, match="no such path: /v1/other/chat/completions"):
                await agent.run("go")
    assert server.requests == []
