"""Agents: a prompt goes in, events come out. A child is an agent with a parent.

The names come from their modules when they are first used: a notebook's kernel knows how a run ends, and has no agent.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

from freeact_sub.agent_names import depth_of, parent_of

if TYPE_CHECKING:
    from freeact_sub.agents.agent import Agent
    from freeact_sub.agents.children.child import Child
    from freeact_sub.agents.children.record import ChildRecord
    from freeact_sub.agents.comparing import Continuation, compare_models
    from freeact_sub.agents.ports import KernelNode
    from freeact_sub.agents.root import RunOptions
    from freeact_sub.agents.runs.results import AgentInfo, AgentStatus, RunResult
    from freeact_sub.agents.runs.run import Run
    from freeact_sub.agents.sessions.forking import SessionFork, fork_session
    from freeact_sub.agents.shared import AgentFactory, ChildAgent, ExecutionContext
    from freeact_sub.features.undo import UndoReport

__all__ = [
    "Agent",
    "AgentFactory",
    "AgentInfo",
    "AgentStatus",
    "Child",
    "ChildAgent",
    "ChildRecord",
    "Continuation",
    "ExecutionContext",
    "KernelNode",
    "Run",
    "RunOptions",
    "RunResult",
    "SessionFork",
    "UndoReport",
    "compare_models",
    "depth_of",
    "fork_session",
    "parent_of",
]

_HOMES: Final = {
    "Agent": "agent",
    "AgentFactory": "shared",
    "AgentInfo": "runs.results",
    "AgentStatus": "runs.results",
    "Child": "children.child",
    "ChildAgent": "shared",
    "ChildRecord": "children.record",
    "Continuation": "comparing",
    "ExecutionContext": "shared",
    "KernelNode": "ports",
    "Run": "runs.run",
    "RunOptions": "root",
    "RunResult": "runs.results",
    "SessionFork": "sessions.forking",
    "UndoReport": "freeact_sub.features.undo",
    "compare_models": "comparing",
    "fork_session": "sessions.forking",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    module = home if home.startswith("freeact_sub.") else f"{__name__}.{home}"
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value
