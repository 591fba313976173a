"""The tools for agents: `run` does a task; others begin one and follow it, for clients whose calls must be short."""

import asyncio
from contextlib import suppress
from typing import Annotated, Any, Final, TypeAlias

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, InputRequiredResult
from pydantic import Field

from freeact_sub.errors import FreeactError
from freeact_sub.mcp_server.kernel_tools import CHANGES, READS, told
from freeact_sub.mcp_server.pending import PendingCall, PendingCalls
from freeact_sub.mcp_server.questions import answer_by_values
from freeact_sub.mcp_server.reports import (
    DoneReport,
    RunReport,
    StatusReport,
    plain_result,
    run_report,
    run_result,
    status_report,
)
from freeact_sub.mcp_server.served import LiveRun, ServedAgent, ServedAgents
from freeact_sub.models import require_model

MOST_WAIT_SECONDS: Final = 50.0
"""Many clients give a call 60 s."""
Prompt: TypeAlias = Annotated[str, Field(description="What to do, with all that the agent needs to know")]
Session: TypeAlias = Annotated[str, Field(description="The session")]
Continued: TypeAlias = Annotated[
    str, Field(description="Continues this session, with conversation and variables. Empty: a new one")
]


class AgentTools:
    """See above."""

    def __init__(self, served: ServedAgents, pending: PendingCalls) -> None:
        self._served = served
        self._pending = pending

    def add_to(self, server: MCPServer[Any]) -> None:
        """Add the tools to a server."""
        server.add_tool(self.run, annotations=CHANGES)
        server.add_tool(self.start, annotations=CHANGES)
        server.add_tool(self.status, annotations=READS)
        server.add_tool(self.answer, annotations=CHANGES)
        server.add_tool(self.cancel, annotations=CHANGES)

    async def run(
        self,
        prompt: Prompt,
        ctx: Context[Any, Any],
        session_id: Continued = "",
    ) -> Annotated[CallToolResult, RunReport] | InputRequiredResult:
        """Have an agent do a task in the workspace by running Python in its own kernel; it may start child agents.

        Returns its answer. `execute` with the same id reaches its variables. It can take minutes: progress is reported, and
        clients whose calls must be short use `start` and `status`.
        """

        async def begin() -> PendingCall:
            served, live = await self._begin(prompt, session_id)
            return PendingCall(served, live, asyncio.create_task(_end_of(served, live), name="waits for a served run"))

        return await self._pending.call(ctx, begin)

    async def start(self, prompt: Prompt, session_id: Continued = "") -> Annotated[CallToolResult, StatusReport]:
        """Begin what `run` does, and return at once. Follow it with `status`."""
        served, _ = await told(self._begin(prompt, session_id))
        return plain_result(status_report(served))

    async def status(
        self,
        session_id: Session,
        wait_seconds: Annotated[
            float, Field(ge=0, le=MOST_WAIT_SECONDS, description="Wait so long for an end or a question")
        ] = 0,
    ) -> Annotated[CallToolResult, StatusReport]:
        """Tell how far a session is: at work and with what, which questions it waits for, or how its last run ended."""
        served = await told(self._served.session(session_id))
        async with served.in_use():
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_seconds):
                    while (live := served.live) is not None and not live.asked:
                        await live.next_change.wait()
            return plain_result(status_report(served))

    async def answer(
        self,
        request_id: Annotated[str, Field(description="Of a question of `status`")],
        values: Annotated[dict[str, Any], Field(description="The answer, by the question's JSON schema `answer`")],
    ) -> Annotated[CallToolResult, DoneReport]:
        """Answer a question of a run that `start` began. Ask the person what to answer: it decides what the agent may do."""
        for served in self._served:
            live = served.live
            if live is not None and (asked := live.asked.get(request_id)) is not None:
                try:
                    answer_by_values(asked, values)
                except ValueError as error:
                    raise ToolError(str(error)) from error
                live.closed(request_id)
                return plain_result(DoneReport(done=True))
        return plain_result(DoneReport(done=False))

    async def cancel(self, session_id: Session) -> Annotated[CallToolResult, DoneReport]:
        """Cancel what a session is doing, with all its child agents. Its kernel and variables stay."""
        served = await told(self._served.session(session_id))
        live = served.live
        if live is None or not live.run.cancel():
            return plain_result(DoneReport(done=False))
        with suppress(FreeactError):
            await live.ended()
        return plain_result(DoneReport(done=True))

    async def _begin(self, prompt: str, session_id: str) -> tuple[ServedAgent, LiveRun]:
        if not self._served.has_model:
            require_model(self._served.config)
        served = await self._served.session(session_id)
        return served, await served.begin(prompt)


async def _end_of(served: ServedAgent, live: LiveRun) -> CallToolResult:
    """Wait for the end of a run, and cancel it if nobody waits any more."""
    try:
        result = await live.ended()
    except asyncio.CancelledError:
        live.run.cancel()
        raise
    return run_result(run_report(served.session_id, result))
