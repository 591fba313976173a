"""The tools that a model may call."""

from typing import Final

from freeact_sub.tools.ask import Ask, AskParent, AskUser, AskUserArguments, question_of, values_of
from freeact_sub.tools.children import Delegate, Subagents, Task
from freeact_sub.tools.execute import ExecuteIPythonCell, ResetKernel, run_cell
from freeact_sub.tools.mcp_search import SEARCH
from freeact_sub.tools.plan import UpdatePlan
from freeact_sub.tools.request import ChildRequest, NodeHandle
from freeact_sub.tools.result_bounds import (
    Bounds,
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
from freeact_sub.tools.toolset import AgentToolset, OwnTools, load_definition

TOOLS: Final[tuple[Tool, ...]] = (
    ExecuteIPythonCell(),
    ResetKernel(),
    Ask(),
    Task(),
    Delegate(),
    Subagents(),
    AskParent(),
    AskUser(),
    UpdatePlan(),
)
"""All built-in tools; each agent has some of them."""
TOOL_NAMES: Final = frozenset((*(tool.name for tool in TOOLS), SEARCH))
HARMLESS_TOOLS: Final = frozenset((*(tool.name for tool in TOOLS if isinstance(tool, HarmlessTool)), SEARCH))

__all__ = [
    "HARMLESS_TOOLS",
    "TOOLS",
    "TOOL_NAMES",
    "AgentToolset",
    "AskParent",
    "AskUserArguments",
    "BackgroundChildren",
    "Bounds",
    "CellContext",
    "ChildRequest",
    "ChildState",
    "ExecuteIPythonCell",
    "KernelAccess",
    "NodeHandle",
    "Outcome",
    "OwnTools",
    "Subagents",
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
    "question_of",
    "run_cell",
    "text_of",
    "values_of",
    "with_note",
    "without_files",
]
