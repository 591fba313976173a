"""Agents whose models write code and calls as text, in each of the modes; the loop sees tool calls only."""

import asyncio

import pytest
from pydantic import BaseModel
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from support.agents import cell, of_kind, read
from support.tables import each

from freeact_sub.events import (
    ApprovalRequest,
    CodeExecutionOutput,
    Decision,
    Response,
    ResponseChunk,
    ToolCallStarted,
    ToolOutput,
)
from freeact_sub.testing import first_prompt

STEP = "I add them up:\n```python\nprint(20 + 22)\n```\nThis prints 41."
BLOCK_MODE = {"code_actions": "block"}


def recording(script):
    """A script that keeps what the model was sent and offered."""
    shown, offered = [], []

    def turn(messages, info):
        shown.append(messages)
        offered.append(([tool.name for tool in info.function_tools], info.instructions or ""))
        return script[sum(isinstance(message, ModelResponse) for message in messages)]

    return turn, shown, offered


async def test_a_block_is_run_like_a_tool_call(make):
    turn, shown, _ = recording([STEP, "It is 42."])
    async with make(turn, config=BLOCK_MODE) as agent:
        events, result = await read(agent.run("Add 20 and 22."))
    assert (result.status, result.output) == ("completed", "It is 42.")
    assert [event.args for event in of_kind(events, ToolCallStarted)] == [{"code": "print(20 + 22)"}]
    assert len(of_kind(events, ApprovalRequest)) == 1
    assert of_kind(events, CodeExecutionOutput)[0].text == "42"
    assert (result.usage.turns, result.usage.tool_calls) == (2, 1)
    assert [event.content for event in of_kind(events, Response)] == ["I add them up:\n", "\nThis prints 41.", "It is 42."]
    assert "".join(event.content for event in of_kind(events, ResponseChunk)) == "I add them up:\n\nThis prints 41.It is 42."
    assert "prints 41" not in str(shown[1]), "what it made up is not shown to it"


async def test_a_denied_block_is_not_run(make):
    async with make([STEP, "Then not."], config=BLOCK_MODE) as agent:
        events, result = await read(agent.run("Add 20 and 22."), lambda _: Decision(allowed=False, reason="no"))
    assert result.output == "Then not."
    assert not of_kind(events, CodeExecutionOutput)
    assert [event.outcome for event in of_kind(events, ToolOutput)] == ["denied"]


@each("code_actions", ["auto", "tool"])
@each(
    "text",
    [
        STEP,
        "Review: is shutil.rmtree safe?\n```python\nshutil.rmtree('build')\n```",
        '<tool_call>\n{"name": "task", "arguments": {"prompt": "say hello"}}\n</tool_call>',
        '{"name": "reset_kernel", "arguments": {}}',
        "task('say hello')",
    ],
)
async def test_text_is_never_run_with_tool_calls(make, code_actions, text):
    for script in ([text], [[cell("print(1)")], text]):
        async with make(script, config={"code_actions": code_actions}) as agent:
            events, result = await read(agent.run("Add 20 and 22."))
        assert (result.status, result.output) == ("completed", text)
        assert len(of_kind(events, ToolCallStarted)) == len(script) - 1
        assert of_kind(events, Response)[-1].content == text


async def test_a_block_beside_a_call_stays_text(make):
    async with make([[STEP, cell("print(1)")], "Done."], config=BLOCK_MODE) as agent:
        events, _ = await read(agent.run("Add 20 and 22."))
    assert [event.args for event in of_kind(events, ToolCallStarted)] == [{"code": "print(1)"}]
    assert of_kind(events, Response)[0].content == STEP


@pytest.mark.parametrize(("profile", "runs"), [("small", 1), ("full", 0), (None, 0)])
async def test_auto_is_block_with_the_small_profile(make, profile, runs):
    async with make([STEP, "It is 42."], config={"profile": profile}) as agent:
        events, result = await read(agent.run("Add 20 and 22."))
    assert len(of_kind(events, ToolCallStarted)) == runs
    assert result.output == ("It is 42." if runs else STEP)


async def test_a_setting_counts_more_than_the_profile(make):
    async with make([STEP], config={"profile": "small", "code_actions": "tool", "answer_check": "empty"}) as agent:
        events, result = await read(agent.run("Add 20 and 22."))
    assert not of_kind(events, ToolCallStarted)
    assert result.output == STEP


async def test_wrong_arguments_are_told_of_in_a_sentence(make):
    wrong = [ToolCallPart("execute_ipython_cell", {"type": "object", "required": ["code"]})]
    async with make([wrong, "So."]) as agent:
        events, _ = await read(agent.run("go"))
    [output] = of_kind(events, ToolOutput)
    assert output.content == (
        "execute_ipython_cell was not called; its arguments are wrong: code: Field required; "
        "type: Extra inputs are not permitted; required: Extra inputs are not permitted. It takes: description "
        "(may be left out), code."
    )


