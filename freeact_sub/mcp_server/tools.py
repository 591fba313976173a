"""`KernelTools` and `AgentTools`: the tools of the MCP server. The docstring of a tool describes it to the client."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, nullcontext, suppress
from typing import Annotated, Any, Final, TypeAlias

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import Field

from freeact_sub.agents import KernelNode
from freeact_sub.errors import FreeactError, InvalidRequestError
from freeact_sub.mcp_server.pending import PendingCall, PendingCalls, Returned, answer_by_values
from freeact_sub.mcp_server.reports import (
    BranchReport,
    CellReport,
    ChangesReport,
    CopyReport,
    DoneReport,
    RunReport,
    StatusReport,
    VariablesReport,
    cell_result,
    changes_result,
    output_address,
    plain_result,
    run_report,
    run_result,
    status_report,
)
from freeact_sub.mcp_server.served import ClientCell, LiveRun, ServedAgent, ServedAgents
from freeact_sub.models import require_model

Call: TypeAlias = Context[Any, Any]
KernelId: TypeAlias = Annotated[str, Field(description="A kernel: a branch's id, or a session's, which is its own kernel's")]
BranchId: TypeAlias = Annotated[str, Field(description="The id of a branch")]
READS: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)
MAKES: Final = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
CHANGES: Final = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
MOST_WAIT_SECONDS: Final = 50.0
"""Maximum seconds of a wait: many clients give a call 60 s."""
Prompt: TypeAlias = Annotated[str, Field(description="What to do, with all that the agent needs to know")]
Session: TypeAlias = Annotated[str, Field(description="The session")]
Continued: TypeAlias = Annotated[
    str, Field(description="Continues this session, with conversation and variables. Empty: a new one")
]


class KernelTools:
    """Tools for kernels: any other agent gets Python behind a wall, which can be copied, compared and thrown away."""

    def __init__(self, served: ServedAgents, pending: PendingCalls) -> None:
        self._served = served
        self._pending = pending

    def add_to(self, server: MCPServer[Any]) -> None:
        """Add the tools to a server."""
        server.add_tool(self.execute, annotations=CHANGES)
        server.add_tool(self.branch, annotations=MAKES)
        server.add_tool(self.diff, annotations=READS)
        server.add_tool(self.promote, annotations=CHANGES)
        server.add_tool(self.adopt, annotations=CHANGES)
        server.add_tool(self.variables, annotations=READS)
        server.add_tool(self.snapshot, annotations=MAKES)
        server.add_tool(self.close, annotations=CHANGES)

    async def execute(
        self,
        code: Annotated[str, Field(description="Python, as a cell: the last value is shown, `!cmd` runs a command")],
        ctx: Call,
        kernel_id: Annotated[str, Field(description="As `execute` or `branch` returned it. Empty: a new kernel")] = "",
    ) -> Annotated[CallToolResult, CellReport] | InputRequiredResult:
        """Run Python in a live kernel in the workspace and return what it printed and displayed.

        Variables stay from call to call. The kernel is behind a wall: it writes in the workspace only, and has a network
        only if the person allows it. Use `branch` before you try something that may go wrong.
        """

        async def run(served: ServedAgent, node: KernelNode | None) -> CallToolResult:
            output = await (served.agent.execute(code) if node is None else node.execute_asked(code))
            whole = output_address(served.session_id, output.output_file)
            return cell_result(served.session_id if node is None else node.node_id, output, whole)

        return await self._in_kernel(ctx, kernel_id, run, is_cell=True)

    async def branch(
        self,
        ctx: Call,
        kernel_id: KernelId,
        description: Annotated[str, Field(description="A short label")] = "",
        own_files: Annotated[
            bool, Field(description="Give it its own copy of the workspace, for `diff` and `promote`")
        ] = True,
    ) -> Annotated[CallToolResult, BranchReport] | InputRequiredResult:
        """Copy a live kernel, with all its variables, in a fraction of a second.

        Try something in the copy, compare, `promote` its files or `adopt` its variables, and `close` it.
        """

        async def copy(served: ServedAgent, node: KernelNode | None) -> CallToolResult:
            new = await (node or served.agent).branch(description, own_files=own_files)
            served.nodes[new.node_id] = new
            report = BranchReport(kernel_id=new.node_id, session_id=served.session_id, description=description)
            return plain_result(report)

        return await self._in_kernel(ctx, kernel_id, copy)

    async def diff(self, kernel_id: BranchId) -> Annotated[CallToolResult, ChangesReport]:
        """List what a branch has changed in its own copy of the workspace."""
        served, node = await self._branch(kernel_id)
        async with served.in_use():
            return changes_result(await told(node.diff()))

    async def promote(
        self, ctx: Call, kernel_id: BranchId
    ) -> Annotated[CallToolResult, ChangesReport] | InputRequiredResult:
        """Take a branch's changed files over into the workspace: all, or none if the workspace has changed there too."""

        async def take(served: ServedAgent, node: KernelNode | None) -> CallToolResult:
            return changes_result(await served.agent.promote(_is_branch(node)))

        return await self._in_kernel(ctx, kernel_id, take)

    async def adopt(
        self,
        ctx: Call,
        kernel_id: BranchId,
        names: Annotated[tuple[str, ...], Field(description="The variables. Empty: the whole kernel replaces it")] = (),
    ) -> Annotated[CallToolResult, VariablesReport] | InputRequiredResult:
        """Take variables of a branch over into its session's own kernel."""

        async def take(served: ServedAgent, node: KernelNode | None) -> CallToolResult:
            await served.agent.adopt(_is_branch(node), names or None)
            return plain_result(VariablesReport(kernel_id=served.session_id, variables=await served.agent.variables()))

        return await self._in_kernel(ctx, kernel_id, take)

    async def variables(self, kernel_id: KernelId) -> Annotated[CallToolResult, VariablesReport]:
        """List the variables of a kernel with their types and sizes."""
        try:
            served, node = await self._served.kernel(kernel_id)
        except FreeactError as error:
            raise ToolError(str(error)) from error
        async with served.in_use():
            found = await told((node or served.agent).variables())
            return plain_result(VariablesReport(kernel_id=kernel_id, variables=found))

    async def snapshot(
        self, session_id: Annotated[str, Field(description="The session")]
    ) -> Annotated[CallToolResult, CopyReport]:
        """Copy a session to disk as it is now, with its conversation and variables, and return the id of the copy.

        `execute` and `run` open the copy under that id, also after the server was restarted. They share the workspace.
        """
        served = await told(self._served.session(session_id))
        async with served.in_use():
            return plain_result(CopyReport(session_id=await told(served.agent.fork())))

    async def close(self, kernel_id: KernelId) -> Annotated[CallToolResult, DoneReport]:
        """Close a branch, which throws away what it has not handed over; or a session with all its branches.

        A closed session is opened again, with its variables, when a call names it.
        """
        await told(self._served.close(kernel_id))
        return plain_result(DoneReport(done=True))

    async def _branch(self, kernel_id: str) -> tuple[ServedAgent, KernelNode]:
        served, node = await told(self._served.kernel(kernel_id))
        try:
            return served, _is_branch(node)
        except InvalidRequestError as error:
            raise ToolError(str(error)) from error

    async def _in_kernel(
        self,
        ctx: Call,
        kernel_id: str,
        work: Callable[[ServedAgent, KernelNode | None], Awaitable[CallToolResult]],
        *,
        is_cell: bool = False,
    ) -> Returned:
        """Begin work in a kernel as a call that may ask."""

        async def begin() -> PendingCall:
            served, node = await self._served.kernel(kernel_id)
            stack = AsyncExitStack()
            live = await stack.enter_async_context(served.working())

            async def do() -> CallToolResult:
                async with stack:
                    with nullcontext() if cell is None else live.at_work(cell):
                        return await work(served, node)

            cell = ClientCell() if is_cell else None
            return PendingCall(served, live, asyncio.create_task(do(), name="works for a client"), cell)

        return await self._pending.call(ctx, begin)


def _is_branch(node: KernelNode | None) -> KernelNode:
    if node is None:
        raise InvalidRequestError("this is a session's own kernel: name a branch of it")
    return node


async def told(work: Awaitable[Any]) -> Any:
    """Await a result; the client reads the reason of a failure."""
    try:
        return await work
    except FreeactError as error:
        raise ToolError(str(error)) from error


class AgentTools:
    """Tools for agents: `run` does a task; others begin one and follow it, for clients whose calls must be short."""

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
