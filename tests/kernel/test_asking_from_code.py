"""`agent.ask` and `agent.children` in cells of real kernels."""

import asyncio
import sys
from pathlib import Path

import pytest
from pydantic_ai.messages import ToolCallPart
from support.agents import cell, of_kind, read, task

from freeact_sub import Agent, Config
from freeact_sub.events import AgentFinished, CodeExecutionOutput, Decision, ToolCallStarted, ToolOutput
from freeact_sub.testing import ScriptedModel, first_prompt

pytestmark = pytest.mark.kernel

ASK = """
import asyncio
import sys
from pathlib import Path
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
    assert lines[9].startswith("output: 7 has no JSON schema")
    assert len(lines) == 10
    assert result.usage.turns == 2 + 9
    assert result.usage.tool_calls == 1 + 10  # what is wrong in itself is no call


ASK_SIDE_BY_SIDE = """
import asyncio
import sys
from pathlib import Path
answers = asyncio.gather(*(agent.ask(f"number {n}", label=f"judge {n}") for n in range(3)))
print("text of the cell comes between")
print(await answers)
"""


async def test_questions_side_by_side_are_told_apart(tmp_path):
    def script(messages, _info):
        prompt = first_prompt(messages)
        if prompt == "root":
            return cell(ASK_SIDE_BY_SIDE) if len(messages) == 1 else "done"
        return f"answer to {prompt}"

    events, _ = await run_cells(tmp_path, script)
    asked = [event for event in of_kind(events, ToolCallStarted) if event.tool_name == "ask"]
    answers = [event for event in of_kind(events, ToolOutput) if event.tool_name == "ask"]
    assert len({event.tool_call_id for event in [*asked, *answers]}) == 1  # that of their cell
    assert len({event.call_id for event in asked} - {""}) == 3
    assert {event.call_id: event.label for event in asked} == {event.call_id: event.label for event in answers}
    assert {event.label: event.content for event in answers} == {f"judge {n}": f"answer to number {n}" for n in range(3)}


CHILDREN = """
[child] = await agent.children.list()
print(child.status in ("queued", "starting", "running"), child.ended, child.description, child.task)
[child] = await agent.children.wait(child.agent_id, seconds=200)
print(child.ended, child.question)

def plain(child):
    print(agent.children.message(child.agent_id, "the second").endswith("has its answer."))
    [child] = agent.children.wait()
    print(child.ended, child.status, child.output)
    print(agent.children.cancel(child.agent_id).status, agent.children)
    try:
        agent.children.message("agent-0", "who?")
    except ValueError as error:
        print(str(error).startswith("'agent-0' is not a child of yours"))

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
        "True False the one one",
        "False which file?",
        "True",
        "True completed I took the second",
        "completed <agent.children: list, wait, message, cancel>",
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
    assert [event.outcome for event in of_kind(events, ToolOutput) if event.tool_name == "ask"] == ["denied"]


LOOPS = {
    "ask": "while True:\n    agent.ask('x')",
    "task": "while True:\n    agent.task('child')",
    "all caught": "while True:\n    try:\n        agent.ask('x')\n    except Exception:\n        pass",
    "gathered": "import asyncio\nwhile True:\n    await asyncio.gather(*(agent.ask('x') for _ in range(3)))",
}


@pytest.mark.parametrize("code", LOOPS.values(), ids=LOOPS)
async def test_a_cell_that_only_waits_ends_as_well(tmp_path, code):
    def script(messages, info):
        if first_prompt(messages) == "root":
            return [cell(code), "done"][sum(message.kind == "response" for message in messages)]
        return "answer"

    kernel = {"cell_timeout_seconds": 0.4}
    events, _ = await run_cells(tmp_path, script, kernel=kernel, budget={"requests": None, "children": None})
    [output] = of_kind(events, CodeExecutionOutput)
    assert output.status == "timeout"
    assert "[ERROR] The cell " in output.text


