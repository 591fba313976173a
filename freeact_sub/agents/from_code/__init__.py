"""What code in an agent's kernel can ask of its host, by method; each module here answers some of the methods.

Everything in a request was written by code in the kernel: nothing of it is trusted, and what a request may do is decided
here, of what the host itself knows about the agent.
"""

from freeact_sub.agents.from_code.actions import ActionRequests
from freeact_sub.agents.from_code.ask import AskRequests
from freeact_sub.agents.from_code.background import BackgroundRequests
from freeact_sub.agents.from_code.base import CodeCalls, Handler, HostRequests
from freeact_sub.agents.from_code.children import TaskRequests
from freeact_sub.agents.from_code.files import FileRequests
from freeact_sub.agents.from_code.mcp import McpRequests
from freeact_sub.agents.from_code.shell import ShellRequests

__all__ = [
    "ActionRequests",
    "AskRequests",
    "BackgroundRequests",
    "CodeCalls",
    "FileRequests",
    "Handler",
    "HostRequests",
    "McpRequests",
    "ShellRequests",
    "TaskRequests",
]
