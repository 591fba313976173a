"""What a provider can read from its cache: each request begins, byte by byte, with the request before it."""

import asyncio
import itertools
import json
from decimal import Decimal

import pytest
from pydantic import BaseModel
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.usage import RequestUsage
from support.agents import finished, of_kind, read
from support.chat_server import ChatCall, ChatServer
from support.messages_server import MessagesServer, prompt_of
from support.tables import each
from support.waiting import eventually, turns

from freeact_sub import Agent, AgentStarted, Budget, Config, ToolOutput, UsageUpdated
from freeact_sub.agents.money import highest_price_of, price_of
from freeact_sub.export import export_events
from freeact_sub.models import build_model
from freeact_sub.testing import FakeKernelProvider

pytestmark = pytest.mark.usefixtures("allow_model_requests")

MODEL = "claude-sonnet-4-6"


def cells(number):
    """Some cells of one agent, one after another."""

    def script(request):
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        if turn < number:
            return [f"I run cell {turn}.", ChatCall("execute_ipython_cell", {"code": f"print('result {turn} ' * 30)"})]
        return ["That is all."]

    return script


def prompts(request):
    return json.dumps([message for message in request["messages"] if message["role"] == "user"])


def with_children(request):
    """A root that starts two children, each of which runs two cells."""
    turn = sum(message["role"] == "assistant" for message in request["messages"])
    if "part of the work" in json.dumps(request["messages"][:2]) and "Split it" not in json.dumps(request["messages"][:2]):
        return cells(2)(request)
    if turn < 2:
        return [ChatCall("task", {"prompt": f"part of the work, number {turn}", "description": f"part {turn}"})]
    return ["Both have ended."]


def two_calls(request):
    turn = sum(message["role"] == "assistant" for message in request["messages"])
    if turn < 3:
        return [ChatCall("execute_ipython_cell", {"code": f"{turn} + {number}"}) for number in range(2)]
    return ["Done."]


def wrong_calls(request):
    """Calls of a tool that does not exist and with wrong arguments: pydantic-ai's graph goes on with the conversation."""
    turn = sum(message["role"] == "assistant" for message in request["messages"])
    calls = [
        ChatCall("no_such_tool", {}),
        ChatCall("execute_ipython_cell", {"cod": 1}),
        ChatCall("execute_ipython_cell", {"code": "1"}),
    ]
    return [calls[turn]] if turn < len(calls) else ["Done."]


class Sum(BaseModel):
    total: int


def typed(request):
    turn = sum(message["role"] == "assistant" for message in request["messages"])
    if turn < 2:
        return [ChatCall("execute_ipython_cell", {"code": f"{turn}"})]
    return [ChatCall("final_result", {"total": 3})]


SITUATIONS = {
    "cells": (cells(4), {}),
    "children": (with_children, {}),
    "several calls at once": (two_calls, {}),
    "mistakes": (wrong_calls, {}),
    "a typed answer": (typed, {"output_type": Sum}),
}


