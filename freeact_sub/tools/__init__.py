"""The tools that a model may call."""

from typing import Final

from freeact_sub.tools.children import Ask, Delegate, Task
from freeact_sub.tools.execute import ExecuteIPythonCell, ResetKernel, run_cell
from freeact_sub.tools.tool import (
    BackgroundChildren,
    CellContext,
    ChildRequest,
    ChildState,
    KernelAccess,
    NodeHandle,
    Outcome,
    PlainTool,
    Tool,
    ToolContext,
    ToolResult,
    built_in_names,
    is_harmless,
    load_definition,
)
from freeact_sub.tools.toolset import (
    AgentToolset,
    Bounds,
    JudgedToolset,
    OwnTools,
    bound_error,
    bound_result,
    head_and_tail,
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
"""Tools of the core. Features have others (`ToolsFeature`)."""
TOOL_NAMES: Final = built_in_names()
"""Names of all built-in tools, those of features included."""

__all__ = [
    "TOOLS",
    "TOOL_NAMES",
    "AgentToolset",
    "BackgroundChildren",
    "Bounds",
    "CellContext",
    "ChildRequest",
    "ChildState",
    "ExecuteIPythonCell",
    "JudgedToolset",
    "KernelAccess",
    "NodeHandle",
    "Outcome",
    "OwnTools",
    "PlainTool",
    "Tool",
    "ToolContext",
    "ToolResult",
    "bound_error",
    "bound_result",
    "head_and_tail",
    "is_harmless",
    "load_definition",
    "model_content",
    "outcome_of",
    "output_file",
    "run_cell",
    "text_of",
    "with_note",
    "without_files",
]
