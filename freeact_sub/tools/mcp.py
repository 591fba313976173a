"""`McpToolset`: the tools of all MCP servers of an agent, as direct calls named `SERVER_TOOL`."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from freeact_sub.calls import McpCall
from freeact_sub.errors import McpError
from freeact_sub.mcp import McpResult, McpServers, McpTool
from freeact_sub.tools.result_bounds import model_content
from freeact_sub.tools.tool import Outcome, ToolResult
from freeact_sub.tools.toolset import MAX_RETRIES

MAX_NAME_CHARS = 64
"""The shortest bound on tool names among the model providers."""

ANY_ARGUMENTS = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))
"""The server validates its arguments itself, and says what is wrong with them."""


class McpToolset(AbstractToolset[Any]):
    """Offers the tools of all servers. A server that does not start is reported once; the others work."""

    def __init__(self, servers: McpServers, *, on_error: Callable[[McpError], None]) -> None:
        """Args: on_error: called once for each server whose tools cannot be listed."""
        self._servers = servers
        self._on_error = on_error
        self._failed: set[str] = set()
        self._listed: set[str] = set()
        self._tools: dict[str, tuple[str, McpTool]] = {}

    @property
    def id(self) -> str:
        """See pydantic-ai."""
        return "freeact-sub-mcp"

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """See pydantic-ai."""
        del ctx
        await asyncio.gather(*(self._list(server) for server in self._servers.names if server not in self._failed))
        return {
            name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=name,
                    description=tool.description,
                    parameters_json_schema=tool.parameters_json_schema,
                ),
                max_retries=MAX_RETRIES,
                args_validator=ANY_ARGUMENTS,
            )
            for name, (_, tool) in self._tools.items()
        }

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Any:
        """Calls the server; the model reads a failure as the result."""
        del ctx, tool
        server, mcp_tool = self._tools[name]
        try:
            result = await self._servers.call(server, mcp_tool.name, tool_args)
        except McpError as error:
            return model_content(ToolResult(text=f"[ERROR] {error}", outcome="failed"))
        return model_content(tool_result(result))

    def call_of(self, name: str, tool_args: dict[str, Any]) -> McpCall | None:
        """The call to judge before the tool runs. None: the tool does not belong to a server."""
        if name not in self._tools:
            return None
        server, tool = self._tools[name]
        return McpCall(server=server, tool=tool.name, args=dict(tool_args), read_only=tool.read_only)

    async def _list(self, server: str) -> None:
        if server in self._listed:
            return
        try:
            tools = await self._servers.tools(server)
        except McpError as error:
            if server not in self._failed:
                self._failed.add(server)
                self._on_error(error)
            return
        self._listed.add(server)
        for tool in tools:
            self._tools[self._free_name(mcp_tool_name(server, tool.name))] = (server, tool)

    def _free_name(self, wanted: str) -> str:
        """Returns a name that no other tool has yet."""
        numbered = (f"{wanted[: MAX_NAME_CHARS - 3]}_{number}" for number in range(2, 100))
        return wanted if wanted not in self._tools else next(other for other in numbered if other not in self._tools)


def mcp_tool_name(server: str, tool: str) -> str:
    """Returns the name of a server's tool for the model, acceptable to all providers."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}_{tool}")[:MAX_NAME_CHARS]


def tool_result(result: McpResult) -> ToolResult:
    """Turns a server's answer into a tool result."""
    text = f"[ERROR] {result.text}" if result.is_error else result.text
    outcome: Outcome = "failed" if result.is_error else "success"
    return ToolResult(text=text, images=result.images, outcome=outcome, sections=result.sections)
