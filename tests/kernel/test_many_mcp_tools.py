"""Servers whose tools would take too much of a model's window: their schemas are not sent, and the model finds them."""

import sys

import pytest
from pydantic_ai.messages import ToolCallPart
from support import sdk_mcp_server
from support.agents import cell, of_kind, read
from support.elsewhere import CANNOT_FORK

from freeact_sub import Agent, Config
from freeact_sub.config.schema import McpServerConfig
from freeact_sub.events import ApprovalRequest, CodeExecutionOutput, ToolOutput
from freeact_sub.features.mcp_client.toolset import MATCHES, MOST_LINES, UnlistedTool, definition_of, search
from freeact_sub.mcp import McpTool
from freeact_sub.testing import ScriptedModel

SERVER = McpServerConfig(command=sys.executable, args=(sdk_mcp_server.__file__,))


@pytest.mark.mcp
@pytest.mark.skipif(CANNOT_FORK, reason="forked kernels")
@pytest.mark.parametrize("share", [0.0, 0.006])
async def test_tools_without_room_are_named_found_and_called_by_code(tmp_path, share):
    offered: list[dict[str, str]] = []

    def script(messages, info):
        offered.append({tool.name: tool.description or "" for tool in info.function_tools})
        return [
            [ToolCallPart("search_tools", {"query": "add numbers"})],
            [cell("print(await agent.mcp.demo.add(a=1, b=2))")],
            "done",
        ][sum(message.kind == "response" for message in messages)]

    servers = {"demo": SERVER, "other-one": SERVER}
    config = Config(workspace=tmp_path, mode="ask", mcp_servers=servers, context={"mcp_tools": share})
    async with Agent(config, model=ScriptedModel(script)) as agent:
        run = agent.run("root")
        asked = []
        events = []
        async for event in run:
            events.append(event)
            if isinstance(event, ApprovalRequest):
                asked.append(event)
                event.approve()
        result = await run.result()
    assert result.status == "completed"
    first = offered[0]
    assert offered == [first] * 3  # a provider's cache keeps what does not change
    assert ("demo_add" in first) == (share > 0)
    assert not any(name.startswith("other-one_") for name in first)
    told = first["search_tools"]
    assert "\nother-one:\n- add: Add two numbers.\n" in told
    assert ("\ndemo:\n" in told) == (share == 0)
    [found] = of_kind(events, ToolOutput)[:1]
    place = "agent.mcp.demo.add" if share == 0 else "agent.mcp['other-one'].add"
    assert f"await {place}(...)\nAdd two numbers.\nArguments: {{" in found.content
    assert [event.text.strip() for event in of_kind(events, CodeExecutionOutput)] == ["3"]
    assert "search_tools" not in {getattr(event.call, "tool_name", "") for event in asked}


@pytest.mark.mcp
async def test_tools_with_room_need_no_search(tmp_path):
    offered: set[str] = set()

    def script(_messages, info):
        offered.update(tool.name for tool in info.function_tools)
        return "done"

    config = Config(workspace=tmp_path, mode="full", mcp_servers={"demo": SERVER})
    async with Agent(config, model=ScriptedModel(script)) as agent:
        await read(agent.run("root"))
    assert "demo_add" in offered
    assert "search_tools" not in offered


def tool(name, description="", **properties):
    return UnlistedTool(
        "shop", McpTool(name=name, description=description, parameters_json_schema={"properties": properties})
    )


def test_the_best_matches_come_first():
    tools = [tool("list", "Lists orders."), tool("refund_order", "Pays back."), tool("weather", "Of a city.")]
    text = search(tools, "Refund an ORDER").text
    assert text.index("shop.refund_order") < text.index("shop.list")
    assert "weather" not in text
    nothing = search(tools, "zebra")
    assert (nothing.outcome, nothing.text) == (
        "failed",
        "No tool fits these words. The description of search_tools names them.",
    )
    assert search(tools, "…").outcome == "failed"


def test_names_and_matches_are_bounded():
    many = [
        tool(f"order_{number}", "An order.\n" * 50, **{f"a{at}": {"type": "string"} for at in range(500)})
        for number in range(1_000)
    ]
    told = definition_of(many).description
    assert told.count("\n- order_") == MOST_LINES
    assert told.endswith("\nand 700 more")
    assert len(told) < 50_000
    found = search(many, "order").text
    assert found.count("await agent.mcp.shop.order_") == MATCHES
    assert "all of it: help(agent.mcp.shop.order_0)" in found
    assert len(found) < 50_000


def test_a_name_that_is_no_python_name_is_shown_as_code_writes_it():
    odd = UnlistedTool("my-server", McpTool(name="a.b", description="Odd.", parameters_json_schema={}))
    assert "await agent.mcp['my-server']['a.b'](...)" in search([odd], "odd").text
