"""Agents with fake kernels: turns, endings, bounds, order, accounting. Real kernels are in `tests/kernel`."""

import asyncio
import json
import re

import pytest
from pydantic import BaseModel
from pydantic_ai import FunctionToolset
from pydantic_ai.messages import ModelResponse, ThinkingPart, ToolCallPart
from support.agents import allow, cell, finished, of_kind, read, task

from freeact_sub import Agent, Config
from freeact_sub.errors import AgentBusyError, ConfigError, FreeactError, SpawnForbiddenError
from freeact_sub.events import (
    AgentFinished,
    AgentStarted,
    ApprovalRequest,
    Response,
    ResponseChunk,
    Thoughts,
    ThoughtsChunk,
    ToolCallStarted,
    ToolOutput,
    UsageUpdated,
)
from freeact_sub.testing import first_prompt


async def test_text_thoughts_and_a_cell_come_as_chunks_and_whole(make):
    async with make([[ThinkingPart("let me think about it"), "I will compute.", cell("6 * 7")], "It is 42."]) as agent:
        events, result = await read(agent.run("6 times 7?"))
    assert (result.status, result.output) == ("completed", "It is 42.")
    assert "".join(event.content for event in of_kind(events, ThoughtsChunk)) == "let me think about it"
    assert [event.content for event in of_kind(events, Thoughts)] == ["let me think about it"]
    assert "".join(event.content for event in of_kind(events, ResponseChunk)) == "I will compute.It is 42."
    assert [event.content for event in of_kind(events, Response)] == ["I will compute.", "It is 42."]
    order = [type(event).__name__ for event in events if event.tool_call_id]
    assert order == [
        "ToolCallStarted",
        "ApprovalRequest",
        "ApprovalDecided",
        "CodeExecutionOutputChunk",
        "CodeExecutionOutput",
        "ToolOutput",
    ]
    assert (result.usage.turns, result.usage.tool_calls) == (2, 1)


async def test_a_conversation_keeps_its_history_and_its_kernel(make):
    async with make([[cell("x = 41")], "noted", [cell("x + 1")], "42"]) as agent:
        await read(agent.run("remember 41"))
        events, result = await read(agent.run("add one"))
        assert result.output == "42"
        assert [event.content for event in of_kind(events, ToolOutput)] == ["42"]
        assert len(agent.provider.kernels) == 1
        assert agent.usage.turns == 4
        assert sum(isinstance(message, ModelResponse) for message in agent.history) == 4


async def test_five_of_twelve_children_work_at_once_at_most_and_all_finish(make):
    working: set[str] = set()
    most = 0
    release = asyncio.Event()

    def on_event(event):
        nonlocal most
        if event.depth and isinstance(event, ResponseChunk):
            working.add(event.agent_id)
            most = max(most, len(working))
        elif isinstance(event, AgentFinished):
            working.discard(event.agent_id)
        if len(working) == 5:
            release.set()

    children = [task(f"child {number}", description=str(number)) for number in range(12)]
    script = {"root": [children, "done"], "child": [["I begin", release, cell("1 + 1")], "two"]}
    async with make(script, config={"models": {"quote_above": 12}}) as agent:
        events, result = await read(agent.run("root"), on_event=on_event)
    assert result.output == "done"
    assert most == 5
    assert [end.status for name, end in finished(events).items() if name] == ["completed"] * 12
    assert sum(event.queued for event in of_kind(events, AgentStarted)) == 7
    assert len({event.agent_id for event in events}) == 13


