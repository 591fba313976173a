"""Agents: a prompt goes in, events come out. A child is an agent with a parent.

The names come from their modules when they are first used: a notebook's kernel knows how a run ends, and has no agent.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

from freeact_sub.agent_names import depth_of, parent_of

if TYPE_CHECKING:
    from freeact_sub.agents.child import Child, ChildRecord
    from freeact_sub.agents.results import AgentInfo, AgentStatus, KernelNode, RunResult
    from freeact_sub.agents.root import RunOptions
    from freeact_sub.agents.run import Run
    from freeact_sub.agents.shared import ExecutionContext

__all__ = [
    "AgentInfo",
    "AgentStatus",
    "Child",
    "ChildRecord",
    "ExecutionContext",
    "KernelNode",
    "Run",
    "RunOptions",
    "RunResult",
    "depth_of",
    "parent_of",
]

_HOMES: Final = {
    "AgentInfo": "results",
    "AgentStatus": "results",
    "Child": "child",
    "ChildRecord": "child",
    "ExecutionContext": "shared",
    "KernelNode": "results",
    "Run": "run",
    "RunOptions": "root",
    "RunResult": "results",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
