"""Answers the requests of code in an agent's kernel; each module answers some of the methods.

Code in the kernel wrote everything in a request, so none of it is trusted: what a request may do is decided from what the
host itself knows about the agent.
"""

from freeact_sub.agents.from_code.actions import ActionRequests
from freeact_sub.agents.from_code.ask import AskRequests
from freeact_sub.agents.from_code.background import BackgroundRequests
from freeact_sub.agents.from_code.base import CodeCalls, HostRequests
from freeact_sub.agents.from_code.children import TaskRequests
from freeact_sub.agents.from_code.files import FileRequests
from freeact_sub.agents.from_code.mcp import McpRequests
from freeact_sub.agents.from_code.nodes import NodeRequests
from freeact_sub.agents.from_code.questions import QuestionRequests
from freeact_sub.agents.from_code.shell import ShellRequests
from freeact_sub.agents.from_code.strategy_steps import ProgressRequests

__all__ = [
    "ActionRequests",
    "AskRequests",
    "BackgroundRequests",
    "CodeCalls",
    "FileRequests",
    "HostRequests",
    "McpRequests",
    "NodeRequests",
    "ProgressRequests",
    "QuestionRequests",
    "ShellRequests",
    "TaskRequests",
]
