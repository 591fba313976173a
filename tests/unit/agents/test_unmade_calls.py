"""A call of the model for which no tool is run counts and is told like any other, whoever makes the turns, at any depth."""

import pytest
from pydantic import BaseModel
from pydantic_ai import FunctionToolset
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import ModelResponse, ToolCallPart
from support.agents import cell, of_kind, read, task
from support.tables import each

from freeact_sub import export_events
from freeact_sub.events import AgentFinished, ToolCallStarted, ToolOutput
from freeact_sub.testing import first_prompt

LOOPS = {"ours": [], "pydantic-ai's": [AbstractCapability()]}
RUN = cell("1")
UNMADE = {
    "an unknown tool": [ToolCallPart("search_the_web", {"query": "walls"})],
    "a name in another case": [ToolCallPart("Execute_IPython_Cell", {"code": "1"})],
    "a name that is empty": [ToolCallPart("", {})],
    "a tool that its agent does not have": [ToolCallPart("ask_parent", {"question": "?"})],
    "wrong arguments": [ToolCallPart("execute_ipython_cell", {"code": 1})],
    "arguments that are no JSON": [ToolCallPart("reset_kernel", "{{{")],
    "arguments that are no object": [ToolCallPart("reset_kernel", "[1]")],
    "several at once": [ToolCallPart("one", {}), ToolCallPart("two", '{"x": 1}'), ToolCallPart("one", {})],
    "one beside a cell": [RUN, ToolCallPart("nothing", {"deep": {"list": [1, 2]}})],
    "one before a cell": [ToolCallPart("nothing", {}), RUN],
}


def model_of(turns, depth):
    """A model whose agents above `depth` start a child, and whose agent there makes these turns."""

    def respond(messages, _info):
        prompt, made = first_prompt(messages), sum(isinstance(message, ModelResponse) for message in messages)
        at_work = prompt.endswith(f"level {depth}")
        if at_work:
            return [ToolCallPart(call.tool_name, call.args) for call in turns[made]] if made < len(turns) else "done"
        return "done" if made else [task(f"level {int(prompt[-1]) + 1}")]

    return respond


def told(events, agent_id):
    """Each call of an agent with its answer, once each, the call first."""
    calls = {}
    for event in events:
        if event.agent_id == agent_id and isinstance(event, ToolCallStarted):
            assert event.tool_call_id not in calls
            calls[event.tool_call_id] = (event, [])
        elif event.agent_id == agent_id and isinstance(event, ToolOutput):
            calls[event.tool_call_id][1].append(event)
    assert all(len(outputs) == 1 for _, outputs in calls.values())
    return [(call, outputs[0]) for call, outputs in calls.values()]


@each("depth", [0, 1, 2])
@each("loop", LOOPS)
@each("case", UNMADE)
@pytest.mark.slow
async def test_each_call_of_the_model_counts_and_is_told(make, case, loop, depth):
    model = model_of([UNMADE[case], [cell("2")]], depth)
    config = {"mode": "full", "subagents": {"max_depth": 2}}
    async with make(model, config=config, capabilities=LOOPS[loop]) as agent:
        events, result = await read(agent.run("level 0"))
    assert result.status == "completed"
    finished = next(event for event in of_kind(events, AgentFinished) if event.depth == depth)
    calls = told(events, finished.agent_id)
    asked = [*UNMADE[case], cell("2")]
    assert sorted(call.tool_name for call, _ in calls) == sorted(part.tool_name for part in asked)
    assert finished.usage.tool_calls == len(asked)
    unmade = [(call, output) for call, output in calls if output.outcome == "retried"]
    assert len(unmade) == len(UNMADE[case]) - UNMADE[case].count(RUN)
    assert all(call.tool_name == output.tool_name and output.content for call, output in unmade)


@each("depth", [0, 1])
@each("loop", LOOPS)
@each("case", ["an unknown tool", "a name that is empty", "arguments that are no JSON"])
async def test_unmade_calls_use_up_a_budget_of_calls(make, case, loop, depth):
    model = model_of([UNMADE[case]] * 3, depth)
    bound = {"tool_calls": 2}
    config = {"mode": "full"} | ({"subagents": {"budget": bound}} if depth else {"budget": bound})
    async with make(model, config=config, capabilities=LOOPS[loop]) as agent:
        events, _ = await read(agent.run("level 0"))
    finished = next(event for event in of_kind(events, AgentFinished) if event.depth == depth)
    assert (finished.status, finished.usage.tool_calls) == ("limit", 2)
    assert "tool_calls" in finished.error
    assert len(told(events, finished.agent_id)) == 3


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_run_that_ends_with_them_has_told_of_all(make, loop):
    def always(*_):
        return [ToolCallPart("nothing", {}), ToolCallPart("nothing_else", {})]

    async with make(always, config={"mode": "full"}, capabilities=LOOPS[loop]) as agent:
        events, result = await read(agent.run("go"))
        assert result.status == "failed"
        calls = told(events, result.agent_id)
        assert len(calls) == result.usage.tool_calls == 2 * agent.scripted.requests
    assert {call.tool_name for call, _ in calls} == {"nothing", "nothing_else"}


class Answer(BaseModel):
    value: int


async def test_one_beside_a_typed_answer_is_told_and_ends_nothing(make):
    script = [[ToolCallPart("nothing", {}), ToolCallPart("final_result", {"value": 1})]]
    async with make(script, config={"budget": {"tool_calls": 0}}, output_type=Answer) as agent:
        events, result = await read(agent.run("go"))
    assert (result.status, result.output) == ("completed", Answer(value=1))
    assert [call.tool_name for call, _ in told(events, result.agent_id)] == ["nothing"]


async def test_a_tool_that_asks_for_another_try_is_told_once(make):
    tried = []

    def careful(number: int) -> str:
        tried.append(number)
        if number < 0:
            raise ModelRetry("not below zero")
        return "right"

    script = [[ToolCallPart("careful", {"number": -1})], [ToolCallPart("careful", {"number": 1})], "done"]
    toolset = FunctionToolset([careful], max_retries=2)
    async with make(script, config={"mode": "full"}, toolsets=[toolset]) as agent:
        events, result = await read(agent.run("go"))
    assert tried == [-1, 1]
    assert [output.outcome for _, output in told(events, result.agent_id)] == ["retried", "success"]
    assert result.usage.tool_calls == 2


async def test_an_id_that_a_server_sends_again_is_another_call(make):
    script = [[ToolCallPart(name, {}, "call_0")] for name in ("nothing", "nothing", "something")]
    async with make([*script, "done"], config={"mode": "full"}) as agent:
        events, result = await read(agent.run("go"))
    assert [event.tool_name for event in of_kind(events, ToolCallStarted)] == ["nothing", "nothing", "something"]
    assert [event.tool_name for event in of_kind(events, ToolOutput)] == ["nothing", "nothing", "something"]
    assert result.usage.tool_calls == 3


async def test_an_export_shows_them(make):
    script = [[ToolCallPart("search_the_web", {"query": "walls"})], "done"]
    async with make(script, config={"mode": "full"}) as agent:
        events, _ = await read(agent.run("go"))
    text = export_events(events, "md")
    assert "Call of search_the_web (retried)" in text
    assert "walls" in text
    assert "Unknown tool name" in text
