"""The tools that a model may call."""

from typing import Final

from freeact_sub.tools.children import Ask, Delegate, Task
from freeact_sub.tools.execute import ExecuteIPythonCell, ResetKernel, run_cell
from freeact_sub.tools.own_tools import OwnTools
from freeact_sub.tools.request import ChildRequest, NodeHandle
from freeact_sub.tools.tool import (
    BackgroundChildren,
    CellContext,
    ChildState,
    HarmlessTool,
    KernelAccess,
    Outcome,
    Tool,
    ToolContext,
    ToolResult,
)
from freeact_sub.tools.toolset import (
    AgentToolset,
    Bounds,
    JudgedToolset,
    bound_error,
    bound_result,
    built_in_names,
    head_and_tail,
    load_definition,
    model_content,
    outcome_of,
    output_file,
    text_of,
    with_note,
    without_files,
)

TOOLS: Final[tuple[Tool, ...]] = (
    ExecuteIPythonCell(),
    ResetKernel(),
    Ask(),
    Task(),
    Delegate(),
)
"""The tools of the core. Features have others (`ToolsFeature`)."""
TOOL_NAMES: Final = built_in_names()
"""The names of all built-in tools, those of features included."""
HARMLESS_TOOLS: Final = frozenset(
    ("ask", "ask_parent", "ask_user", "reset_kernel", "search_tools", "subagents", "update_plan")
)
"""Those whose calls are harmless."""

__all__ = [
    "HARMLESS_TOOLS",
    "TOOLS",
    "TOOL_NAMES",
    "AgentToolset",
    "BackgroundChildren",
    "Bounds",
    "CellContext",
    "ChildRequest",
    "ChildState",
    "ExecuteIPythonCell",
    "HarmlessTool",
    "JudgedToolset",
    "KernelAccess",
    "NodeHandle",
    "Outcome",
    "OwnTools",
    "Tool",
    "ToolContext",
    "ToolResult",
    "bound_error",
    "bound_result",
    "head_and_tail",
    "load_definition",
    "model_content",
    "outcome_of",
    "output_file",
    "run_cell",
    "text_of",
    "with_note",
    "without_files",
]
