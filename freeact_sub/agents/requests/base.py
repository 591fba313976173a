"""`HostRequests`: finds who answers a request; `CodeCalls`: what all calls of code in a cell go through."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias

from freeact_sub.agents.kinds import check_has_tool
from freeact_sub.agents.tree import AgentNode
from freeact_sub.calls import Call, SpawnCall
from freeact_sub.errors import ApprovalDeniedError, FreeactError
from freeact_sub.events import ToolCallStarted, ToolOutput
from freeact_sub.kernels import CellClock
from freeact_sub.tools import ToolResult

Handler: TypeAlias = Callable[[Mapping[str, Any], CellClock | None], Awaitable[Any]]
"""Parameters and the clock of the cell that asks (None: no cell runs) to a value that JSON can carry. Or to an
iterator: the texts that it yields are shown in the cell as they come, and its last item, no text, is the value."""


class HostRequests:
    """Answers what code in one agent's kernel asks of its host."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = dict(handlers)

    def add(self, handlers: Mapping[str, Handler]) -> None:
        """Answer more methods."""
        self._handlers.update(handlers)

    async def answer(self, method: str, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        """See `HostRequestHandler`."""
        handler = self._handlers.get(method)
        if handler is None:
            raise FreeactError(f"the host does not know the request {method!r}")
        return await handler(params, clock)


class CodeCalls:
    """Tells of a call that code makes, asks for it, carries it out, and tells of its end."""

    def __init__(self, node: AgentNode) -> None:
        self.node = node

    async def check(self, call: Call, clock: CellClock | None) -> None:
        """Let a call through; its cell's clock, and its run's, stand still while it is asked for.

        Raises:
            ApprovalDeniedError: It is denied.
            SpawnForbiddenError: It would start a child, and none may be started.
        """
        check_has_tool(self.node, call)
        if isinstance(call, SpawnCall):
            self.node.check_spawn()
        await self.node.tree.gate.check(
            call,
            self.node.policy,
            self.node.emitter,
            path=self.node.path,
            tool_call_id=tool_call_id_of(clock),
            pause=self._paused(clock),
        )

    @contextmanager
    def _paused(self, clock: CellClock | None) -> Iterator[None]:
        with self.node.clocks_paused(), clock.paused() if clock is not None else nullcontext():
            yield

    async def carry_out(
        self,
        name: str,
        call: Call,
        args: Mapping[str, Any],
        clock: CellClock | None,
        work: Callable[[], Awaitable[ToolResult]],
    ) -> ToolResult:
        """Carry a call out, as if the model had made it: counted, told of as a tool call, asked for.

        Raises:
            FreeactError: It is denied, or fails.
        """
        emitter, tool_call_id = self.node.emitter, tool_call_id_of(clock)
        await emitter.emit(ToolCallStarted(tool_name=name, args=dict(args)), tool_call_id=tool_call_id)
        try:
            self.node.take_tool_call()
            await self.check(call, clock)
            result = await work()
        except asyncio.CancelledError:
            emitter.put(ToolOutput(tool_name=name, content="cancelled", outcome="failed"), tool_call_id=tool_call_id)
            raise
        except FreeactError as error:
            denied = isinstance(error, ApprovalDeniedError)
            output = ToolOutput(tool_name=name, content=str(error), outcome="denied" if denied else "failed")
            await emitter.emit(output, tool_call_id=tool_call_id)
            raise
        await emitter.emit(
            ToolOutput(tool_name=name, content=result.text, outcome=result.outcome), tool_call_id=tool_call_id
        )
        return result


def tool_call_id_of(clock: CellClock | None) -> str | None:
    """Of the cell that asks."""
    return clock.tool_call_id if clock is not None else None
