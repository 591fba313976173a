"""Agents: a prompt goes in, events come out. A child is an agent with a parent."""

from freeact_sub.agents.agent import Agent
from freeact_sub.agents.results import AgentInfo, AgentStatus, RunResult
from freeact_sub.agents.run import Run

__all__ = ["Agent", "AgentInfo", "AgentStatus", "Run", "RunResult"]
