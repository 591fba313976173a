"""`Spawner`: the one path by which an agent starts a child, whoever asks for it: a tool, code in a cell, or the SDK."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from pydantic_core import to_jsonable_python

from freeact_sub.agents.tree import AgentNode, RunResult
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
        """Start a child and wait for its end, whatever it is."""
        settings = self._node.tree.config.subagents
        turns = settings.max_turns if request.budget.turns is None else request.budget.turns
        child = self._node.tree.add(self._node, description=request.description, max_turns=turns, mode=request.mode)
        async with self._node.waiting_for_child():
            return await self._make_loop(child, output_type=request.output_type).run(request.prompt, prepare=request.prepare)

    async def for_model(self, request: SpawnRequest) -> ToolResult:
        """Start a child and wait for its end; the result is what the parent's model reads."""
        result = await self.spawn(request)
        return ToolResult(text=report(result), outcome="success" if result.status == "completed" else "failed")


def report(result: RunResult) -> str:
    """What the parent's model reads of a child: status line and answer, the reason in front of a failure."""
    usage = result.tree_usage
    status = f"[{result.agent_id}: {result.status}; {usage}; {result.seconds:.1f} s]"
    answer = text_of(result.output)
    if result.status == "completed":
        return f"{status}\n{answer}"
    partial = f"\nWhat it had so far:\n{answer}" if answer else "\nIt had no text so far."
    return f"[ERROR] The child did not complete: {result.error}\n{status}{partial}"


def text_of(output: Any) -> str:
    """An answer as text: JSON for what is not text."""
    if isinstance(output, str):
        return output
    return json.dumps(to_jsonable_python(output, fallback=str), ensure_ascii=False)
