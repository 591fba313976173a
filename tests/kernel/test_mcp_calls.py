"""Calls of MCP tools by models and by code: what comes back, what is told of them, and how they end."""

import sys
from collections import Counter
from pathlib import Path

import pytest
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ToolCallPart, ToolReturnPart
from support.agents import cell, of_kind, read, root_text

from freeact_sub import Agent, Config
from freeact_sub.events import CodeExecutionOutput, ToolCallStarted, ToolOutput
from freeact_sub.testing import ScriptedModel

pytestmark = [pytest.mark.kernel, pytest.mark.mcp]

SERVER = {"demo": {"command": sys.executable, "args": [str(Path(__file__).parents[1] / "support" / "sdk_mcp_server.py")]}}


async def test_a_wrong_argument_of_an_mcp_tool_is_named_with_those_that_there_are(make):
    code = """
for arguments in ({"nme": "a"}, {"a": 1}, {"a": 1, "b": 2, "c": 3}):
    try:
        agent.mcp.demo.add(**arguments)
    except TypeError as error:
        print(error)
"""
    async with make([[cell(code)], "done"], mcp_servers=SERVER) as agent:
        events, _ = await read(agent.run("go"))
    assert root_text(events).splitlines() == [
        "there is no argument 'nme'; it takes: a, b",
        "missing a required argument: 'b'; it takes: a, b",
        "there is no argument 'c'; it takes: a, b",
    ]


async def test_an_mcp_call_that_code_gives_up_has_an_end_and_ends_at_its_server(make):
    code = """
import asyncio
call = asyncio.create_task(agent.mcp.demo.slow(name='given up', endless=True))
while not await agent.mcp.demo.still_running():
    pass
call.cancel()
try:
    await call
except asyncio.CancelledError:
    print("given up")
while running := await agent.mcp.demo.still_running():
    pass
print(running)
left = asyncio.create_task(agent.mcp.demo.slow(name='left behind', endless=True))
while not await agent.mcp.demo.still_running():
    pass
"""
    async with make([[cell(code)], "done"], mcp_servers=SERVER, mode="full") as agent:
        events, result = await read(agent.run("go"))
    assert result.status == "completed"
    assert root_text(events).splitlines() == ["given up", "[]"]
    begun = Counter(event.tool_name for event in of_kind(events, ToolCallStarted))
    ended = Counter(event.tool_name for event in of_kind(events, ToolOutput))
    assert begun == ended
    assert [event.outcome for event in of_kind(events, ToolOutput) if event.tool_name == "demo.slow"] == ["failed"] * 2


async def test_a_flood_of_an_mcp_server_is_bounded_for_the_model_and_in_the_events_and_whole_for_code(make, tmp_path):
    kinds = ("text", "parts", "resource", "error", "pictures")
    code = """
print(len(agent.mcp.demo.flood("parts")) > 20_000, len(agent.mcp.demo.records(5_000)))
try:
    agent.mcp.demo.flood("error")
except RuntimeError as error:
    print(len(str(error)) < 11_000)
"""
    script = [[ToolCallPart("demo_flood", {"kind": kind})] for kind in kinds]
    script += [[ToolCallPart("demo_records", {"count": 20_000})], [cell(code)], "done"]
    async with make(script, mcp_servers=SERVER, mode="full") as agent:
        events, _ = await read(agent.run("go"))
        returns = [part for message in agent.history for part in message.parts if isinstance(part, ToolReturnPart)]
    texts = dict(zip((*kinds, "records"), (part.model_response_str() for part in returns), strict=False))
    assert all(len(text) < 11_000 for text in texts.values())
    assert texts["text"].startswith("begin x")
    assert texts["text"].endswith("x end")
    assert texts["parts"].count("begin") == texts["parts"].count("x end") == 4
    assert texts["error"].startswith("[ERROR] ") or "begin" in texts["error"]
    assert "5 of 10 pictures are not shown to you: " in texts["pictures"]
    assert [file.media_type for file in returns[kinds.index("pictures")].files] == ["image/png"] * 5
    assert root_text(events) == "True 5000\nTrue"
    assert max(len(event.content) for event in of_kind(events, ToolOutput)) < 11_000
    assert [kind for kind, text in texts.items() if "all of it is in " not in text] == ["pictures"]
    sizes = sorted(file.stat().st_size for file in (tmp_path / ".freeact" / "outputs").rglob("*.txt"))
    assert len(sizes) == 5
    assert sizes[-1] > 6_000_000


