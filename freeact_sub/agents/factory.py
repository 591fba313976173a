"""`AgentFactory`: turns a request into a child; a user of the SDK may supply another.

Every child passes through it, whether a model, code in a cell or a program starts it. It runs after the approval and before
the bounds: whatever it returns, mode and budget are narrowed to the parent's, and the spawn is counted.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from freeact_sub.config.budget import Budget
from freeact_sub.tools import SpawnRequest


@dataclass(frozen=True, kw_only=True)
class ExecutionContext:
    """A working agent, as its factory and its children see it."""

    agent_id: str
    parent_id: str | None
    """None for the root."""
    depth: int
    """Distance from the root."""
    _left: Callable[[], Budget] = field(repr=False, compare=False)
    _cancelled: Callable[[], bool] = field(repr=False, compare=False)

    @property
    def budget_left(self) -> Budget:
        """The most that a child of the agent could be given at this moment."""
        return self._left()

    @property
    def cancelled(self) -> bool:
        """Whether its run, or an ancestor's, is being cancelled."""
        return self._cancelled()


@runtime_checkable
class ChildAgent(Protocol):
    """A child implemented in Python: it has no model, kernel or tools of its own."""

    async def run(self, prompt: str, context: ExecutionContext) -> Any:
        """Do the work and return the answer; an exception ends the child as `failed`.

        Args:
            prompt: The child's prompt.
            context: The child. Cancellation and timeout arrive as `asyncio.CancelledError`.
        """
        ...


class AgentFactory(Protocol):
    """Decides what each child of a tree is."""

    def create(self, request: SpawnRequest, context: ExecutionContext) -> SpawnRequest | ChildAgent:
        """Turn a request into a child.

        Args:
            request: The child as requested.
            context: The agent that starts it.

        Returns:
            The request, unchanged or changed with `dataclasses.replace`, to start an ordinary agent; or a `ChildAgent`.

        Raises:
            SpawnForbiddenError: The child must not start; the caller reads the reason.
        """
        ...


class DefaultFactory:
    """Starts an ordinary agent for each request, unchanged."""

    def create(self, request: SpawnRequest, context: ExecutionContext) -> SpawnRequest | ChildAgent:
        """See `AgentFactory`."""
        del context
        return request