async def test_a_person_who_is_asked_for_a_child_does_not_cost_the_cell_its_time(tmp_path):
    def script(messages, info):
        done = sum(message.kind == "response" for message in messages)
        if first_prompt(messages) == "root":
            return [cell("print(agent.task('child').output)"), "done"][done]
        return [cell("6 * 7"), "answer"][done]

    settings = Config(workspace=tmp_path, kernel={"cell_timeout_seconds": 3})
    async with Agent(settings, model=ScriptedModel(script)) as agent:
        waiting = []

        def rule(request):
            if request.depth == 0:
                return Decision(allowed=True)
            waiting.append(
                asyncio.get_running_loop().call_later(32, request.approve)
            )  # longer than the root's cell may take
            return None

        events, _ = await read(agent.run("root"), rule)
    assert waiting
    assert [event.status for event in of_kind(events, CodeExecutionOutput)] == ["ok", "ok"]


async def test_loops_over_requests_and_children_end_at_the_bounds_of_the_run(tmp_path):
    code = "\nn = 0\nwhile True:\n    agent.{call}('x')\n    n += 1"

    def script(messages, info):
        done = sum(message.kind == "response" for message in messages)
        turns = [cell(code.format(call="task")), cell("print(n)"), cell(code.format(call="ask")), "not reached"]
        return turns[done] if first_prompt(messages) == "root" else "answer"

    settings = Config(workspace=tmp_path, headless="allow", budget={"requests": 40, "children": 6})
    async with Agent(settings, model=ScriptedModel(script)) as agent:
        events, result = await read(agent.run("root"))
        assert agent.debug.root.model.requests == 40
    outputs = [event.text for event in of_kind(events, CodeExecutionOutput)]
    assert "`budget.children`" in outputs[0]
    assert outputs[1] == "6"
    assert "`budget.requests`" in outputs[2]
    assert (result.status, "`budget.requests`" in result.error) == ("limit", True)


FORKED = """
import asyncio, multiprocessing, os
from concurrent.futures import ProcessPoolExecutor

CALLS = {
    "task": lambda: agent.task("never", inputs={"x": 1}),
    "ask": lambda: agent.ask("never"),
    "ask_user": lambda: agent.ask_user("Which?"),
    "a tool of a server": lambda: agent.mcp.demo.add(a=1, b=2),
    "an own tool": lambda: agent.tools.double(n=1),
    "shell": lambda: agent.shell("true", reason="r"),
    "children": lambda: agent.children.list(),
    "a node": lambda: agent.branch(),
}
agent.mcp.demo.add(a=1, b=2)  # its tools are known from now on, in the processes as well

def said(name):
    try:
        return f"{name}: answered {CALLS[name]()}"
    except Exception as error:
        return f"{name}: {type(error).__name__}: {error}"

async def awaited(name):
    try:
        return f"{name}: answered {await agent.ask(name) if name == 'ask' else await agent.task(name)}"
    except Exception as error:
        return f"{name}: {type(error).__name__}: {error}"

def in_a_loop(name):
    return asyncio.run(awaited(name))

with ProcessPoolExecutor(2) as pool:
    print(*pool.map(said, CALLS), *pool.map(in_a_loop, ["ask", "task"]), sep="\\n")
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(pool.map(said, ["task"])[0])
process = multiprocessing.get_context("fork").Process(target=lambda: print(said("ask"), flush=True))
process.start(); process.join()
if os.fork() == 0:
    print(said("an own tool"), flush=True)
    os._exit(0)
gone = os.wait()
"""


async def test_a_forked_process_that_asks_reads_at_once_what_to_do_instead(tmp_path):
    server = {"command": sys.executable, "args": [str(Path(__file__).parents[1] / "support" / "sdk_mcp_server.py")]}

    def double(n: int) -> int:
        return 2 * n

    config = Config(workspace=tmp_path, mode="full", mcp_servers={"demo": server})
    async with Agent(config, model=ScriptedModel([[cell(FORKED)], "done"]), tools=[double]) as agent:
        events, _ = await read(agent.run("root"))
    [output] = of_kind(events, CodeExecutionOutput)
    lines = output.text.splitlines()
    assert len(lines) == 13, output.text
    for line in lines:
        assert "RuntimeError" in line
        assert "ThreadPoolExecutor" in line
        assert "asyncio.gather" in line
    assert len({event.agent_id for event in events}) == 1
