"""`ask`: one request, counted as the agent's own."""

import asyncio
from dataclasses import replace

import pytest
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage
from support.agents import cell, of_kind, read, task
from support.tables import each
from support.waiting import turns

from freeact_sub.agents.ask import typed_answer_of
from freeact_sub.config.budget import Budget
from freeact_sub.events import AgentFinished, ApprovalRequest, CodeExecutionOutput, ToolOutput, UsageUpdated
from freeact_sub.testing import first_prompt


def ask(prompt, **arguments):
    return ToolCallPart("ask", {"prompt": prompt, **arguments})


def script_of(*turns, answer="blue"):
    def script(messages, info):
        if first_prompt(messages) == "root":
            return turns[min(sum(message.kind == "response" for message in messages), len(turns) - 1)]
        assert not info.function_tools
        assert not info.instructions
        return answer

    return script


async def test_the_answer_comes_back_and_is_counted(make):
    async with make(script_of([ask("colour?"), ask("colour of what?")], "done")) as agent:
        events, result = await read(agent.run("root"))
        requests = agent.scripted.requests
    assert not of_kind(events, ApprovalRequest)
    assert [event.content for event in of_kind(events, ToolOutput)] == ["blue", "blue"]
    assert result.usage.turns == requests == 4
    assert of_kind(events, UsageUpdated)[-1].usage == result.usage
    assert result.usage.tokens > 0


async def test_usage_tells_the_conversation_and_the_window_and_a_question_is_no_part_of_it(make):
    async with make(script_of([ask("colour?")], "done"), config={"context": {"window_tokens": 50_000}}) as agent:
        events, _ = await read(agent.run("root"))
        counted = agent.history[-1].usage
    first, asked, last = of_kind(events, UsageUpdated)
    assert asked.context_tokens is None
    assert first.context_tokens > 0
    assert last.context_tokens == counted.input_tokens + counted.output_tokens
    assert {event.window_tokens for event in (first, asked, last)} == {50_000}


