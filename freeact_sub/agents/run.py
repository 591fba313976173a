"""`Run`: one prompt to the root agent, as its reader sees it: events in order, then a result."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from freeact_sub.agents.loop import AgentLoop
from freeact_sub.agents.results import NO_BOUNDS, AgentStatus, RunResult
from freeact_sub.agents.tree import AgentNode, AgentTree
from freeact_sub.budget import Budget, Usage
from freeact_sub.closing import carry_out
from freeact_sub.events import ApprovalRequest, Event


class Run:
    """A run of the root agent and all its descendants.

    Iterate over it for the events, or await `result()`, or both in turn. As a context manager it cancels what still runs
    when it is left. It starts when it is first used in one of these ways.
    """

    def __init__(
        self,
        loop: AgentLoop,
        prompt: str,
        *,
        on_end: Callable[[], None],
        budget: Budget = NO_BOUNDS,
        program: Callable[[], Awaitable[Any]] | None = None,
    ) -> None:
        self._loop = loop
        self._program = program
        self._budget = budget
        self._prompt = prompt
        self._on_end = on_end
        self._tree: AgentTree = loop.node.tree
        self._channel = self._tree.channel
        self._task: asyncio.Task[RunResult] | None = None
        self._unsent: list[str] = []
        self._closed = False

    @property
    def status(self) -> AgentStatus:
        """What the root agent does, or how it ended."""
        return self._node.status

    @property
    def usage(self) -> Usage:
        """What the root and all its descendants have spent so far."""
        return self._node.tree_usage

    def cancel(self, agent_id: str | None = None) -> bool:
        """Cancel the run, or one child with its descendants. Returns at once; the endings come as events.

        Returns:
            False if there is no such agent at work.
        """
        node = self._node if agent_id is None else self._tree.nodes.get(agent_id)
        if node is self._node and self._task is None and not self._closed:
            self._never_begin()
            return True
        if node is None or node.scope is None:
            return False
        node.scope.cancel()
        return True

    def send(self, text: str, agent_id: str | None = None) -> bool:
        """Steer an agent: its model reads the text before its next request.

        Args:
            text: What it reads.
            agent_id: A child at work. None: the root agent, which is sent the text also where it has not begun yet.

        Returns:
            False if there is no such child at work, or it has not made its first request yet.
        """
        if agent_id is not None and agent_id != self._node.agent_id:
            loop = self._tree.at_work.get(agent_id)
            return loop is not None and bool(loop.send(text))
        self._unsent.append(text)
        self._flush()
        return True

    async def result(self) -> RunResult:
        """Read to the end and return how it ended. What is asked meanwhile is answered as where nobody is asked."""
        async for event in self:
            if isinstance(event, ApprovalRequest):
                event.decide(event.if_nobody)
        return await self._outcome()

    async def aclose(self) -> None:
        """Cancel what still runs and wait until all of it has ended. Can be called again."""
        if self._task is None:
            self._never_begin()
            return
        self._closed = True
        self._tree.gate.abandon()
        self._channel.abandon()
        self.cancel()
        await carry_out(_ended(self._task), timeout_seconds=30)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        self.start()
        event = await self._channel.receive()
        self._flush()
        if event is None:
            await self._outcome()
            raise StopAsyncIteration
        return event

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def _node(self) -> AgentNode:
        return self._loop.node

    def _never_begin(self) -> None:
        self._closed = True
        self._channel.finish()
        self._on_end()

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._task is None and not self._closed:
            # now, so that a cancel finds its scope though the task has not had its first turn
            self._node.begin(self._budget)
            self._task = asyncio.create_task(self._drive(), name=f"run of {self._node.agent_id}")

    async def _drive(self) -> RunResult:
        try:
            return await self._loop.run(self._prompt, program=self._program)
        finally:
            self._on_end()
            self._channel.finish()

    async def _outcome(self) -> RunResult:
        if self._task is None:
            return RunResult(output="", status="cancelled", error="the run was closed before it began")
        return await asyncio.shield(self._task)

    def _flush(self) -> None:
        while self._unsent and self._loop.send(self._unsent[0]):
            self._unsent.pop(0)


async def _ended(task: Awaitable[RunResult]) -> None:
    await asyncio.wait({asyncio.ensure_future(task)})
