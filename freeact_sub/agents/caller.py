"""The agents on whose behalf the present code runs, in a context variable.

A user's tool, a `ChildAgent` or a capability may call the SDK. The children that they start belong to the agent that runs
them, and that agent counts as waiting; otherwise it would hold its slot while it waits for children that queue for one.
The variable follows `await`, `asyncio.create_task`, `gather`, `asyncio.to_thread` and `run_coroutine_threadsafe`, but not
a thread made by hand, which needs `contextvars.copy_context().run`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from freeact_sub.agents.shared import Shared
from freeact_sub.agents.tree import TreeAgent

_AT_WORK: Final[ContextVar[tuple[TreeAgent, ...]]] = ContextVar("freeact_sub_agents_at_work", default=())
"""Outermost first; of several roots if a tool of one runs another."""

_IN_CELLS: Final[ContextVar[frozenset[str]]] = ContextVar("freeact_sub_in_cells", default=frozenset())
"""The agents and nodes whose kernels run a cell that waits for the present code."""


@contextmanager
def acting_as(agent: TreeAgent) -> Iterator[None]:
    """Run the block, and all tasks that it creates, on behalf of this agent."""
    token = _AT_WORK.set((*_AT_WORK.get(), agent))
    try:
        yield
    finally:
        _AT_WORK.reset(token)


def caller_in(shared: Shared) -> TreeAgent | None:
    """Return the agent of this tree on whose behalf the present task runs. None: the program's own code runs."""
    return next((agent for agent in reversed(_AT_WORK.get()) if agent.shared is shared), None)


@contextmanager
def in_cell(kernel_of: str) -> Iterator[None]:
    """Run the block for a cell of this agent or node, which waits for it."""
    token = _IN_CELLS.set(_IN_CELLS.get() | {kernel_of})
    try:
        yield
    finally:
        _IN_CELLS.reset(token)


def in_cell_of(agent_id: str) -> bool:
    """Whether a cell in this agent's kernel waits for the present code."""
    return agent_id in _IN_CELLS.get()