async def test_arguments_are_put_right_in_calls_too(make):
    wrong = [ToolCallPart("execute_ipython_cell", {"python": "```python\nx = 1\\nprint(x)\n```"})]
    async with make([wrong, "done"]) as agent:
        events, _ = await read(agent.run("go"))
    assert of_kind(events, CodeExecutionOutput)[0].text == "1"


async def test_block_mode_speaks_in_text_only(make):
    turn, shown, offered = recording([STEP, "```python\ntask('say hello')\n```", "It is 42."])

    def script(messages, info):
        return "hello" if first_prompt(messages) == "say hello" else turn(messages, info)

    async with make(script, config=BLOCK_MODE) as agent:
        events, result = await read(agent.run("Add 20 and 22, then greet."))
        kept = agent.history
    assert (result.status, result.output) == ("completed", "It is 42.")
    assert [event.tool_name for event in of_kind(events, ToolCallStarted)] == ["execute_ipython_cell", "task"]
    names, instructions = offered[0]
    assert names == []
    assert "```python" in instructions
    assert "\n- task(prompt, description=…, " in instructions
    parts = [part for message in shown[-1] for part in message.parts]
    assert all(isinstance(part, UserPromptPart | TextPart) for part in parts)
    assert parts[1].content == "I add them up:\n```python\nprint(20 + 22)\n```"
    assert parts[2].content == "Your block was run. The result:\n42"
    assert parts[3].content == "```python\ntask(prompt='say hello')\n```"
    assert parts[4].content.startswith("task was called. The result:\n[agent-")
    # what is kept is the same as of a model that makes calls
    assert sum(isinstance(part, ToolReturnPart) for message in kept for part in message.parts) == 2


async def test_block_mode_with_pictures_and_a_denial(make):
    turn, shown, _ = recording([STEP, "Then not."])
    async with make(turn, config=BLOCK_MODE) as agent:
        await read(agent.run("Add."), lambda _: Decision(allowed=False, reason="not now"))
    assert shown[1][2].parts[0].content == "Your block was not run. The result:\ndenied: not now"


async def test_block_mode_with_a_typed_answer(make):
    class Answer(BaseModel):
        value: int

    script = ["```python\nprint(42)\n```", "It is 42.", "```python\nfinal_result(value=42)\n```"]
    async with make(script, config=BLOCK_MODE, output_type=Answer) as agent:
        _, result = await read(agent.run("What is it?"))
    assert result.output == Answer(value=42)


@pytest.mark.parametrize("words", ["registry/x does not support tools", "tools param requires --jinja flag"])
async def test_a_server_that_refuses_tools_is_spoken_to_in_blocks(make, words):
    refused = []

    def script(messages, info):
        if info.function_tools:
            refused.append(info)
            return ModelHTTPError(400, "x", {"message": words})
        return STEP if len(messages) == 1 else "It is 42."

    async with make(script) as agent:
        _, result = await read(agent.run("Add 20 and 22."))
    assert (result.status, result.output) == ("completed", "It is 42.")
    assert len(refused) == 1


async def test_all_agents_whose_first_requests_a_server_refuses_go_on_in_blocks(make):
    refused, all_sent = [], asyncio.Event()

    def script(messages, info):
        del messages
        if not info.function_tools:
            return "It is 42."
        refused.append(info)
        if len(refused) == 5:
            all_sent.set()
        return [all_sent, ModelHTTPError(400, "x", {"message": "registry/x does not support tools"})]

    async with make(script) as agent:
        results = await asyncio.wait_for(agent.run_parallel(["Add 20 and 22."] * 5), 240)
    assert [(result.status, result.output) for result in results] == [("completed", "It is 42.")] * 5


async def test_other_refusals_are_errors(make):
    async with make([ModelHTTPError(400, "x", {"message": "bad"})]) as agent:
        _, result = await read(agent.run("go"))
    assert result.status == "failed"


async def test_a_reply_can_be_cancelled(make):
    async with make([["Let me see:\n```python\nprint(1)\n", asyncio.Event()]]) as agent:
        run = agent.run("Print 1.")
        async for event in run:
            if isinstance(event, ResponseChunk):
                run.cancel()
        result = await run.result()
        responses = [message for message in agent.history if isinstance(message, ModelResponse)]
    assert result.status == "cancelled"
    assert [part.part_kind for message in responses for part in message.parts] == ["text"]