async def test_ask_works_in_plan_mode_and_a_rule_can_forbid_it(make, tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text('deny = ["tool:ask"]\n')
    for files, outcome in (((), "success"), ((rules,), "denied")):
        async with make(script_of(ask("colour?"), "done"), config={"mode": "plan", "permission_files": files}) as agent:
            events, _ = await read(agent.run("root"))
        assert [event.outcome for event in of_kind(events, ToolOutput)] == [outcome]


async def test_only_models_of_the_settings_are_asked(make):
    turns = [ask("x", model="small"), ask("y", model="smal"), ask("z", model="openai-chat:gpt")]
    async with make(script_of(turns, "done"), config={"models": {"small": "test"}}) as agent:
        events, _ = await read(agent.run("root"))
    outputs = [event.content for event in of_kind(events, ToolOutput)]
    assert sorted(outputs) == [
        "[ERROR] there is no model 'openai-chat:gpt': the known ones are small (the setting `models`)",
        "[ERROR] there is no model 'smal': did you mean 'small'? (the setting `models`)",
        "success (no tool calls)",
    ]


async def test_a_provider_that_fails_is_an_answer(make):
    async with make(script_of(ask("colour?"), "done", answer=RuntimeError("down"))) as agent:
        events, result = await read(agent.run("root"))
        account = agent.debug.root.run.account
    [output] = of_kind(events, ToolOutput)
    assert output.content == "[ERROR] the model gave no answer: RuntimeError: down"
    assert result.status == "completed"
    assert account.spent.tokens == result.usage.tokens  # a request that fails is not billed


@pytest.mark.slow
async def test_a_budget_that_is_used_up_is_an_answer_and_what_is_reserved_is_given_back(make):
    config = {"budget": {"tokens": 20_000}}
    async with make(script_of([ask("colour? " + "x" * 80_000), ask("hue?")], "done"), config=config) as agent:
        events, result = await read(agent.run("root"))
        account = agent.debug.root.run.account
    outputs = [event.content for event in of_kind(events, ToolOutput)]
    assert sum(text.startswith("[ERROR] the model was not asked: the limit of tokens is reached") for text in outputs) == 1
    assert "blue" in outputs
    assert result.status == "limit"  # the long prompt is in the agent's own history as well
    assert account.in_flight.tokens == account.for_reports.tokens == 0
    assert account.spent.tokens == result.usage.tokens


async def test_a_cancel_ends_it(make):
    async with make(script_of(ask("colour?"), "done", answer=asyncio.Event())) as agent:
        run = agent.run("root")
        events, result = await read(run, on_event=lambda event: isinstance(event, UsageUpdated) and run.cancel())
    assert result.status == "cancelled"
    assert len(of_kind(events, AgentFinished)) == 1


async def test_questions_of_a_child_count_for_its_parent(make):
    def script(messages, info):
        prompt = first_prompt(messages).split("\n")[0]
        turns = {"root": [task("one"), "done"], "one": [ask("colour?"), "child is done"]}.get(prompt, ["blue"])
        return turns[min(sum(message.kind == "response" for message in messages), len(turns) - 1)]

    async with make(script, config={"headless": "allow"}) as agent:
        _, result = await read(agent.run("root"))
        assert result.tree_usage.turns == agent.scripted.requests == 5
    assert result.usage.turns == 2


@pytest.mark.slow
async def test_a_question_can_be_cancelled_at_any_step_and_leaves_no_task(make):
    async with make(script_of([ask("colour?")], answer=asyncio.Event())) as agent:
        await agent.run("root", budget=Budget(turns=0)).result()
        before = asyncio.all_tasks()
        for steps in range(60, 180, 2):
            agent.history.clear()
            run = agent.run("root")
            reader = asyncio.create_task(run.result())
            await turns(steps)
            run.cancel()
            assert (await asyncio.wait_for(reader, 120)).status == "cancelled"
            left = [found for found in asyncio.all_tasks() - before if "ScopedTask" in repr(found)]
            assert not left, f"after {steps} steps"


NUMBER = {"type": "integer", "minimum": 1}
OBJECT = {
    "type": "object",
    "title": "Place",
    "description": "Where it is.",
    "properties": {"town": {"$ref": "#/$defs/Town"}},
    "required": ["town"],
    "$defs": {"Town": {"type": "string"}},
}


@each("schema", [NUMBER, OBJECT, {"type": "object"}, {"type": "array", "items": {"type": "string"}}])
async def test_a_question_for_a_value_asks_as_pydantic_ai_would(schema):
    typed = typed_answer_of(schema)
    seen = []

    def answer(_, info):
        seen.append(info.model_request_parameters)
        return ModelResponse(parts=[ToolCallPart(typed.tool.name, {"value": 7})])

    await PydanticAgent(FunctionModel(answer), output_type=typed.output_type).run("x")
    [parameters] = seen
    assert [replace(tool, toolset_id=None) for tool in parameters.output_tools] == [typed.tool]
    assert (parameters.output_mode, parameters.allow_text_output) == ("tool", False)


def value(**args):
    return ToolCallPart("hand_over", args)


GOES_ON = {
    "a text where a value is wanted": (NUMBER, ["seven", value(value=7)], 7),
    "another tool": (NUMBER, [ToolCallPart("other", {}), value(value=7)], 7),
    "arguments that are not JSON": (NUMBER, [ToolCallPart("hand_over", "{"), value(value=7)], 7),
    "arguments that are no object": (NUMBER, [ToolCallPart("hand_over", "[7]"), value(value=7)], 7),
    "nothing": (None, ["", "blue"], "blue"),
    "thinking alone": (None, [ThinkingPart("hm"), "blue"], "blue"),
    "a value at once": (NUMBER, [value(value=7)], 7),
    "two values at once": (NUMBER, [[value(value=7), value(value=8)]], 7),
    "text before a value": (NUMBER, [["It is:", value(value=7)]], 7),
    "thinking before a text": (None, [[ThinkingPart("hm"), "bl", "ue"]], "blue"),
}


@each(("schema", "turns", "expected"), GOES_ON.values(), ids=GOES_ON)
async def test_an_incomplete_answer_is_asked_for_again_in_the_same_conversation(make, schema, turns, expected):
    prompts, answered, answers = [], asyncio.Event(), []

    def script(messages, info):
        done = sum(message.kind == "response" for message in messages)
        if first_prompt(messages) == "root":
            return [cell("'the kernel starts'"), [answered, "done"]][done]
        prompts.append(first_prompt(messages))
        return turns[done]

    async with make(script, config={"mode": "full"}) as agent:
        run = agent.run("root")
        async for event in run:
            if isinstance(event, CodeExecutionOutput):
                params = {"prompt": "colour?"} | ({"output": schema} if schema else {})
                answers.append(await agent.provider.kernels[0].ask_host("ask", **params))
                answered.set()
        result = await run.result()
    assert answers == [expected]
    assert prompts == ["colour?"] * len(turns)
    assert result.usage.turns == 2 + len(turns)  # each response is counted once


async def test_answers_that_stay_wrong_are_an_error_after_the_same_number_of_requests_as_ever(make):
    async with make(script_of(ask("colour?"), "done", answer="")) as agent:
        events, result = await read(agent.run("root"))
    [output] = of_kind(events, ToolOutput)
    assert output.content.startswith("[ERROR] the model gave no answer")
    assert result.usage.turns == 2 + 2


async def test_an_answer_that_the_provider_is_not_ready_with_is_waited_for_and_booked_once(make):
    used = RequestUsage(input_tokens=10, output_tokens=1)

    async def respond(messages, _):
        if any(message.kind == "response" for message in messages):
            return ModelResponse(parts=[TextPart("ue")], usage=used)
        return ModelResponse(parts=[TextPart("bl")], usage=used, state="suspended")

    async with make(script_of(ask("colour?"), "done"), config={"budget": {"tokens": 1_000_000}}) as agent:
        agent.scripted.function = respond  # the question's requests; the root's are streamed
        events, result = await read(agent.run("root"))
        account = agent.debug.root.run.account
    [output] = of_kind(events, ToolOutput)
    assert output.content == "blue"
    assert account.in_flight.tokens == 0
    assert account.spent.tokens == result.usage.tokens
