"""In whose name code runs: the agents whose runs a task is part of, in a context variable.

A tool of a user, a `ChildAgent`, a capability may call the SDK. What they start belongs to the agent that runs them, and
that agent waits for it; else agents would hold their slots while they wait for children that queue for one. A context
variable follows `await`, `asyncio.create_task`, `gather`, `asyncio.to_thread` and `run_coroutine_threadsafe`. It does not
follow into a thread that somebody makes by hand (`contextvars.copy_context().run` takes it there).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from freeact_sub.agents.shared import Shared
from freeact_sub.agents.tree import AgentNode

_AT_WORK: Final[ContextVar[tuple[AgentNode, ...]]] = ContextVar("freeact_sub_agents_at_work", default=())
"""From the outermost in; agents of several roots where a tool of one runs another."""


@contextmanager
def acting_as(node: AgentNode) -> Iterator[None]:
    """What runs in here, and all tasks that are made in here, run in the name of this agent."""
    token = _AT_WORK.set((*_AT_WORK.get(), node))
    try:
        yield
    finally:
        _AT_WORK.reset(token)


def caller_in(shared: Shared) -> AgentNode | None:
    """The agent of the tree that shares this in whose name the present task runs. None: it is the program's own."""
    return next((node for node in reversed(_AT_WORK.get()) if node.shared is shared), None)
