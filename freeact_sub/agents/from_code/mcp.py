"""Answers `mcp_tools` and `mcp_call`: MCP tools from code (`await agent.mcp.SERVER.TOOL(...)`)."""

from collections.abc import Mapping
from typing import Any, Final

from freeact_sub.agents.from_code.base import CodeCalls
from freeact_sub.agents.turn.calls import EndedCall
from freeact_sub.calls import McpCall
from freeact_sub.errors import McpError
from freeact_sub.kernels import CellClock
from freeact_sub.mcp import McpResult, McpServers
from freeact_sub.spans import span
from freeact_sub.tools import head_and_tail

ERROR_CHARS: Final = 10_000
"""The length of an exception's message in the kernel."""


class McpRequests:
    """See above."""

    def __init__(self, calls: CodeCalls, servers: McpServers) -> None:
        self._calls = calls
        self._servers = servers
        self.handlers = {"mcp_tools": self._tools, "mcp_call": self._call}

    async def _tools(self, params: Mapping[str, Any], _clock: CellClock | None) -> list[dict[str, Any]]:
        return [
            {
                "name": tool.name,
                "description": tool.description,
                "parameters_json_schema": tool.parameters_json_schema,
            }
            for tool in await self._servers.tools(str(params.get("server")))
        ]

    async def _call(self, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        server, tool, args = str(params.get("server")), str(params.get("tool")), params.get("args")
        call = McpCall(
            server=server,
            tool=tool,
            args=dict(args) if isinstance(args, Mapping) else {},
            read_only=self._servers.is_read_only(server, tool),
        )
        name = f"{server}.{tool}"

        async def work() -> EndedCall[McpResult]:
            with span("MCP call", server=server, tool=tool):
                result = await self._servers.call(server, tool, call.args)
            return EndedCall(value=result, text=result.text, outcome="failed" if result.is_error else "success")

        result = await self._calls.carry_out(name, call, call.args, clock, work)
        if result.is_error:
            raise McpError(f"MCP tool {name} failed: {head_and_tail(result.text, ERROR_CHARS)}", server=server)
        return result.value
