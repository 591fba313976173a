"""What a run says that it has spent is what its ledger has booked and what was sent, however its requests ended."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelConnectionError, ModelHTTPError
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.wrapper import WrapperModel
from support.agents import cell, of_kind, read, task
from support.chat_server import ChatServer, Drop
from support.tables import each
from support.thorough import sample
from support.waiting import eventually

from freeact_sub import Agent, Budget, Config
from freeact_sub.agents.child import status_line
from freeact_sub.config.budget import Usage
from freeact_sub.events import AgentFinished, AgentStarted, ResponseChunk
from freeact_sub.testing import FakeKernelProvider, ScriptedModel, first_prompt

SILENT = asyncio.Event
RUNS, AGENTS = 10, 20


class Sent(WrapperModel):
    """Counts what is sent, and what a provider has counted of it at its end."""

    requests = 0
    refused = 0
    tokens = 0

    async def request(self, *args: Any) -> Any:
        self.requests += 1
        try:
            response = await self.wrapped.request(*args)
        except ModelHTTPError:
            self.refused += 1
            raise
        self.tokens += response.usage.total_tokens
        return response

    @asynccontextmanager
    async def request_stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        self.requests += 1
        try:
            async with self.wrapped.request_stream(*args, **kwargs) as stream:
                try:
                    yield stream
                finally:
                    self.tokens += stream.usage.total_tokens if stream.get().parts else 0
        except ModelHTTPError:
            self.refused += 1
            raise


def script_of(chance: random.Random) -> Any:
    """Agents at random: children, background children, asks, cells, long texts, broken streams, refusals, silence."""

    def break_off() -> list[Any]:
        return ["half a sentence ", ModelConnectionError("m", "broken", phase="read")]

    def turn(messages: Any, info: Any) -> Any:
        prompt = first_prompt(messages)
        if not info.function_tools and prompt.startswith("ask"):
            return chance.choice(["blue", "red " * 50, break_off(), [SILENT()], ModelHTTPError(400, "m", None)])
        if not info.function_tools:
            return "a report"
        calls = [
            lambda: [task(f"child {chance.random()}", max_turns=3)],
            lambda: [task("child", background=True), ToolCallPart("subagents", {"action": "wait"})],
            lambda: [ToolCallPart("ask", {"prompt": f"ask {n}"}) for n in range(chance.randint(1, 3))],
            lambda: ["I compute.", cell(f"{len(messages)} + {chance.random()}")],
            break_off,
            lambda: ["too late ", SILENT()],
            lambda: ModelHTTPError(400, "m", {"message": "refused"}),
            lambda: ["the end " * chance.randint(1, 40)],
        ]
        deep = "child" in prompt
        weights = [0 if deep else 4, 0 if deep else 1, 3, 4, 2, 1 if deep else 2, 1, 4]
        return chance.choices(calls, weights)[0]()

    return turn


@each("seed", sample(range(AGENTS), 6))
@pytest.mark.slow
async def test_usage_ledger_and_what_was_sent_agree_in_random_runs(seed, tmp_path):
    chance = random.Random(seed)
    model = Sent(ScriptedModel(script_of(chance), chunk_chars=8, name="gpt-4o"))
    # each run ends with its children: what one that outlives its run spends is in no run's result
    settings = {"models": {"max_concurrent": chance.choice([2, 16])}, "subagents": {"detach": False}}
    config = Config(workspace=tmp_path, mode="full", headless="allow", **settings)
    async with Agent(config, model=model, kernel_provider=FakeKernelProvider()) as agent:
        spent = 0
        for _ in range(RUNS):
            before = (model.requests, model.refused, model.tokens)
            bounds = [{}, {"tokens": chance.randint(0, 30_000)}, {"cost_usd": Decimal(chance.randint(0, 60)) / 1000}]
            run = agent.run("root", budget=Budget(**chance.choice(bounds)))
            end_at = chance.randint(3, 120)

            def on_event(event, run=run, end_at=end_at):
                silent = isinstance(event, ResponseChunk) and "too late" in event.content
                if event.seq >= end_at or silent or (isinstance(event, AgentStarted) and chance.random() < 0.05):
                    run.cancel()

            asyncio.get_running_loop().call_later(0.5, run.cancel)  # where an ask is silent
            events, result = await read(run, on_event=on_event)
            check(agent, events, result, [now - then for now, then in zip(counted(model), before, strict=True)])
            agent.history.clear()
            spent += result.tree_usage.tokens
        assert agent.usage.tokens == spent


def counted(model: Sent) -> tuple[int, int, int]:
    return model.requests, model.refused, model.tokens


def check(agent: Agent, events: Any, result: Any, sent: list[int]) -> None:
    requests, refused, tokens = sent
    whole, account = result.tree_usage, agent.debug.root.run.account
    ends = of_kind(events, AgentFinished)
    assert (account.spent.tokens, account.in_flight.tokens, account.for_reports.tokens) == (whole.tokens, 0, 0)
    assert account.spent.cost_usd == (whole.cost_usd or 0)
    assert account.in_flight.cost_usd == account.for_reports.cost_usd == 0
    assert sum((end.usage for end in ends), Usage()) == whole
    assert whole.turns + whole.estimated_requests == requests - refused
    if whole.estimated_requests:
        assert "tokens at least" in str(whole)
        assert whole.tokens >= tokens
        assert whole.cost_usd > 0
        assert "at least $" in str(whole)
        assert "at least $0.0000" not in str(whole)
    else:
        assert whole.tokens == tokens


async def test_the_usage_of_a_cancelled_request_is_in_every_report(make):
    async with make({"root": [task("slow child"), "done"], "slow child": [["some words ", SILENT()]]}) as agent:
        run = agent.run("root")

        def on_event(event):
            if isinstance(event, ResponseChunk) and event.depth == 1 and "words" in event.content:
                run.cancel(event.agent_id)

        events, result = await read(run, on_event=on_event)
    [child] = [end for end in of_kind(events, AgentFinished) if end.depth == 1]
    assert (child.status, child.usage.turns, child.usage.estimated_requests) == ("cancelled", 0, 1)
    assert child.usage.output_tokens >= 2
    assert child.usage.tokens < result.tree_usage.tokens
    assert "tokens at least" in str(result.tree_usage)
    told = [message.content for message in agent_returns(agent)]
    assert any("tokens at least" in text for text in told), told
    assert "tokens at least" in status_line(result)


def agent_returns(agent):
    return [part for message in agent.history for part in message.parts if part.part_kind == "tool-return"]


@pytest.mark.usefixtures("allow_model_requests")
@pytest.mark.parametrize("breaks", [1, 3])
async def test_a_broken_stream_is_paid_and_so_is_the_request_that_is_made_again(breaks, tmp_path):
    replies = [["half ", "an answer", Drop()]] * breaks + [["whole"]]
    async with ChatServer(lambda _: replies.pop(0)) as server:
        config = Config(workspace=tmp_path, model="openai-chat:gpt-4o", base_url=server.base_url, rate_limit_seconds=1)
        async with Agent(config, kernel_provider=FakeKernelProvider()) as agent:
            _, result = await read(agent.run("go"))
            assert agent.debug.root.run.account.spent.tokens == result.usage.tokens
    assert (result.status, result.usage.estimated_requests) == ("completed" if breaks == 1 else "failed", breaks)
    assert result.usage.output_tokens >= 3 * breaks + 5 * (breaks == 1)
    assert result.usage.cost_usd > 0
    assert "at least $" in str(result.usage)


@pytest.mark.slow
async def test_a_broken_stream_is_not_made_again_where_the_budget_has_no_room_for_it(make):
    def script(_messages, _info):
        return ["w " * 700, ModelConnectionError("m", "broken", phase="read")]

    async with make(script) as agent:
        _, result = await read(agent.run("go", budget=Budget(tokens=6500)))
        assert agent.scripted.requests <= 3
        assert result.usage.tokens == agent.debug.root.run.account.spent.tokens
    assert result.status in ("limit", "failed")
    assert result.usage.tokens <= 6500


async def test_a_budget_that_is_too_small_says_what_a_request_needs(make):
    async with make(["never"]) as agent:
        _, result = await read(agent.run("go", budget=Budget(tokens=500)))
    assert result.status == "limit"
    assert "the limit of tokens is reached: 0 of 500" in result.error
    needed = int(result.error.rpartition("the next request needs about ")[2].replace(",", ""))
    assert needed > 500
    async with make(["It is 42."]) as agent:
        _, result = await read(agent.run("go", budget=Budget(tokens=needed)))
    assert result.status == "completed"


def test_marks_of_what_is_not_known():
    exact = Usage(turns=1, input_tokens=10, cost_usd=Decimal("0.5"))
    cut = Usage(input_tokens=10, cost_usd=Decimal("0.00001"), estimated_requests=1)
    unknown = Usage(input_tokens=10, estimated_requests=1, unpriced_turns=1)
    assert str(exact) == "turns 1, tool calls 0, tokens 10, $0.5000"
    assert str(cut) == "turns 0, tool calls 0, tokens at least 10, at least $0.00001"
    assert str(unknown) == "turns 0, tool calls 0, tokens at least 10"
    assert str(exact + unknown) == "turns 1, tool calls 0, tokens at least 20, at least $0.5000"


async def test_a_request_that_is_cancelled_before_its_first_piece_took_its_input(make):
    async with make([[asyncio.Event()]]) as agent:
        run = agent.run("word " * 3_000)
        reading = asyncio.create_task(read(run))
        await eventually(lambda: agent.scripted.requests)
        run.cancel()
        _, result = await reading
    assert result.usage.input_tokens >= 3_000
    assert result.usage.estimated_requests == 1
