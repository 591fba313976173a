"""A server tells how far a call is: people see it, and the time of the call begins anew."""

import sys

import pytest
from pydantic_ai.messages import ToolCallPart
from support import sdk_mcp_server
from support.agents import cell, of_kind, read
from support.elsewhere import CANNOT_FORK
from support.mcp_host import McpHost

from freeact_sub import Agent, Config
from freeact_sub.config.schema import McpServerConfig
from freeact_sub.errors import McpError
from freeact_sub.events import CodeExecutionOutput, ToolCallStarted, ToolOutput, ToolProgress
from freeact_sub.mcp import connection
from freeact_sub.testing import ScriptedModel

pytestmark = [pytest.mark.mcp, pytest.mark.skipif(CANNOT_FORK, reason="forked kernels")]


def counting(**settings: float) -> McpServerConfig:
    return McpServerConfig(command=sys.executable, args=(sdk_mcp_server.__file__,), **settings)


async def test_calls_of_the_model_and_of_code_tell_how_far_they_are(tmp_path):
    code = "print(*await asyncio.gather(*(agent.mcp.demo.count(to=number, seconds=0.3) for number in (2, 3))))"
    script = [
        [ToolCallPart("demo_count", {"to": 5, "seconds": 1})],  # longer than a silent call may take
        [cell(f"import asyncio\n{code}")],
        "done",
    ]
    config = Config(workspace=tmp_path, mode="full", mcp_servers={"demo": counting(call_timeout_seconds=3)})
    async with Agent(config, model=ScriptedModel(script)) as agent:
        events, result = await read(agent.run("root"))
    assert result.status == "completed"
    assert of_kind(events, ToolOutput)[0].content == "counted to 5"
    assert [event.text.strip() for event in of_kind(events, CodeExecutionOutput)] == ["counted to 2 counted to 3"]
    calls = [event for event in of_kind(events, ToolCallStarted) if "count" in event.tool_name]
    told = of_kind(events, ToolProgress)
    assert len(calls) == 3
    for call in calls:
        its = [each for each in told if (each.tool_call_id, each.call_id) == (call.tool_call_id, call.call_id)]
        most = call.args["to"]
        assert {each.tool_name for each in its} == {call.tool_name}
        assert [(each.progress, each.total, each.message) for each in its][-1] == (most, most, f"number {most}")
        assert len(its) > 1


async def test_a_call_that_tells_without_end_ends_at_the_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "MAX_TIMES", 3)
    heard: list = []
    async with McpHost(tmp_path).servers(demo=counting(call_timeout_seconds=2)) as servers:
        with pytest.raises(
            McpError, match="has not ended within 3 times its 2 s; if it needs longer, raise its `call_timeout"
        ):
            await servers.call("demo", "count", {"to": 0, "seconds": 0.02}, None, heard.append)
        assert (await servers.call("demo", "add", {"a": 1, "b": 2})).text == "3"
    assert 2 <= len(heard) <= 6 / connection.TELL_SECONDS + 1
    assert heard[-1].total is None
