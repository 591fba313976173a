"""The tools for agents: `run` does a task; others begin one and follow it, for clients whose calls must be short."""

import asyncio
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import CallToolResult, InputRequiredResult
from pydantic import Field

from freeact_sub.mcp_server.kernel_tools import CHANGES
from freeact_sub.mcp_server.pending import PendingCall, PendingCalls
from freeact_sub.mcp_server.reports import RunReport, run_report, run_result
from freeact_sub.mcp_server.served import LiveRun, ServedAgent, ServedAgents
from freeact_sub.models import require_model


class AgentTools:
    """See above."""

    def __init__(self, served: ServedAgents, pending: PendingCalls) -> None:
        self._served = served
        self._pending = pending

    def add_to(self, server: MCPServer[Any]) -> None:
        """Add the tools to a server."""
        server.add_tool(self.run, annotations=CHANGES)

    async def run(
        self,
        prompt: Annotated[str, Field(description="What to do, with all that the agent needs to know")],
        ctx: Context[Any, Any],
        session_id: Annotated[
            str, Field(description="Continues this session, with conversation and variables. Empty: a new one")
        ] = "",
    ) -> Annotated[CallToolResult, RunReport] | InputRequiredResult:
        """Have an agent do a task in the workspace by running Python in its own kernel; it may start child agents.

        Returns its answer. `execute` with the same id reaches its variables. It can take minutes: progress is reported, and
        clients whose calls must be short use `start` and `status`.
        """

        async def begin() -> PendingCall:
            if not self._served.has_model:
                require_model(self._served.config)
            served = await self._served.session(session_id)
            live = await served.begin(prompt)
            return PendingCall(served, live, asyncio.create_task(_end_of(served, live), name="waits for a served run"))

        return await self._pending.call(ctx, begin)


async def _end_of(served: ServedAgent, live: LiveRun) -> CallToolResult:
    """Wait for the end of a run, and cancel it if nobody waits any more."""
    try:
        result = await live.ended()
    except asyncio.CancelledError:
        live.run.cancel()
        raise
    return run_result(run_report(served.session_id, result))
