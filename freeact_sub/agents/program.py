"""`ProgramChildren`: the children of the root that a program has started with the SDK.

They belong to the root's run like all others: they write to its stream, spend its budget, and have ended before it has.
"""

import asyncio
import logging
from typing import Final

import anyio

from freeact_sub.agents.results import AgentStatus, RunResult
from freeact_sub.agents.spawn import Spawner
from freeact_sub.agents.tree import AgentNode
from freeact_sub.errors import FreeactError
from freeact_sub.tools import SpawnRequest

END_SECONDS: Final = 30.0
"""How long cancelled children are waited for. Their own bounds are shorter."""

logger = logging.getLogger(__name__)


class Child:
    """A child at work, in the hands of a program."""

    def __init__(self, node: AgentNode, task: asyncio.Task[RunResult]) -> None:
        self._node = node
        self._task = task

    @property
    def agent_id(self) -> str:
        """Its id, as its events have it."""
        return self._node.agent_id

    @property
    def status(self) -> AgentStatus:
        """What it does, or how it ended."""
        return self._node.status

    async def result(self) -> RunResult:
        """Wait for its end, whatever it is. Who gives up waiting does not end the child."""
        return await asyncio.shield(self._task)

    def cancel(self) -> None:
        """End it and all below it. Returns at once; `result()` tells of the end."""
        if self._node.scope is not None:
            self._node.scope.cancel()


class ProgramChildren:
    """Starts, owns and ends them."""

    def __init__(self, node: AgentNode, spawner: Spawner) -> None:
        self._node = node
        self._spawner = spawner
        self._starting: set[asyncio.Task[Child]] = set()
        self._at_work: dict[asyncio.Task[RunResult], Child] = {}
        self._ended: anyio.CancelScope | None = None
        """Of the run that takes no more children."""

    @property
    def is_open(self) -> bool:
        """Whether there is a run that takes children."""
        return self._node.scope is not None and self._node.scope is not self._ended

    @property
    def is_idle(self) -> bool:
        """Whether none is at work or about to be."""
        return not self._starting and not self._at_work

    async def start(self, request: SpawnRequest) -> Child:
        """Start a child; it works side by side with all others.

        Raises:
            FreeactError: It may not be started (`SpawnForbiddenError` and others), or the run has ended.
        """
        if not self.is_open:
            raise FreeactError("the agent's run takes no more children: it has not begun, or it ends")
        starting = asyncio.create_task(self._start(request), name=f"start of a child of {self._node.agent_id}")
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)
        try:
            await asyncio.wait({starting})
        except asyncio.CancelledError:
            starting.cancel()
            raise
        if starting.cancelled():
            raise FreeactError("the agent's run has ended before the child was started")
        return starting.result()

    async def until_idle(self) -> None:
        """Wait until none is at work; after that the run takes no more."""
        while not self.is_idle:
            await asyncio.wait({*self._starting, *self._at_work}, return_when=asyncio.FIRST_COMPLETED)
        self._ended = self._node.scope

    async def end(self) -> None:
        """End those at work; the run takes no more."""
        self._ended = self._node.scope
        for starting in self._starting:
            starting.cancel()
        for child in self._at_work.values():
            child.cancel()
        tasks = {*self._starting, *self._at_work}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=END_SECONDS)
            for task in late:
                logger.error("%s does not end when it is cancelled: it is abandoned", task.get_name())
                task.cancel()

    async def _start(self, request: SpawnRequest) -> Child:
        child_run = await self._spawner.prepare(request)
        node = child_run.node
        node.begin()  # now, so that a cancel finds its scope though the task has not had its first turn
        task = asyncio.ensure_future(child_run.run())
        child = self._at_work[task] = Child(node, task)
        task.add_done_callback(self._at_work.pop)
        return child
