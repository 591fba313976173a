"""What one agent has open: its kernel and its MCP connections. Closed in reverse, for certain."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from freeact_sub.agents.tree import AgentNode
from freeact_sub.approvals import Gate
from freeact_sub.budget import Usage
from freeact_sub.calls import McpCall
from freeact_sub.closing import carry_out, end_task
from freeact_sub.errors import ApprovalDeniedError, FreeactError, KernelLostError, McpError
from freeact_sub.events import KernelLost, ToolCallStarted, ToolOutput
from freeact_sub.kernels import CellClock, Kernel, KernelSpec
from freeact_sub.mcp import McpServers

MAX_DEATHS: Final = 3
"""A kernel that dies this often in one run ends the run."""

OUTPUT_FOLDER: Final = Path(".freeact") / "outputs"

logger = logging.getLogger(__name__)


class AgentKernel:
    """The agent's kernel: started in the background, watched, replaced when it dies."""

    def __init__(self, node: AgentNode, host: "HostRequests", mcp_servers: tuple[str, ...]) -> None:
        self._node = node
        self._host = host
        settings = node.tree.config.kernel
        self._spec = KernelSpec(
            owner_id=node.agent_id,
            python=settings.python,
            workspace=node.tree.config.workspace,
            environment=settings.environment(),
            start_timeout_seconds=settings.start_timeout_seconds,
            mcp_servers=mcp_servers,
        )
        self._starting: asyncio.Task[Kernel] | None = None
        self._watching: set[asyncio.Task[None]] = set()
        self._closed = False
        self.deaths = 0
        """In the present run."""

    def start_soon(self) -> None:
        """Begin to start the kernel, unless there is one."""
        if not self._closed and (self._starting is None or (self._starting.done() and self._failed(self._starting))):
            self._starting = asyncio.create_task(self._start(), name=f"start kernel of {self._node.agent_id}")

    async def get(self) -> Kernel:
        """See `KernelAccess`."""
        while not self._closed:
            if self.deaths >= MAX_DEATHS:
                raise KernelLostError(f"the kernel died {self.deaths} times in this run")
            self.start_soon()
            starting = self._starting
            if starting is not None:
                await asyncio.wait({starting})
            if starting is not None and starting is self._starting:
                return starting.result()
            # it was reset, or has died, meanwhile: there is another one
        raise KernelLostError("the agent is closed")

    async def reset(self) -> None:
        """See `KernelAccess`."""
        await carry_out(self._drop())
        await self.get()

    async def aclose(self) -> None:
        """End the kernel, in whatever state it is, for good."""
        self._closed = True
        await carry_out(self._drop())

    async def _start(self) -> Kernel:
        kernel = await self._node.tree.provider.start(self._spec, self._host.answer)
        watching = asyncio.create_task(self._watch(kernel), name=f"watch kernel of {self._node.agent_id}")
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        return kernel

    async def _watch(self, kernel: Kernel) -> None:
        """Tell of the kernel's death at once, and start a new one."""
        reason = await kernel.wait_lost()
        self.deaths += 1
        self._node.emitter.put(KernelLost(reason=f"{reason}; all variables and imports are lost"))
        self._starting = None
        if self.deaths < MAX_DEATHS:
            self.start_soon()
        await carry_out(kernel.aclose())

    async def _drop(self) -> None:
        """End what there is: first what starts, so that nobody begins to watch it."""
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            await asyncio.wait({starting})
        for watching in tuple(self._watching):
            await end_task(watching)
        if starting is not None and not self._failed(starting):
            await starting.result().aclose()

    def _failed(self, starting: asyncio.Task[Kernel]) -> bool:
        return starting.cancelled() or starting.exception() is not None


class HostRequests:
    """Answers what code in the agent's kernel asks of its host."""

    def __init__(self, node: AgentNode, mcp: McpServers) -> None:
        self._node = node
        self._mcp = mcp

    async def answer(self, method: str, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        """See `HostRequestHandler`. Everything in `params` was written by code in the kernel: nothing of it is trusted."""
        match method:
            case "mcp_tools":
                return await self._mcp_tools(str(params.get("server")))
            case "mcp_call":
                args = params.get("args")
                server, tool = str(params.get("server")), str(params.get("tool"))
                call = McpCall(
                    server=server,
                    tool=tool,
                    args=dict(args) if isinstance(args, Mapping) else {},
                    read_only=self._mcp.is_read_only(server, tool),
                )
                return await self._mcp_call(call, clock)
        raise FreeactError(f"the host does not know the request {method!r}")

    async def _mcp_tools(self, server: str) -> list[dict[str, Any]]:
        return [
            {
                "name": tool.name,
                "description": tool.description,
                "parameters_json_schema": tool.parameters_json_schema,
            }
            for tool in await self._mcp.tools(server)
        ]

    async def _mcp_call(self, call: McpCall, clock: CellClock | None) -> Any:
        emitter, gate = self._node.emitter, self._node.tree.gate
        tool_call_id = clock.tool_call_id if clock is not None else None
        name = f"{call.server}.{call.tool}"
        self._node.spend(Usage(tool_calls=1))
        await emitter.emit(ToolCallStarted(tool_name=name, args=call.args), tool_call_id=tool_call_id)
        try:
            await self._check(gate, call, clock)
            result = await self._mcp.call(call.server, call.tool, call.args)
        except FreeactError as error:
            denied = isinstance(error, ApprovalDeniedError)
            output = ToolOutput(tool_name=name, content=str(error), outcome="denied" if denied else "failed")
            await emitter.emit(output, tool_call_id=tool_call_id)
            raise
        output = ToolOutput(tool_name=name, content=result.text, outcome="failed" if result.is_error else "success")
        await emitter.emit(output, tool_call_id=tool_call_id)
        if result.is_error:
            raise McpError(f"MCP tool {name} failed: {result.text}", server=call.server)
        return result.value

    async def _check(self, gate: Gate, call: McpCall, clock: CellClock | None) -> None:
        await gate.check(
            call,
            self._node.policy,
            self._node.emitter,
            path=self._node.path,
            tool_call_id=clock.tool_call_id if clock is not None else None,
            pause=clock.paused() if clock is not None else None,
        )


class AgentResources:
    """Everything one agent has open."""

    def __init__(self, node: AgentNode) -> None:
        tree = node.tree
        self.output_folder = tree.config.workspace / OUTPUT_FOLDER / node.agent_id
        self.mcp = McpServers(tree.config.mcp_servers, catalogue=tree.catalogue, log_folder=self.output_folder)
        self.kernel = AgentKernel(node, HostRequests(node, self.mcp), self.mcp.names)

    async def aclose(self) -> None:
        """Close the kernel, then the connections; one that fails to close does not keep the other open."""
        results = await asyncio.gather(self.kernel.aclose(), self.mcp.aclose(), return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                logger.error("closing an agent's resources failed", exc_info=error)
