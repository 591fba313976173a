"""Agents: a prompt goes in, events come out. A child is an agent with a parent."""

from freeact_sub.agent_names import depth_of, parent_of
from freeact_sub.agents.agent import Agent
from freeact_sub.agents.children.child import Child
from freeact_sub.agents.children.record import ChildRecord
from freeact_sub.agents.ports import KernelNode
from freeact_sub.agents.root import RunOptions
from freeact_sub.agents.runs.results import AgentInfo, AgentStatus, RunResult
from freeact_sub.agents.runs.run import Run
from freeact_sub.agents.shared import AgentFactory, ChildAgent, ExecutionContext
from freeact_sub.agents.undo.undo import UndoReport

__all__ = [
    "Agent",
    "AgentFactory",
    "AgentInfo",
    "AgentStatus",
    "Child",
    "ChildAgent",
    "ChildRecord",
    "ExecutionContext",
    "KernelNode",
    "Run",
    "RunOptions",
    "RunResult",
    "UndoReport",
    "depth_of",
    "parent_of",
]