async def test_code_sees_what_a_tool_returns_and_pictures_display_themselves(make):
    code = """
import inspect
print(inspect.signature(agent.mcp.demo.weather).return_annotation.__name__, inspect.signature(agent.mcp.demo.add))
print("degrees (float)" in agent.mcp.demo.weather.__doc__)
data = agent.mcp.demo.attachments()
print(data[0] == bytes([0, 1, 2]), data[0].uri, data[1]["uri"])
agent.mcp.demo.picture()
"""
    async with make([[cell(code)], "done"], mcp_servers=SERVER) as agent:
        events, _ = await read(agent.run("go"))
    assert root_text(events).splitlines()[:4] == [
        "Weather (a: int, b: int) -> int",
        "True",
        "True file:///data.bin file:///more.txt",
        "one pixel",
    ]
    (output,) = of_kind(events, CodeExecutionOutput)
    assert ["image/png" in bundle for bundle in output.displays] == [True]


async def test_code_reads_resources_and_prompts_of_a_server(make):
    code = """
print(await agent.mcp.demo.read("demo://words"), await agent.mcp.demo.read("demo://cities/Rome"))
print([entry["uri"] for entry in await agent.mcp.demo.resources()])
print(await agent.mcp.demo.prompt("review", language="C", name="Ann"))
print([(entry["name"], entry["arguments"][0]["required"]) for entry in await agent.mcp.demo.prompts()])
try:
    await agent.mcp.demo.read("demo://nothing")
except RuntimeError as error:
    print(error)
await agent.mcp.demo.read("demo://pixel")
"""
    async with make([[cell(code)], "done"], mcp_servers=SERVER, mode="auto") as agent:
        events, _ = await read(agent.run("go"))
    assert root_text(events).splitlines()[:5] == [
        "some words about Rome",
        "['demo://words', 'demo://pixel', 'demo://cities/{city}']",
        "Review this C code of Ann for bugs.",
        "[('review', True)]",
        "MCP server 'demo', asked for the resource 'demo://nothing', responded with an error: Unknown resource: demo://nothing",
    ]
    (output,) = of_kind(events, CodeExecutionOutput)
    assert ["image/png" in bundle for bundle in output.displays] == [True]
    assert [event.tool_name for event in of_kind(events, ToolCallStarted)][1:3] == ["demo.read", "demo.read"]


async def test_code_and_model_follow_as_a_server_changes_its_tools_and_nothing_else_of_the_prefix_changes(tmp_path):
    offered: list[list[str]] = []

    class Offered(AbstractCapability):
        async def before_model_request(self, ctx, request_context):
            tools = request_context.model_request_parameters.function_tools
            offered.append([tool.name for tool in tools if tool.name.startswith("demo_")])
            return request_context

    code = """
before = agent.mcp.demo.add
await agent.mcp.demo.grow()
while not hasattr(agent.mcp.demo, "grown_tool"):
    await agent.mcp.demo.still_running()
print(await agent.mcp.demo.grown_tool(), before is not None)
"""
    script = [
        [cell("import asyncio\n" + code)],
        [cell("agent.mcp.demo.grow()")],
        [ToolCallPart("demo_grown_tool", {})],
        "done",
    ]
    settings = Config(workspace=tmp_path, mcp_servers=SERVER, mode="full")
    async with Agent(settings, model=ScriptedModel(script), capabilities=[Offered()]) as agent:
        events, result = await read(agent.run("go"))
    assert result.status == "completed"
    assert root_text(events).splitlines()[0] == "grown True"
    first, *later = offered
    assert [names[: len(first)] for names in later] == [first] * 3
    assert [names[len(first) :] for names in later] == [["demo_grown_tool"]] * 3
    assert [event.content for event in of_kind(events, ToolOutput) if event.tool_name == "demo_grown_tool"] == ["grown"]
