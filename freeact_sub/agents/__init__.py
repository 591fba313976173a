"""Agents: a prompt goes in, events come out. A child is an agent with a parent."""

from freeact_sub.agents.agent import Agent
from freeact_sub.agents.run import Run
from freeact_sub.agents.tree import AgentInfo, AgentStatus, RunResult

__all__ = ["Agent", "AgentInfo", "AgentStatus", "Run", "RunResult"]
