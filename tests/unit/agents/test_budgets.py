"""Budgets of runs: every bound holds, under parallel children too, and an end by a budget says so. Kernels are fakes."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from support.agents import cell, finished, of_kind, read, task
from support.tables import each
from support.thorough import sample

from freeact_sub import Agent, Config, ConfigError, FreeactError
from freeact_sub.agents.money import highest_price_of
from freeact_sub.config.budget import Budget
from freeact_sub.events import (
    AgentFinished,
    AgentStarted,
    ApprovalRequest,
    Cancelled,
    Decision,
    ToolOutput,
)
from freeact_sub.testing import FakeKernelProvider, ScriptedModel, first_prompt


class CountingModel(WrapperModel):
    """Counts what a provider would bill."""

    tokens = 0
    requests = 0

    @asynccontextmanager
    async def request_stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        self.requests += 1
        async with self.wrapped.request_stream(*args, **kwargs) as stream:
            try:
                yield stream
            finally:
                self.tokens += stream.usage.total_tokens


def spender(children: int, *, calls: int = 1) -> Any:
    """The root starts children; each of them, and the root, says as much as it may and goes on for ever."""

    def turn(messages, info):
        if first_prompt(messages) == "root" and len(messages) == 1:
            return [task(f"spend {number}", description=str(number), max_turns=50) for number in range(children)]
        words = "w " * ((info.model_settings or {}).get("max_tokens", 100) - 20 * calls)
        return [words, *(cell(f"{len(messages)} + {number}") for number in range(calls))] if info.function_tools else words

    return turn


def make_spender(tmp_path, children: int, *, name: str = "spender", **config: Any) -> tuple[Agent, CountingModel]:
    model = CountingModel(ScriptedModel(spender(children), chunk_chars=1_000_000, name=name))
    settings = Config(workspace=tmp_path, mode="full", **config)
    return Agent(settings, model=model, kernel_provider=FakeKernelProvider()), model


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", sample([20, 10, 5, 2], 2))
async def test_twenty_children_that_spend_all_they_can_never_pass_the_bound(tmp_path, concurrency):
    """With a bound that is reached at another moment each time."""
    agent, model = make_spender(tmp_path, 20, subagents={"max_concurrent": concurrency})
    async with agent:
        for number in sample(range(0, 100, 10), 4):
            bound = 2_000 + 173 * number + concurrency
            model.tokens = 0
            agent.history.clear()
            events, result = await read(agent.run("root", budget=Budget(tokens=bound)))
            ends = of_kind(events, AgentFinished)
            assert model.tokens <= bound, f"bound {bound}"
            assert result.status == "limit", result
            assert result.tree_usage.tokens == model.tokens == sum(end.usage.tokens for end in ends)
            assert {end.status for end in ends} == {"limit"}
            assert all("tokens" in end.error for end in ends)
            assert agent.debug.root.run.account.in_flight.tokens == agent.debug.root.run.account.for_reports.tokens == 0


async def test_money_is_bounded_like_tokens(tmp_path):
    agent, _ = make_spender(tmp_path, 20, name="gpt-4o", subagents={"max_concurrent": 20})
    async with agent:
        _, result = await read(agent.run("root", budget=Budget(cost_usd=Decimal("0.2"))))
    assert result.status == "limit"
    assert Decimal("0.1") < result.tree_usage.cost_usd <= Decimal("0.2")
    assert re.search(r"cost_usd is reached: 0\.\d+ of 0\.2", result.error)


async def test_money_cannot_be_bounded_where_the_price_is_not_known(tmp_path):
    agent, model = make_spender(tmp_path, 1)
    async with agent:
        _, result = await read(agent.run("root", budget=Budget(cost_usd=Decimal(1))))
    assert (result.status, model.requests) == ("failed", 0)
    assert "price" in result.error


@each(("field", "status"), [("turns", "limit"), ("tokens", "limit"), ("cost_usd", "limit"), ("seconds", "timeout")])
async def test_zero_gives_zero(make, field, status):
    async with make(["never"]) as agent:
        _, result = await read(agent.run("go", budget=Budget.model_validate({field: 0})))
        assert agent.scripted.requests == 0
    assert (result.status, result.text) == (status, "")
    assert f"the limit of {field} is reached" in result.error
    assert " of 0" in result.error


async def test_zero_tool_calls_and_zero_children_let_nothing_run(make):
    script = lambda _, info: [cell("1"), task("child")] if info.function_tools else "nothing was done"
    async with make(script) as agent:
        events, result = await read(agent.run("go", budget=Budget(tool_calls=0)))
    assert (result.status, result.text, result.usage.tool_calls) == ("limit", "nothing was done", 0)
    assert not of_kind(events, ApprovalRequest)
    async with make([task("child"), "alone then"]) as agent:
        events, result = await read(agent.run("go", budget=Budget(children=0)))
    assert (result.status, len(of_kind(events, AgentStarted))) == ("completed", 1)
    assert "forbidden" in of_kind(events, ToolOutput)[0].content
    assert "children is reached: 0 of 0" in of_kind(events, ToolOutput)[0].content


async def test_tool_calls_end_exactly_at_the_bound_and_the_rest_is_told(make):
    script = lambda _, info: [cell(str(number)) for number in range(3)] if info.function_tools else "7 done"
    async with make(script) as agent:
        events, result = await read(agent.run("go", budget=Budget(tool_calls=7)))
    assert (result.status, result.text, result.usage.tool_calls) == ("limit", "7 done", 7)
    assert "7 of 7" in result.error
    outcomes = sorted(event.outcome for event in of_kind(events, ToolOutput))
    assert outcomes == ["failed"] * 2 + ["success"] * 7


async def test_a_child_gets_no_more_than_its_parent_has_left_whatever_it_asks_for(make):
    seen = {}

    def script(messages, info):
        if first_prompt(messages) == "root":
            asks = task("child", max_turns=50, budget={"tool_calls": 40, "tokens": 10**9, "seconds": 10**6, "depth": 9})
            return asks if len(messages) == 1 else "done"
        seen["prompt"] = str(messages[0].parts)
        return "child"

    async with make(script, config={"subagents": {"max_depth": 2}}) as agent:
        bounds = Budget(turns=5, tool_calls=3, tokens=100_000, seconds=60, children=4)
        _, result = await read(agent.run("root", budget=bounds))
        child = agent.agents()[1].budget
    assert result.status == "completed"
    assert (child.turns, child.tool_calls, child.children, child.depth) == (4, 2, 4, 1)
    assert 0 < child.tokens < 100_000
    assert 0 < child.seconds < 60
    assert "4 turns" in seen["prompt"]
    assert "depth 1" in seen["prompt"]


async def test_the_childs_prompt_tells_depth_budget_scope_and_whom_it_reports_to(make):
    seen = []

    def script(messages, info):
        if first_prompt(messages) == "root":
            return task("child", scope="src/parser", budget={"seconds": 90}) if len(messages) == 1 else "done"
        seen.append(str(messages[0].parts))
        return "child"

    async with make(script) as agent:
        await read(agent.run("root"))
    for words in ("depth 1", "10 turns", "90.0 s", "src/parser", "your parent", "concise", "start below you: 0"):
        assert words in seen[0], words


async def test_a_wrong_budget_is_told_to_the_model_by_its_field_and_starts_nothing(make):
    async with make([task("child", budget={"tokens": -1}), "I see"]) as agent:
        events, _ = await read(agent.run("root"))
        told = str([part for message in agent.history for part in message.parts])
    assert len(of_kind(events, AgentStarted)) == 1
    assert "tokens" in told
    assert "greater than or equal to 0" in told
    with pytest.raises(ConfigError, match="setting `seconds`"):
        Budget(seconds=-1)


async def test_a_parent_without_a_turn_to_give_starts_no_child(make):
    script = lambda _, info: [task("child")] if info.function_tools else "alone then"
    async with make(script) as agent:
        events, result = await read(agent.run("root", budget=Budget(turns=1)))
    assert (result.status, result.text, len(of_kind(events, AgentStarted))) == ("limit", "alone then", 1)
    assert "turns is reached: 1 of 1" in of_kind(events, ToolOutput)[0].content


def test_models_that_stand_in_for_each_other_are_reserved_for_at_the_highest_price():
    cheap, dear, unknown = (ScriptedModel(["x"], name=name) for name in ("gpt-4o-mini", "gpt-4o", "nobody-knows"))
    assert highest_price_of(cheap)(1000, 1000) < highest_price_of(dear)(1000, 1000)
    assert highest_price_of(WrapperModel(FallbackModel(cheap, dear)))(1000, 1000) == highest_price_of(dear)(1000, 1000)
    assert highest_price_of(FallbackModel(dear, unknown))(1000, 1000) is None


async def test_children_are_counted_in_the_whole_subtree(make):
    script = {
        "root": [[task(f"middle {n}") for n in range(3)], "done"],
        "middle": [[task("leaf") for _ in range(3)], "m"],
        "leaf": ["l"],
    }
    async with make(script, config={"subagents": {"max_depth": 2}}) as agent:
        events, result = await read(agent.run("root", budget=Budget(children=7)))
    assert result.status == "completed"
    assert len(of_kind(events, AgentStarted)) == 8
    refused = [event for event in of_kind(events, ToolOutput) if "forbidden" in event.content]
    assert len(refused) == 5
    assert all("7 of 7" in event.content for event in refused)


@pytest.mark.slow
async def test_time_ends_a_run_as_timeout_with_what_there_is_and_its_children_with_it(make):
    script = {"root": [["working", task("hangs")]], "hangs": [["partial", asyncio.Event()]]}
    async with make(script) as agent:
        events, result = await asyncio.wait_for(read(agent.run("root", budget=Budget(seconds=3))), 120)
        assert (result.status, result.text) == ("timeout", "working")
        assert re.search(r"the limit of seconds is reached: \d+(\.\d+)? of 3\b", result.error)
        _, after = await read(agent.run("other"))
    assert after.status == "completed"
    child = next(end for end in of_kind(events, AgentFinished) if end.depth == 1)
    assert child.status in ("timeout", "cancelled")  # it had as much time as its parent had left: either may be first


async def test_a_child_that_is_too_slow_ends_alone(make):
    script = {
        "root": [[task("hangs", budget={"seconds": 0.2}, description="slow"), task("works", description="quick")], "done"],
        "hangs": [[cell("!sleep 1000")]],
        "works": ["fine"],
    }
    async with make(script) as agent:
        events, result = await asyncio.wait_for(read(agent.run("root")), 120)
    ends = finished(events)
    assert (ends["slow"].status, ends["quick"].status, result.status) == ("timeout", "completed", "completed")
    assert not of_kind(events, Cancelled)


async def test_without_salvage_a_budget_ends_at_once(tmp_path):
    agent, model = make_spender(tmp_path, 3, subagents={"salvage": False})
    async with agent:
        _, result = await read(agent.run("root", budget=Budget(tokens=9_000)))
    assert result.status == "limit"
    assert model.tokens <= 9_000


RAISED = {"turns": 99, "requests": 9_999, "tool_calls": 99, "seconds": 1e6, "children": 99, "depth": 10}
TASK = {"task_id": "0" * 32, "prompt": "child", "budget": RAISED}
WITHIN = {"mode": "full", "depth": 10, "max_depth": 10, "turns": 99, "agent_id": "root", "parent": "root"}
ASKED = {
    "set_budget": ("set_budget", RAISED),
    "task": ("task", TASK | WITHIN),
    "task, with more": ("task", TASK),
    "task, without a bound": ("task", TASK | {"budget": dict.fromkeys(RAISED)}),
    "task_check": ("task_check", {"task_id": "0" * 32, "problem": "none", "budget": RAISED} | WITHIN),
    "ask": ("ask", {"prompt": "child", "budget": RAISED} | WITHIN),
    "children": ("children", {"action": "start", "budget": RAISED} | WITHIN),
    "files": ("files", {"budget": RAISED} | WITHIN),
    "mcp_call": ("mcp_call", {"server": "x", "tool": "y", "args": {}, "budget": RAISED} | WITHIN),
    "check": ("check", {"kind": "shell", "command": "x", "budget": RAISED} | WITHIN),
    "shell": ("shell", {"command": "x", "reason": "y", "budget": RAISED} | WITHIN),
}
"""What code may send, with more in it than it may say."""


@each("how", ASKED)
@pytest.mark.slow
async def test_code_in_a_kernel_cannot_raise_a_bound(make, how):
    """The host takes depth, parent and bounds from the connection that a request came by, and from nothing in it."""
    method, params = ASKED[how]
    bounds = Budget(turns=9, requests=20, tool_calls=8, seconds=500, children=2)
    found = []

    async def ask(agent, request):
        kernel = agent.provider.kernels[0]
        try:
            with contextlib.suppress(Exception):  # most are refused
                await kernel.ask_host(method, **params)
            with contextlib.suppress(FreeactError):  # the first may have been a child
                await kernel.ask_host("task", **TASK)
                await kernel.ask_host("task", **TASK)
            with pytest.raises(FreeactError, match=r"limit of children is reached: 2 of 2"):
                await kernel.ask_host("task", **TASK)
            found.extend(info.budget for info in agent.agents())
        finally:
            request.approve()

    def rule(request):
        if request.call.kind != "code" or tasks:
            return Decision(allowed=True)
        tasks.append(asyncio.create_task(ask(agent, request)))
        return None

    tasks = []
    script = {"root": [[cell("0")], [cell("1")], "done"], "child": ["answer"]}
    async with make(script, config={"subagents": {"budget": {}}}) as agent:
        _, result = await read(agent.run("root", budget=bounds), rule)
        await tasks[0]
    root, *children = found
    assert root == bounds.model_copy(update={"depth": 1})
    assert len(children) == 2
    for child in children:
        assert child.depth == 0
        assert child.children <= 2
        assert child.seconds < 500
        assert (child.requests < 20, child.tool_calls < 8, child.turns < 9) == (True, True, True)
    assert result.status == "completed"


async def test_a_second_run_has_a_budget_of_its_own(make):
    script = lambda _, info: [cell("1")] if info.function_tools else "report"
    async with make(script, config={"budget": {"turns": 2}}) as agent:
        for turns in (2, 3):
            _, result = await read(agent.run("go", budget=Budget(turns=turns) if turns == 3 else Budget()))
            assert (result.status, result.usage.turns) == ("limit", turns + 1)


@pytest.mark.slow
async def test_twenty_long_answers_grow_the_parents_history_a_little_and_can_be_read_whole(make, tmp_path):
    def script(messages, info):
        if first_prompt(messages) == "root":
            return (
                [task(f"write {number}", description=str(number)) for number in range(20)] if len(messages) == 1 else "done"
            )
        number = int(first_prompt(messages).split()[1])
        return answer_of(number)

    def answer_of(number: int) -> str:
        return f"begin {number} " + f"{number:07} " * 131_072 + f" end {number}"

    async with make(script, chunk_chars=2_000_000) as agent:
        _, result = await read(agent.run("root"))
        returns = [part for message in agent.history for part in message.parts if isinstance(part, ToolReturnPart)]
    assert result.status == "completed"
    texts = [part.model_response_str() for part in returns]
    assert len(texts) == 20
    assert sum(len(text.encode()) for text in texts) < 20 * 8_000
    for number, text in enumerate(texts):
        assert f"begin {number} " in text
        assert text.endswith(f" end {number}")
        path = re.search(r"the whole answer is in (\S+) ", text)[1]
        assert path.startswith(str(tmp_path))
        with open(path, encoding="utf-8") as file:
            assert file.read() == answer_of(number)


async def test_keys_show_the_chain(make):
    script = {"root": [[task("middle")], "done"], "middle": [[task("leaf")], "m"], "leaf": ["l"]}
    async with make(script, config={"subagents": {"max_depth": 2}}) as agent:
        events, _ = await read(agent.run("root"))
        keys = [info.key for info in agent.agents()]
    assert [event.key for event in of_kind(events, AgentStarted)] == keys
    assert keys[0] == f"agent:{agent.agent_id}"
    assert re.fullmatch(re.escape(keys[0]) + ":subagent:[0-9a-f-]{36}", keys[1])
    assert re.fullmatch(re.escape(keys[1]) + ":sub:[0-9a-f-]{36}", keys[2])


def dear(tmp_path, children: int = 0, *, name: str = "o1-pro", **config: Any) -> Agent:
    """An agent whose model takes some 4.8 dollars for each response, and goes on for ever; so do its children."""

    def turn(messages, info):
        is_first = first_prompt(messages) == "root" and len(messages) == 1
        if children and is_first:
            return [task(f"child {number}", description=str(number)) for number in range(children)]
        said = "w " * min((info.model_settings or {}).get("max_tokens", 8_000), 8_000)
        return [said, cell(f"{len(messages)}")] if info.function_tools else "the report"

    model = ScriptedModel(turn, chunk_chars=1_000_000, name=name)
    settings = Config(workspace=tmp_path, mode="full", **config)
    return Agent(settings, model=model, kernel_provider=FakeKernelProvider())


async def test_without_a_bound_a_prompt_ends_after_the_request_that_passes_ten_dollars(tmp_path):
    async with dear(tmp_path) as agent:
        for _ in range(2):  # each prompt has its own
            _, result = await read(agent.run("root"))
            assert (result.status, result.text) == ("limit", "the report")
            assert result.usage.turns == 4, "three, and the last report"
            assert 10 < result.tree_usage.cost_usd < 20
            assert re.search(r"cost_usd is reached: 1\d\.\d+ of 10, in the budget of .*default.*`inf`", result.error)


async def test_children_count_against_the_usual_amount_and_no_more_begin_past_it(tmp_path):
    async with dear(tmp_path, 30, subagents={"max_concurrent": 2}) as agent:
        events, result = await read(agent.run("root"))
        assert result.status == "limit"
        assert 10 < result.tree_usage.cost_usd < 40
        ends = [event for event in of_kind(events, AgentFinished) if event.depth]
        assert len([end for end in ends if end.usage.turns]) <= 4
        assert {end.status for end in ends} == {"limit"}


@pytest.mark.parametrize(
    ("name", "bound"), [("o1-pro", "inf"), ("o1-pro", 100), ("no-price", None)], ids=["none", "another", "no price"]
)
async def test_the_usual_amount_counts_only_without_another_and_where_prices_are_known(tmp_path, name, bound):
    async with dear(tmp_path, name=name, budget={"cost_usd": bound, "turns": 6}) as agent:
        _, result = await read(agent.run("root"))
    assert result.usage.turns == 7, "those of the budget, and the last report"
    assert "limit of turns" in result.error
