"""What the model may call."""

from typing import Final

from freeact_sub.tools.ask import Ask
from freeact_sub.tools.ask_parent import AskParent
from freeact_sub.tools.delegate import Delegate
from freeact_sub.tools.execute import ExecuteIPythonCell
from freeact_sub.tools.mcp import McpToolset, mcp_tool_name
from freeact_sub.tools.reset import ResetKernel
from freeact_sub.tools.subagents import Subagents
from freeact_sub.tools.task import Task
from freeact_sub.tools.tool import (
    Children,
    ChildState,
    KernelAccess,
    Outcome,
    SpawnRequest,
    Tool,
    ToolContext,
    ToolResult,
)
from freeact_sub.tools.toolset import AgentToolset, load_definition, model_content

TOOL_NAMES: Final = frozenset(
    tool.name for tool in (Ask, AskParent, Delegate, ExecuteIPythonCell, ResetKernel, Subagents, Task)
)
"""Of all tools that are ours, whether an agent has them or not."""

__all__ = [
    "TOOL_NAMES",
    "AgentToolset",
    "Ask",
    "AskParent",
    "ChildState",
    "Children",
    "Delegate",
    "ExecuteIPythonCell",
    "KernelAccess",
    "McpToolset",
    "Outcome",
    "ResetKernel",
    "SpawnRequest",
    "Subagents",
    "Task",
    "Tool",
    "ToolContext",
    "ToolResult",
    "load_definition",
    "mcp_tool_name",
    "model_content",
]
