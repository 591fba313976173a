"""`agent.ask` and `agent.children` in cells of real kernels."""

import pytest
from pydantic_ai.messages import ToolCallPart
from support.agents import cell, of_kind, read, task

from freeact_sub import Agent, Config
from freeact_sub.events import AgentFinished, CodeExecutionOutput, ToolCallStarted
from freeact_sub.testing import ScriptedModel, first_prompt

pytestmark = pytest.mark.kernel

ASK = """
import asyncio
print(await agent.ask("plain"))
print(await asyncio.gather(*(agent.ask(f"number {n}") for n in range(3))))
print(await agent.ask("a value", output={"type": "object", "properties": {"mark": {"type": "integer"}}}))
print(await agent.ask("a number", output=int) + 1)
print(await agent.ask("other", model="small"))

def plain():
    print(agent.ask("a number", output=float))
    for arguments in (
        {"prompt": ""}, {"prompt": "x", "model": "smal"}, {"prompt": "a word", "output": int}, {"prompt": "x", "output": 7}
    ):
        try:
            agent.ask(**arguments)
        except (RuntimeError, ValueError, TypeError) as error:
            print(error)

plain()
"""


async def run_cells(tmp_path, script, **config):
    settings = Config(workspace=tmp_path, headless="allow", **config)
    async with Agent(settings, model=ScriptedModel(script)) as agent:
        events, result = await read(agent.run("root"))
    assert result.status == "completed"
    return events, result


async def test_ask(tmp_path):
    def script(messages, info):
        prompt = first_prompt(messages)
        if prompt == "root":
            return cell(ASK) if len(messages) == 1 else "done"
        if info.output_tools:
            answers = {"a value": {"mark": 2}, "a number": {"value": 41}, "a word": {"value": "forty"}}
            return ToolCallPart(info.output_tools[0].name, answers[prompt])
        return f"answer to {prompt}"

    events, result = await run_cells(tmp_path, script, models={"small": "test"})
    [output] = of_kind(events, CodeExecutionOutput)
    lines = output.text.splitlines()
    assert lines[:8] == [
        "answer to plain",
        "['answer to number 0', 'answer to number 1', 'answer to number 2']",
        "{'mark': 2}",
        "42",
        "success (no tool calls)",
        "41.0",
        "agent.ask: prompt: String should have at least 1 character",
        "there is no model 'smal': did you mean 'small'? (the setting `models`)",
    ]
    assert "valid integer" in lines[8]
    assert lines[9].startswith("output: there is no JSON schema of 7")
    assert len(lines) == 10
    assert result.usage.turns == 2 + 9
    assert result.usage.tool_calls == 1 + 10  # what is wrong in itself is no call


CHILDREN = """
[child] = await agent.children.list()
print(child.status in ("queued", "starting", "running"), child.ended, child.description)
[child] = await agent.children.wait(child.agent_id, seconds=30)
print(child.ended, child.question)

def plain(child):
    print(agent.children.send(child.agent_id, "the second").endswith("has its answer."))
    [child] = agent.children.wait()
    print(child.ended, child.status, child.output)
    print(agent.children.cancel(child.agent_id).status, agent.children)
    try:
        agent.children.send(child.agent_id, "too late")
    except RuntimeError as error:
        print(str(error).endswith("has ended already"))

plain(child)
"""


async def test_children(tmp_path):
    def script(messages, info):
        done = sum(message.kind == "response" for message in messages)
        if first_prompt(messages).startswith("root"):
            return [task("one", background=True, description="the one"), cell(CHILDREN), "done"][done]
        if done == 0:
            return ToolCallPart("ask_parent", {"question": "which file?"})
        return f"I took {messages[-1].parts[0].content}"

    events, _ = await run_cells(tmp_path, script)
    [output] = of_kind(events, CodeExecutionOutput)
    assert output.text.splitlines() == [
        "True False the one",
        "False which file?",
        "True",
        "True completed I took the second",
        "completed <agent.children: list, wait, send, cancel>",
        "True",
    ]
    assert [event.tool_name for event in of_kind(events, ToolCallStarted) if event.depth == 0].count("subagents") == 6
    assert [event.status for event in of_kind(events, AgentFinished)] == ["completed", "completed"]


async def test_code_has_no_tool_that_its_agent_s_type_does_not_have(tmp_path):
    (tmp_path / "kind.md").write_text("---\ndescription: x\ntools: {deny: [ask]}\n---\n")

    def script(messages, info):
        done = sum(message.kind == "response" for message in messages)
        if first_prompt(messages).startswith("root"):
            return [task("one", agent="kind"), "done"][done]
        code = "try:\n    agent.ask('x')\nexcept PermissionError as error:\n    print(error)"
        return [cell(code), "done"][done]

    events, _ = await run_cells(tmp_path, script, agent_folders=(tmp_path,))
    [output] = of_kind(events, CodeExecutionOutput)
    assert output.text == "denied: agents of type 'kind' do not have the tool ask"
