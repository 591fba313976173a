"""`Child`: a child at work, in the hands of a program; `OwnedChild`: the same, as its owner keeps it."""

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from freeact_sub.agents.caller import caller_in
from freeact_sub.agents.runs.results import AgentStatus, RunResult
from freeact_sub.agents.tree import AgentNode
from freeact_sub.errors import FreeactError

StartedBy: TypeAlias = Literal["call", "background", "program"]
"""A call of the model or of code that waits for its end; a call that does not; a program or a tool that uses the SDK."""

ABANDONED: Final = "it was abandoned"


class Child:
    """A child at work, in the hands of a program."""

    def __init__(self, node: AgentNode) -> None:
        self._node = node
        self._task: asyncio.Task[RunResult] | None = None

    @property
    def agent_id(self) -> str:
        """Its id, as its events have it."""
        return self._node.agent_id

    @property
    def status(self) -> AgentStatus:
        """What it does, or how it ended."""
        return self._node.run.status

    async def result(self) -> RunResult:
        """Wait for its end, whatever it is. Who gives up waiting does not end the child.

        Raises:
            SpawnForbiddenError: It waits for a kernel that would never be free if the agent that calls this waited as well.
            FreeactError: The agent that calls this is the child, or one below it.
        """
        if self._task is None or self._task.done():
            return self._ended
        waiting = caller_in(self._node.shared)
        if waiting is not None and self._node in waiting.ancestors():
            raise FreeactError(f"{waiting.agent_id} cannot wait for the end of {self.agent_id}: its own run is part of it")
        is_live = waiting is not None and waiting.run.is_live  # else the task has outlived the run that made it
        async with waiting.run.waiting_for_child() if waiting is not None and is_live else nullcontext():
            await asyncio.wait({self._task})
        return self._ended

    def cancel(self) -> None:
        """End it and all below it. Returns at once; `result()` tells of the end."""
        self._node.run.cancel()

    @property
    def _ended(self) -> RunResult:
        if self._task is None or self._task.cancelled() or self._task.exception() is not None:
            return RunResult(output="", status="failed", error=ABANDONED, agent_id=self.agent_id)
        return self._task.result()


@dataclass(kw_only=True, eq=False)
class ChildQuestion:
    """A child waits for an answer of its parent."""

    text: str
    correlation_id: str
    answer: asyncio.Future[str]


class OwnedChild(Child):
    """A child, as its owner keeps it."""

    def __init__(self, node: AgentNode, started_by: StartedBy) -> None:
        super().__init__(node)
        self.node = node
        self.started_by = started_by
        self.waiters = 0
        """How many calls wait for it, and read its end and its questions as their result."""
        self.given_up = False
        """It is cancelled: its parent needs no word of it."""
        self.question: ChildQuestion | None = None
        self.report = f"[ERROR] {ABANDONED}"
        """How it has ended, as its parent's model reads it."""

    @property
    def label(self) -> str:
        """The child, as people and models see it."""
        return self.node.label

    @property
    def task(self) -> asyncio.Task[RunResult]:
        """In which it works."""
        if self._task is None:
            raise RuntimeError("the child has no task yet")
        return self._task

    def work_in(self, task: asyncio.Task[RunResult]) -> None:
        """It works in this task."""
        self._task = task

    @property
    def ended(self) -> RunResult | None:
        """How it has ended. None: it has not."""
        return self._ended if self.task.done() else None

    @property
    def completed(self) -> bool:
        """It has ended as it should."""
        return self.ended is not None and self.ended.status == "completed"

    def cancel(self) -> None:
        """See `Child`."""
        self.given_up = True
        super().cancel()
