"""`Spawner`: the one path by which an agent starts a child, whoever asks for it: a tool, code in a cell, or the SDK."""

import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from freeact_sub.agents.factory import ChildAgent
from freeact_sub.agents.kinds import resolved
from freeact_sub.agents.report import report
from freeact_sub.agents.results import RunResult
from freeact_sub.agents.reuse import reuse_key
from freeact_sub.agents.tree import AgentNode
from freeact_sub.errors import ConfigError, FreeactError, InvalidRequestError, SpawnForbiddenError
from freeact_sub.events import Notice
from freeact_sub.kernels import Kernel
from freeact_sub.models import acting_by
from freeact_sub.tools import KernelAccess, SpawnRequest, ToolResult

Prepare: TypeAlias = Callable[[Kernel], Awaitable[str]]
"""See `SpawnRequest.prepare`."""

Program: TypeAlias = Callable[[], Awaitable[Any]]
"""Finds an answer without a model."""

logger = logging.getLogger(__name__)


class ChildLoop(Protocol):
    """What runs a child: `AgentLoop`, which itself needs a spawner."""

    async def run(self, prompt: str, *, prepare: Prepare | None = None, program: Program | None = None) -> RunResult:
        """Run to the end; a failure is a result."""
        ...


@dataclass(frozen=True, kw_only=True)
class ChildRun:
    """A child that has not begun its run."""

    node: AgentNode
    run: Callable[[], Coroutine[Any, Any, RunResult]]
    """Runs it to the end, whatever it is."""


class Spawner:
    """Starts the children of one agent."""

    def __init__(self, node: AgentNode, make_loop: Callable[..., ChildLoop], kernel: KernelAccess) -> None:
        """Make the spawner of one agent.

        Args:
            node: The agent.
            make_loop: Makes the loop of a child, of its node, `output_type` and `branch_of`.
            kernel: The agent's, of which branches are made.
        """
        self._node = node
        self._make_loop = make_loop
        self._kernel = kernel

    async def prepare(self, request: SpawnRequest, *, asks: Callable[[str, str], Awaitable[str]] | None = None) -> ChildRun:
        """Make a child that has not begun its run.

        Args:
            request: What is asked for.
            asks: How the child, named by its id, asks its parent a question. None: its parent waits for it.

        Raises:
            SpawnForbiddenError: No child may be started now, or none of this type.
            InvalidRequestError: There is no such type.
            ConfigError: Its model cannot be built.
        """
        tree = self._node.tree
        request, answers = self._made(request)
        request, kind = resolved(request, self._node)
        name = request.model or (kind.model if kind is not None else None)
        model = await tree.other_models.get(name) if name is not None and answers is None else None
        if kind is not None and kind.code_actions is not None:
            model = acting_by(model or self._node.model, kind.code_actions)
        self._node.check_spawn()
        # no `await` from the check to the child's account: nobody else can have taken what was left
        child = tree.add(
            self._node,
            description=request.description,
            budget=request.budget,
            mode=request.mode,
            work_scope=request.scope,
            kind=kind,
            model=model,
        )
        if asks is not None:
            child.ask_parent = functools.partial(asks, child.agent_id)
        branch_of = self._kernel if request.branch else None
        loop = self._make_loop(child, output_type=request.output_type, branch_of=branch_of)
        if answers is not None:
            return ChildRun(
                node=child,
                run=lambda: loop.run(request.prompt, program=lambda: answers.run(request.prompt, child.context)),
            )
        key = reuse_key(request, child) if tree.config.subagents.cache else None
        if key is None:
            return ChildRun(node=child, run=lambda: loop.run(request.prompt, prepare=request.prepare))
        return ChildRun(node=child, run=lambda: _run_once(request.prompt, child, loop, key))

    def _made(self, request: SpawnRequest) -> tuple[SpawnRequest, ChildAgent | None]:
        """What the factory makes of a request; with it the child, if that answers by itself."""
        try:
            made = self._node.tree.factory.create(request, self._node.context)
        except FreeactError:
            raise
        except Exception as error:  # border: code of whoever uses the SDK
            logger.exception("the agent factory failed")
            raise SpawnForbiddenError(f"the agent factory failed: {type(error).__name__}: {error}") from error
        if isinstance(made, SpawnRequest):
            return made, None
        if not isinstance(made, ChildAgent):
            raise SpawnForbiddenError(
                f"the agent factory returned a {type(made).__name__}: it must return a SpawnRequest, or an object with "
                "`async def run(prompt, context)`"
            )
        if request.branch or request.prepare is not None:
            raise InvalidRequestError("this child answers by itself and has no kernel: ask for it without inputs and branch")
        return request, made

    async def spawn(self, request: SpawnRequest) -> RunResult:
        """Start a child and wait for its end, whatever it is.

        Raises:
            SpawnForbiddenError: No child may be started now, or none of this type.
            InvalidRequestError: There is no such type.
            ConfigError: Its model cannot be built.
        """
        child = await self.prepare(request)
        async with self._node.waiting_for_child():
            return await child.run()

    async def for_model(self, request: SpawnRequest) -> ToolResult:
        """Start a child and wait for its end; the result is what the parent's model reads."""
        try:
            result = await self.spawn(request)
        except (SpawnForbiddenError, InvalidRequestError, ConfigError) as error:
            return ToolResult(text=f"[ERROR] {error}", outcome="failed")
        return ToolResult(text=await self.report(result), outcome="success" if result.status == "completed" else "failed")

    async def report(self, result: RunResult) -> str:
        """What the parent's model reads of a child that has ended."""
        return await report(result, self._node.tree.nodes[result.agent_id].output_folder)


async def _run_once(prompt: str, child: AgentNode, loop: ChildLoop, key: str) -> RunResult:
    """Run a child, unless an earlier one has answered the same: then that answer is what it ends with, at no cost."""
    kept = child.tree.kept.get(key)
    if kept is None:
        result = await loop.run(prompt)
        child.tree.kept.keep(key, result)
        return result

    async def answer_again() -> Any:
        child.emitter.put(
            Notice(content=f"the answer is that of {kept.agent_id} to the same task (setting `subagents.cache`)")
        )
        return kept.output

    result = await loop.run(prompt, program=answer_again)
    return replace(result, reused_from=kept.agent_id) if result.status == "completed" else result
