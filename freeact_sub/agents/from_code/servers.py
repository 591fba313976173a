"""What code in a cell does with MCP servers: it calls tools, reads resources, gets prompts (`agent.mcp.SERVER`).

`mcp_toolset` has the tools of the same servers for the model. `tell_progress` shows how far a call is, of either.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from freeact_sub.agents.life import TreeAgent
from freeact_sub.agents.requested_call import EndedCall
from freeact_sub.agents.requests import CodeCalls, new_call_id, tool_call_id_of
from freeact_sub.calls import McpCall
from freeact_sub.errors import McpError
from freeact_sub.events import Notice, ToolProgress
from freeact_sub.events.progress import CallProgress
from freeact_sub.kernels import CellClock
from freeact_sub.mcp import McpResult, McpServers
from freeact_sub.mcp.elicitation import Ask
from freeact_sub.spans import span
from freeact_sub.tools import head_and_tail
from freeact_sub.tools.mcp import McpToolset

ERROR_CHARS: Final = 10_000
"""The length of an exception's message in the kernel."""
READ: Final = "resources/read"
"""Stands for a tool in rules on reading resources, as the protocol names the request."""
GET: Final = "prompts/get"
"""The same for prompts."""
USUAL_WINDOW: Final = 128_000
"""The window of a model in tokens where nobody knows it."""


class McpRequests:
    """Handles `mcp_tools`, `mcp_call`, `mcp_offers`, `mcp_read` and `mcp_prompt`."""

    def __init__(self, calls: CodeCalls, servers: McpServers) -> None:
        self._calls = calls
        self._servers = servers
        self.handlers = {
            "mcp_tools": self._tools,
            "mcp_call": self._call,
            "mcp_offers": self._offers,
            "mcp_read": self._read,
            "mcp_prompt": self._prompt,
        }

    async def _tools(self, params: Mapping[str, Any], _clock: CellClock | None) -> dict[str, Any]:
        server = str(params.get("server"))
        listed = await self._servers.tools(server)
        version = self._servers.version(server)
        if version == params.get("known"):
            return {"version": version}
        tools = [
            {
                "name": tool.name,
                "description": tool.description,
                "parameters_json_schema": tool.parameters_json_schema,
                "output_json_schema": tool.output_json_schema,
            }
            for tool in listed
        ]
        return {"version": version, "tools": tools}

    async def _offers(self, params: Mapping[str, Any], _clock: CellClock | None) -> list[dict[str, Any]]:
        server = str(params.get("server"))
        if params.get("kind") == "prompts":
            return [asdict(prompt) for prompt in await self._servers.prompts(server)]
        return [asdict(resource) for resource in await self._servers.resources(server)]

    async def _call(self, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        server, tool, args = str(params.get("server")), str(params.get("tool")), _object(params.get("args"))
        read_only = self._servers.is_read_only(server, tool)
        call = McpCall(server=server, tool=tool, args=args, read_only=read_only)
        name, call_id = f"{server}.{tool}", new_call_id()
        hear = partial(tell_progress, self._calls.agent, name, call_id=call_id, tool_call_id=tool_call_id_of(clock))
        work = partial(self._servers.call, server, tool, args, on_progress=hear)
        return await self._carry_out(name, call, clock, work, call_id)

    async def _read(self, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        server, uri = str(params.get("server")), str(params.get("uri"))
        call = McpCall(server=server, tool=READ, args={"uri": uri}, read_only=True)
        return await self._carry_out(f"{server}.read", call, clock, lambda ask: self._servers.read(server, uri, ask))

    async def _prompt(self, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        server, name = str(params.get("server")), str(params.get("name"))
        given = {argument: str(value) for argument, value in _object(params.get("args")).items()}
        call = McpCall(server=server, tool=GET, args={"name": name, "arguments": given}, read_only=True)
        work = partial(self._servers.prompt, server, name, given)
        return await self._carry_out(f"{server}.prompt", call, clock, work)

    async def _carry_out(
        self,
        name: str,
        call: McpCall,
        clock: CellClock | None,
        run: Callable[[Ask], Awaitable[McpResult]],
        call_id: str = "",
    ) -> Any:
        ask = partial(self._calls.agent.ask_person, tool_call_id=tool_call_id_of(clock), clock=clock)

        async def work() -> EndedCall[McpResult]:
            with span("MCP call", server=call.server, tool=call.tool):
                result = await run(ask)
            return EndedCall(value=result, text=result.text, outcome="failed" if result.is_error else "success")

        result = await self._calls.carry_out(name, call, call.args, clock, work, call_id)
        if result.is_error:
            raise McpError(f"MCP tool {name} failed: {head_and_tail(result.text, ERROR_CHARS)}", server=call.server)
        return {"blocks": result.value} if result.has_blocks else {"value": result.value}


def _object(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def mcp_toolset(agent: TreeAgent, servers: McpServers) -> McpToolset:
    """The tools of an agent's servers for its model."""
    window = agent.window_tokens or USUAL_WINDOW
    return McpToolset(
        servers,
        on_error=lambda error: agent.emitter.put(Notice(content=str(error))),
        ask=agent.ask_person,
        on_progress=partial(tell_progress, agent),
        most_tokens=round(window * agent.shared.config.context.mcp_tools),
    )


def tell_progress(
    agent: TreeAgent, name: str, progress: CallProgress, *, call_id: str = "", tool_call_id: str | None
) -> None:
    """Put what a server tells of a call on the stream of an agent."""
    event = ToolProgress(tool_name=name, call_id=call_id, **vars(progress))
    agent.emitter.put(event, tool_call_id=tool_call_id)
