"""`Spawner`: the one path by which an agent starts a child, whoever asks for it: a tool, code in a cell, or the SDK."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from freeact_sub.agents.report import report
from freeact_sub.agents.tree import AgentNode, RunResult
from freeact_sub.errors import SpawnForbiddenError
from freeact_sub.kernels import Kernel
from freeact_sub.tools import SpawnRequest, ToolResult


class ChildLoop(Protocol):
    """What runs a child: `AgentLoop`, which itself needs a spawner."""

    async def run(self, prompt: str, *, prepare: Callable[[Kernel], Awaitable[str]] | None = None) -> RunResult:
        """Run to the end; a failure is a result."""
        ...


class Spawner:
    """Starts the children of one agent."""

    def __init__(self, node: AgentNode, make_loop: Callable[..., ChildLoop]) -> None:
        """Args: make_loop: makes the loop of a child, of its node and `output_type`."""
        self._node = node
        self._make_loop = make_loop

    async def spawn(self, request: SpawnRequest) -> RunResult:
        """Start a child and wait for its end, whatever it is.

        Raises:
            SpawnForbiddenError: No child may be started now.
        """
        self._node.check_spawn()
        # no `await` from the check to the child's account: nobody else can have taken what was left
        child = self._node.tree.add(
            self._node,
            description=request.description,
            budget=request.budget,
            mode=request.mode,
            work_scope=request.scope,
        )
        async with self._node.waiting_for_child():
            return await self._make_loop(child, output_type=request.output_type).run(request.prompt, prepare=request.prepare)

    async def for_model(self, request: SpawnRequest) -> ToolResult:
        """Start a child and wait for its end; the result is what the parent's model reads."""
        try:
            result = await self.spawn(request)
        except SpawnForbiddenError as error:
            return ToolResult(text=f"[ERROR] {error}", outcome="failed")
        text = await report(result, self._node.tree.nodes[result.agent_id].output_folder)
        return ToolResult(text=text, outcome="success" if result.status == "completed" else "failed")