@pytest.fixture(params=["anthropic", "openai"])
def server_and_agent(request, tmp_path, monkeypatch):
    """Makes a server and an agent whose model asks it."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")

    def make(script, *, config=None, **options):
        anthropic = request.param == "anthropic"
        server = (MessagesServer if anthropic else ChatServer)(script)

        def agent():
            model = f"anthropic:{MODEL}" if anthropic else "openai-chat:gpt-5.2"
            settings = {"mode": "full", "model": model, "base_url": server.base_url, **(config or {})}
            return Agent(Config(workspace=tmp_path, **settings), kernel_provider=FakeKernelProvider(), **options)

        return server, agent

    return make


def conversations(requests):
    """The requests of each agent, told apart by its first prompt."""
    found = {}
    for request in requests:
        first = next(message for message in request["messages"] if message["role"] == "user")
        found.setdefault(
            json.dumps(first["content"])[:200].replace(', "cache_control": {"type": "ephemeral"}', ""), []
        ).append(request)
    return [*found.values()]


def check_prefixes(requests):
    for conversation in conversations(requests):
        for before, after in itertools.pairwise(conversation):
            assert json.dumps(after.get("tools")) == json.dumps(before.get("tools"))
            assert json.dumps(after.get("system")) == json.dumps(before.get("system"))
            assert prompt_of(after).startswith(prompt_of(before))


@each("situation", SITUATIONS)
@pytest.mark.slow
async def test_each_request_begins_with_the_one_before(situation, server_and_agent):
    script, options = SITUATIONS[situation]
    server, agent = server_and_agent(script, **options)
    async with server, agent() as agent:
        for prompt in ("Split it.", "And once more."):
            _, result = await read(agent.run(prompt))
            assert (result.status, result.error) == ("completed", "")
    assert len(server.requests) >= 4
    check_prefixes(server.requests)


async def test_a_message_in_the_middle_of_a_run_comes_behind_what_was_sent(server_and_agent):
    server, agent = server_and_agent(cells(4))
    async with server, agent() as agent, agent.run("go") as run:
        await read(run, on_event=lambda event: event.type == "CodeExecutionOutput" and run.send("look again"))
    assert "look again" in prompts(server.requests[-1])
    check_prefixes(server.requests)


async def test_what_a_budget_has_left_is_not_told_in_front(server_and_agent):
    bounds = Budget(tokens=10_000_000, requests=50, seconds=3000, tool_calls=40)
    server, agent = server_and_agent(cells(4))
    async with server, agent() as agent:
        assert (await agent.run("go", budget=bounds).result()).status == "completed"
    check_prefixes(server.requests)


async def test_most_of_the_input_is_read_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    async with MessagesServer(cells(12)) as server:
        config = Config(workspace=tmp_path, mode="full", model=f"anthropic:{MODEL}", base_url=server.base_url)
        async with Agent(config, kernel_provider=FakeKernelProvider()) as agent:
            events, result = await read(agent.run("go"))
            shown = str(agent.usage)
    usage = result.usage
    read_tokens = sum(one["cache_read_input_tokens"] for one in server.usages)
    written = sum(one["cache_creation_input_tokens"] for one in server.usages)
    assert (usage.cache_read_tokens, usage.cache_write_tokens) == (read_tokens, written)
    assert usage.input_tokens == read_tokens + written
    assert read_tokens / usage.input_tokens > 0.85
    assert of_kind(events, UsageUpdated)[-1].usage.cache_read_tokens == read_tokens
    assert f"{read_tokens:,} read from the cache, {written:,} written to it" in shown
    for kind in ("html", "md", "ipynb"):
        assert f"{read_tokens:,} read from the cache" in export_events(events, kind)


async def test_a_cached_request_costs_what_the_provider_bills(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    async with MessagesServer(cells(2)) as server:
        config = Config(workspace=tmp_path, mode="full", model=f"anthropic:{MODEL}", base_url=server.base_url)
        async with Agent(config, kernel_provider=FakeKernelProvider()) as agent:
            result = await agent.run("go", budget=Budget(cost_usd=Decimal(100))).result()
    usage, million = result.usage, Decimal(1_000_000)
    plain = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
    dollars = plain * Decimal(3) + usage.cache_read_tokens * Decimal("0.30") + usage.cache_write_tokens * Decimal("3.75")
    assert usage.cost_usd == (dollars + usage.output_tokens * Decimal(15)) / million


def test_the_reserved_price_is_never_below_the_real_one(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    for name in (f"anthropic:{MODEL}", "anthropic:claude-opus-4-8", "openai-chat:gpt-5.2"):
        model = build_model(Config(model=name))
        most = highest_price_of(model)(10_000, 100)
        for cached in (
            {},
            {"cache_read_tokens": 9_000},
            {"cache_write_tokens": 9_999},
            {"cache_read_tokens": 1, "cache_write_tokens": 5_000},
        ):
            assert price_of(model)(RequestUsage(input_tokens=10_000, output_tokens=100, **cached)) <= most
    assert highest_price_of(build_model(Config(model=f"anthropic:{MODEL}")))(10_000, 0) == Decimal("0.0375")


async def test_a_question_that_stands_alone_is_not_written_to_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    async with MessagesServer(lambda _: ["7"]) as server:
        config = Config(workspace=tmp_path, mode="full", model=f"anthropic:{MODEL}", base_url=server.base_url)
        async with Agent(config, kernel_provider=FakeKernelProvider()) as agent:

            async def ask():
                return await asyncio.gather(agent.ask("one?"), agent.ask("more?", history=["one?", "yes"]))

            assert (await agent.run_program(ask).result()).status == "completed"
    kept = {prompts(request): "cache_control" in json.dumps(request) for request in server.requests}
    assert sorted(kept.values()) == [False, True]


@each(
    ("settings", "own", "wanted"),
    [
        ({}, {}, True),
        ({"cache": False}, {}, False),
        ({}, {"cache": False}, False),
        ({"anthropic_cache": False}, {}, False),
        ({"cache": "1h"}, {}, True),
        ({"cache": True}, {"cache": False}, True),
    ],
)
async def test_settings_count_more_than_the_default(settings, own, wanted, tmp_path, monkeypatch):
    """Those of `model_settings`, and those that a model object carries."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    async with MessagesServer(cells(1)) as server:
        config = Config(workspace=tmp_path, mode="full", model=f"anthropic:{MODEL}", base_url=server.base_url)
        model = AnthropicModel(
            MODEL, provider=AnthropicProvider(base_url=server.base_url, api_key="key"), settings=own or None
        )
        config = config.model_copy(update={"model_settings": settings})
        async with Agent(config, model=model, kernel_provider=FakeKernelProvider()) as agent:
            _, result = await read(agent.run("go"))
    assert result.status == "completed"
    marks = ["cache_control" in json.dumps(request) for request in server.requests]
    assert marks == [wanted] * 2
    if settings.get("cache") == "1h":
        assert '"ttl": "1h"' in json.dumps(server.requests[0])


