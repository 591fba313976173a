"""`AgentFactory`: what makes a child of a request; a user of the SDK may put another in its place.

It is asked for every child, whoever starts it: a model, code in a cell, a program. It stands behind the approval and before
the bounds: whatever it returns, mode and budget are narrowed to the parent's and spawns are counted.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from freeact_sub.config.budget import Budget
from freeact_sub.tools import SpawnRequest


@dataclass(frozen=True, kw_only=True)
class ExecutionContext:
    """An agent at work, as those see it who work for it."""

    agent_id: str
    parent_id: str | None
    """None for the root."""
    depth: int
    """Distance from the root."""
    _left: Callable[[], Budget] = field(repr=False, compare=False)
    _cancelled: Callable[[], bool] = field(repr=False, compare=False)

    @property
    def budget_left(self) -> Budget:
        """What a child of the agent could be given at this moment."""
        return self._left()

    @property
    def cancelled(self) -> bool:
        """Its run, or one above it, is being ended."""
        return self._cancelled()


@runtime_checkable
class ChildAgent(Protocol):
    """A child that answers by itself: without a model of ours, without kernel and tools."""

    async def run(self, prompt: str, context: ExecutionContext) -> Any:
        """Do the work and return the answer; what is raised ends the child as `failed`.

        Args:
            prompt: What is asked for.
            context: Of this child. Its cancellation and the end of its time come as `asyncio.CancelledError`.
        """
        ...


class AgentFactory(Protocol):
    """Makes the children of a tree."""

    def create(self, request: SpawnRequest, context: ExecutionContext) -> SpawnRequest | ChildAgent:
        """Decide what a child is.

        Args:
            request: What is asked for.
            context: Of the agent that asks.

        Returns:
            The request as it is or changed (see `dataclasses.replace`), of which one of our agents is made; or a child that
            answers by itself.

        Raises:
            SpawnForbiddenError: There is to be no such child; whoever asks reads the reason.
        """
        ...


class DefaultFactory:
    """Makes one of our agents of each request, as it is."""

    def create(self, request: SpawnRequest, context: ExecutionContext) -> SpawnRequest | ChildAgent:
        """See `AgentFactory`."""
        del context
        return request
