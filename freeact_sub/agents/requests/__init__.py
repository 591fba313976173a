"""What code in an agent's kernel can ask of its host, by method; each module here answers some of the methods.

Everything in a request was written by code in the kernel: nothing of it is trusted, and what a request may do is decided
here, of what the host itself knows about the agent.
"""

from freeact_sub.agents.requests.actions import ActionRequests
from freeact_sub.agents.requests.ask import AskRequests
from freeact_sub.agents.requests.background import BackgroundRequests
from freeact_sub.agents.requests.base import CodeCalls, Handler, HostRequests
from freeact_sub.agents.requests.children import ChildRequests
from freeact_sub.agents.requests.files import FileRequests
from freeact_sub.agents.requests.mcp import McpRequests
from freeact_sub.agents.requests.shell import ShellRequests

__all__ = [
    "ActionRequests",
    "AskRequests",
    "BackgroundRequests",
    "ChildRequests",
    "CodeCalls",
    "FileRequests",
    "Handler",
    "HostRequests",
    "McpRequests",
    "ShellRequests",
]