@pytest.mark.features("background")
async def test_children_cannot_have_children_by_default_and_can_where_it_is_configured(make):
    turns = {"root": [[task("level 1")], "r"], "level 1": [[task("level 2")], "one"], "level 2": ["two"]}
    spawning, offered = {"task", "delegate", "subagents"}, {}

    def deep(messages, info):
        prompt = first_prompt(messages)
        offered[prompt] = spawning & {tool.name for tool in info.function_tools}
        return turns[prompt][len(messages) // 2]

    async with make(deep) as agent:
        events, _ = await read(agent.run("root"))
    assert max(event.depth for event in events) == 1
    assert offered == {"root": spawning, "level 1": set()}
    refused = [event for event in of_kind(events, ToolOutput) if event.depth == 1]
    assert [event.outcome for event in refused] == ["failed"]
    assert all(word in refused[0].content for word in ("at depth 1", "`subagents.max_depth`"))
    async with make(deep, config={"subagents": {"max_depth": 2, "max_concurrent": 1}}) as agent:
        events, result = await asyncio.wait_for(read(agent.run("root")), 120)
    assert result.status == "completed"
    assert max(event.depth for event in events) == 2
    assert offered == {"root": spawning, "level 1": spawning, "level 2": set()}


async def test_no_child_starts_by_any_way_if_children_are_turned_off(make):
    told = {}

    def script(messages, info):
        told["tools"] = {tool.name for tool in info.function_tools}
        told["instructions"] = str(info.instructions)
        return [task("child")] if len(messages) == 1 else "done"

    off = r"starting children is disabled \(setting `subagents\.enabled`\)"
    async with make(script, config={"subagents": {"enabled": False}, "mode": "full"}) as agent:
        events, result = await read(agent.run("root"))
        with pytest.raises(SpawnForbiddenError, match=off):
            await agent.spawn_and_run("child")
        assert len(agent.agents()) == 1
    assert not told["tools"] & {"task", "delegate", "subagents"}
    assert "child agents" not in told["instructions"]
    assert [event.outcome for event in of_kind(events, ToolOutput)] == ["failed"]
    assert re.search(off, of_kind(events, ToolOutput)[0].content)
    assert not of_kind(events, ApprovalRequest)
    assert result.status == "completed"


async def test_a_child_starts_with_its_prompt_alone_in_a_later_run_too(make):
    read_by_child = []

    def script(messages, info):
        prompt = first_prompt(messages)
        if prompt == "child":
            read_by_child.append([type(part).__name__ for message in messages for part in message.parts])
            return "c"
        return [task("child")] if len(messages) in (1, 5) else "done"

    async with make(script, config={"mode": "full"}) as agent:
        for prompt in ("first", "second"):
            await read(agent.run(prompt))
    assert read_by_child == [["UserPromptPart"]] * 2


async def test_usage_of_the_tree_is_the_sum_of_what_its_agents_spent_and_what_the_model_served(make):
    script = {"root": [[task("child a"), task("child b")], "done"], "child": [[cell("1")], "answer"]}
    async with make(script) as agent:
        events, result = await read(agent.run("root"))
        model = agent.scripted
    ends = of_kind(events, AgentFinished)
    assert result.tree_usage.turns == sum(end.usage.turns for end in ends) == model.requests == 6
    assert result.tree_usage.tokens == sum(end.usage.tokens for end in ends)
    assert of_kind(events, UsageUpdated)[-1].tree_usage.turns == 6


async def test_a_question_is_never_asked_where_the_configuration_answers(make):
    for answer in ("allow", "deny"):
        async with make([[cell("1 + 1")], "done"], config={"headless": answer}) as agent:
            events, _ = await read(agent.run("go"), lambda _: pytest.fail("asked"))
        outcome = of_kind(events, ToolOutput)[0].outcome
        assert outcome == ("success" if answer == "allow" else "denied")


async def test_one_run_at_a_time_and_only_while_open(make):
    silent = asyncio.Event()
    agent = make([[silent, "x"]])
    with pytest.raises(FreeactError, match="async with"):
        agent.run("go")
    async with agent:
        async with agent.run("go"):
            with pytest.raises(AgentBusyError):
                agent.run("again")
        silent.set()
        assert (await read(agent.run("third")))[1].status == "completed"


def test_an_agent_without_a_model_says_what_to_do(tmp_path):
    with pytest.raises(ConfigError, match="model"):
        Agent(Config(workspace=tmp_path))


async def test_steering_reaches_the_next_request(make):
    def script(messages, _info):
        if any("look at b as well" in str(part) for message in messages for part in message.parts):
            return "I looked at both"
        return [cell("1")]

    async with make(script, config={"budget": {"turns": 5}}) as agent:
        run = agent.run("look at a")
        _, result = await read(
            run, on_event=lambda event: isinstance(event, ToolCallStarted) and run.send("look at b as well")
        )
    assert result.output == "I looked at both"


async def test_messages_after_the_last_request_are_not_taken(make):
    async with make(["the first answer", "the second"]) as agent:
        run = agent.run("p")
        assert run.send("before it begins")
        sent = []
        _, result = await read(
            run, on_event=lambda event: isinstance(event, AgentFinished) and sent.append(run.send("late"))
        )
        assert sent == [False]
        assert not run.send("after the end")
        assert not run.send("after the end", agent.agent_id)
        assert result.status == "completed"
        assert "late" not in str(agent.history)
        closed = agent.run("p")
        await closed.aclose()
        assert not closed.send("never begun")


async def test_a_tool_of_the_users_own_asks_like_ours_and_its_errors_are_answers(make):
    toolset = FunctionToolset()

    @toolset.tool_plain
    def divide(a: int, b: int) -> float:
        """Divide."""
        return a / b

    calls = [ToolCallPart("divide", {"a": 6, "b": 3}), ToolCallPart("divide", {"a": 1, "b": 0})]
    async with make([calls, "done"], toolsets=[toolset]) as agent:
        asked = []
        events, result = await read(agent.run("go"), lambda request: asked.append(request.call) or allow(request))
    assert [call.args for call in asked] == [{"a": 6, "b": 3}, {"a": 1, "b": 0}]
    assert {event.content for event in of_kind(events, ToolOutput)} == {"2.0", "[ERROR] ZeroDivisionError: division by zero"}
    assert {event.outcome for event in of_kind(events, ToolOutput)} == {"success", "failed"}
    assert result.status == "completed"


async def test_wrong_arguments_and_unknown_tools_are_told_and_can_be_mended(make):
    wrong = [ToolCallPart("execute_ipython_cell", {"code": 1}), ToolCallPart("no_such_tool", {})]
    async with make([wrong, [cell("1")], "done"]) as agent:
        events, result = await read(agent.run("go"))
    assert [event.outcome for event in of_kind(events, ToolOutput)] == ["retried", "retried", "success"]
    assert result.status == "completed"


async def test_a_typed_answer_comes_as_a_value(make):
    class Answer(BaseModel):
        value: int

    script = [[ToolCallPart("final_result", {"value": "x"})], [ToolCallPart("final_result", {"value": 42})]]
    async with make(script, output_type=Answer) as agent:
        events, result = await read(agent.run("go"))
    assert result.output == Answer(value=42)
    assert json.loads(of_kind(events, AgentFinished)[-1].output) == {"value": 42}


@pytest.mark.slow
async def test_many_agents_of_one_model_do_not_mix_their_scripts(make):
    script = {"root": [[task(f"say {number}") for number in range(30)], "done"]}

    def turn(messages, info):
        prompt = first_prompt(messages)
        if prompt == "root":
            return script["root"][sum(isinstance(message, ModelResponse) for message in messages)]
        return f"number {prompt.split()[-1]}"

    async with make(turn) as agent:
        events, _ = await read(agent.run("root"))
    answers = [event.content.splitlines()[-1] for event in of_kind(events, ToolOutput)]
    assert sorted(answers) == sorted(f"number {number}" for number in range(30))
