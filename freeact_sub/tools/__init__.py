"""What the model may call."""

from freeact_sub.tools.execute import ExecuteIPythonCell
from freeact_sub.tools.mcp import McpToolset
from freeact_sub.tools.reset import ResetKernel
from freeact_sub.tools.task import Task
from freeact_sub.tools.tool import KernelAccess, Outcome, SpawnRequest, Tool, ToolContext, ToolResult
from freeact_sub.tools.toolset import AgentToolset, load_definition, model_content

__all__ = [
    "AgentToolset",
    "ExecuteIPythonCell",
    "KernelAccess",
    "McpToolset",
    "Outcome",
    "ResetKernel",
    "SpawnRequest",
    "Task",
    "Tool",
    "ToolContext",
    "ToolResult",
    "load_definition",
    "model_content",
]