async def test_children_and_their_report_tell_what_was_cached(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    async with MessagesServer(with_children) as server:
        config = Config(workspace=tmp_path, mode="full", model=f"anthropic:{MODEL}", base_url=server.base_url)
        async with Agent(config, kernel_provider=FakeKernelProvider()) as agent:
            events, result = await read(agent.run("Split it."))
    child = finished(events)["part 1"]
    assert child.usage.cache_read_tokens > 0
    assert f"{child.usage.cache_read_tokens:,} read from the cache" in prompts(server.requests[-1])
    assert result.tree_usage.cache_read_tokens == sum(one["cache_read_input_tokens"] for one in server.usages)


def fan_out(number, **arguments):
    """A root that starts children, each of which answers at once."""

    def script(request):
        text = json.dumps(request["messages"])
        if "piece of work 0" in text or "This piece of work" in text:
            pieces = [f"piece of work {n}" in text for n in range(number)]
            if sum(pieces) == 1 or "You are a child agent" in json.dumps(request["messages"][-1]):
                return ["answered"]
        elif any(f"piece of work {n}" in text for n in range(number)):
            return ["answered"]
        if "assistant" not in [message["role"] for message in request["messages"]]:
            return [ChatCall("task", {"prompt": f"piece of work {n}", **arguments}) for n in range(number)]
        return ["All have ended."]

    return script


def is_child(request):
    return "You are a child agent" in json.dumps(request["messages"][-1])


async def test_siblings_begin_with_the_same_tools_and_system_prompt_byte_by_byte(server_and_agent):
    server, agent = server_and_agent(fan_out(4))
    async with server, agent() as agent:
        await read(agent.run("Split it."))
    children = [request for request in server.requests if is_child(request)]
    assert len(children) == 4
    before_the_prompt = {json.dumps([each.get("tools"), each.get("system"), each["messages"][:-1]]) for each in children}
    assert len(before_the_prompt) == 1
    assert "piece of work" not in before_the_prompt.pop()


async def test_a_child_that_inherits_the_conversation_begins_with_its_parents_requests(server_and_agent):
    server, agent = server_and_agent(fan_out(2, history="all"))
    async with server, agent() as agent:
        await read(agent.run("Split it."))
    first, *others = server.requests
    children = [request for request in others if is_child(request)]
    assert len(children) == 2
    for child in children:
        assert json.dumps(child.get("tools")) == json.dumps(first.get("tools"))
        assert json.dumps(child.get("system")) == json.dumps(first.get("system"))
        assert prompt_of(child).startswith(prompt_of(first))


async def test_a_child_at_the_deepest_level_that_inherits_is_offered_children_and_refused_them(server_and_agent):
    def script(request):
        if is_child(request):
            return [ChatCall("task", {"prompt": "below"})]
        if "assistant" not in [message["role"] for message in request["messages"]]:
            return [ChatCall("task", {"prompt": "piece of work", "history": "all"})]
        return ["Done."]

    server, agent = server_and_agent(script)
    async with server, agent() as agent:
        events, _ = await read(agent.run("Split it."))
    assert len(of_kind(events, AgentStarted)) == 2
    [refused] = [event.content for event in of_kind(events, ToolOutput) if event.depth]
    assert "may not start children" in refused


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.slow
async def test_the_first_of_children_is_sent_before_the_others_where_writing_the_cache_costs(tmp_path, monkeypatch, waits):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    if not waits:
        monkeypatch.setattr("freeact_sub.agents.turn.prefix_of", lambda agent: None)

    async def all_have_come():
        """Or as many as come at once."""
        if any(map(is_child, server.requests)):
            await (turns(500) if waits else eventually(lambda: sum(map(is_child, server.requests)) == 20))

    async with MessagesServer(fan_out(20), answers_after=all_have_come) as server:
        many = {"subagents": {"max_concurrent": 20}, "models": {"max_concurrent": 20}}
        config = Config(workspace=tmp_path, mode="full", model=f"anthropic:{MODEL}", base_url=server.base_url, **many)
        async with Agent(config, kernel_provider=FakeKernelProvider()) as agent:
            await read(agent.run("Split it."))
    sent = zip(server.requests, server.usages, strict=True)
    children = [(request, usage["cache_read_input_tokens"]) for request, usage in sent if is_child(request)]
    assert all("cache_control" in json.dumps(request["system"]) for request, _ in children)  # siblings go on behind it
    (_, first), *others = children
    assert (len(others), first) == (19, 0)
    assert [tokens > 0 for _, tokens in others] == [waits] * 19


@pytest.mark.slow
async def test_the_log_tells_of_a_run_that_never_reads_its_cache(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    for number, forgets, told in ((7, True, 1), (7, False, 0), (4, True, 0)):
        caplog.clear()
        async with MessagesServer(cells(number), forgets=forgets) as server:
            config = Config(workspace=tmp_path, mode="full", model=f"anthropic:{MODEL}", base_url=server.base_url)
            async with Agent(config, kernel_provider=FakeKernelProvider()) as agent:
                await read(agent.run("go"))
        assert sum("read nothing from its cache" in record.message for record in caplog.records) == told
