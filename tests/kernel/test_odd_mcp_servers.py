"""Servers whose tools, names and answers are odd, used by a whole agent: by its model and by its code."""

import json
from typing import Any

import pytest
from pydantic_ai.messages import ToolCallPart, ToolReturnPart
from support.agents import cell, of_kind, read, root_text
from support.odd_mcp_server import GOOD, OBJECT, config

from freeact_sub.events import Notice

pytestmark = [pytest.mark.kernel, pytest.mark.mcp]


def answers(agent: Any) -> list[str]:
    return [
        part.model_response_str()
        for message in agent.history
        for part in message.parts
        if isinstance(part, ToolReturnPart) and part.tool_name != "execute_ipython_cell"
    ]


async def test_what_is_left_out_of_a_list_is_told_and_the_rest_works(make):
    odd = [
        {"inputSchema": OBJECT},
        "no tool",
        {"name": "null", "description": None, "inputSchema": {"required": None, "properties": {"a": {"anyOf": None}}}},
        {**GOOD, "description": "another"},
        {"name": "as_task", "inputSchema": OBJECT, "execution": {"taskSupport": "required"}},
    ]
    script = [[ToolCallPart("w_good", {}), ToolCallPart("w_null", {"a": 1})], "done"]
    async with make(script, mcp_servers={"w": config([GOOD, *odd], [GOOD, {"name": "last"}])}, mode="full") as agent:
        events, result = await read(agent.run("go"))
        assert answers(agent) == ['["good", {}]', '["null", {"a": 1}]']
    assert result.status == "completed"
    assert [event.content for event in of_kind(events, Notice)] == [
        "MCP server 'w': the tool 'as_task' can only be called as a task, which is not possible here",
        "MCP server 'w': entries of its list of tools that have no name are left out: 2, 3",
        "MCP server 'w': what is not valid in the input schema of a tool is left out; tools: 'null'",
        "MCP server 'w': it lists the tool 'good' twice: the first one counts",
        "MCP server 'w': what is not valid in the input schema of a tool is left out; tools: 'last'",
    ]


async def test_no_tool_of_a_server_takes_the_name_of_a_built_in_one(make):
    servers = {
        "reset": config([{"name": "kernel", "inputSchema": OBJECT}]),
        "ask": config([{"name": "parent", "inputSchema": OBJECT}, {"name": "parent_", "inputSchema": OBJECT}]),
        "hand": config([{"name": "over", "inputSchema": OBJECT}]),
    }
    names = ("reset_kernel_2", "ask_parent_2", "ask_parent_", "hand_over_2")
    async with make([[ToolCallPart(name, {}) for name in names], "done"], mcp_servers=servers, mode="full") as agent:
        _, result = await read(agent.run("go"))
        assert [json.loads(text)[0] for text in answers(agent)] == ["kernel", "parent", "parent_", "over"]
    assert result.status == "completed"


async def test_arguments_that_no_provider_takes_have_other_names_for_models(make):
    find = {
        "name": "find",
        "inputSchema": {"type": "object", "properties": {"m²": {}, "$a": {}, "_a": {}}, "required": ["m²"]},
    }
    script = [[ToolCallPart("w_find", {"m_": 1, "_a_2": 2, "_a": 3})], "done"]
    async with make(script, mcp_servers={"w": config([find])}, mode="full") as agent:
        await read(agent.run("go"))
        assert json.loads(answers(agent)[0]) == ["find", {"m²": 1, "$a": 2, "_a": 3}]


async def test_code_calls_tools_of_any_name_and_help_tells_how(make):
    tools = [
        {"name": name, "inputSchema": {"type": "object", "properties": {"user-id": {}, "user_id": {}}}}
        for name in ("", "a-b", "a_b")
    ]
    code = """
server = agent.mcp["my-server"]
print(server is agent.mcp.my_server, dir(server))
print(await server["a-b"](user_id_2=1, user_id=2), await server.a_b(**{"user-id": 3}), await server.tool_())
print(server.a_b_2.__doc__)
"""
    async with make([[cell(code)], "done"], mcp_servers={"my-server": config(tools)}, mode="full") as agent:
        events, _ = await read(agent.run("go"))
    assert root_text(events).splitlines() == [
        "True ['a_b', 'a_b_2', 'prompt', 'prompts', 'read', 'resources', 'tool_']",
        '["a-b", {"user-id": 1, "user_id": 2}] ["a_b", {"user-id": 3}] ["", {}]',
        "a-b",
        "",
        "The server calls this tool 'a-b'.",
        "",
        "Args:",
        "    user_id_2: The server calls it 'user-id'.",
        "    user_id",
    ]


async def test_numbers_that_json_does_not_have_are_none_in_code_and_null_for_a_server(make):
    stats = '{"content": [], "structuredContent": {"mean": NaN, "max": Infinity, "n": 1.5}}'
    tools = [
        {"name": "stats", "inputSchema": OBJECT},
        {"name": "echo", "inputSchema": {"type": "object", "properties": {"v": {}}}},
    ]
    code = """
print(await agent.mcp.w.stats())
print(await agent.mcp.w.echo(v=[float("nan"), float("-inf"), 1.5]))
"""
    async with make([[cell(code)], "done"], mcp_servers={"w": config(tools, stats=stats)}, mode="full") as agent:
        events, _ = await read(agent.run("go"))
    assert root_text(events).splitlines() == ["{'mean': None, 'max': None, 'n': 1.5}", '["echo", {"v": [null, null, 1.5]}]']
