"""An agent that acts by running code in its own Jupyter kernel, and hands work to child agents.

The names below are the SDK; type checkers read them in `__init__.pyi`. They are imported when they are first used:
`import freeact_sub` itself costs nothing, which is what lets `freeact-sub --help` answer at once.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "freeact_sub.agents": (
        "Agent AgentFactory AgentInfo AgentStatus Child ChildAgent ChildRecord ExecutionContext KernelNode Run RunResult "
        "UndoReport depth_of parent_of"
    ),
    "freeact_sub.config.budget": "Budget Usage",
    "freeact_sub.show.callbacks": "Callbacks dispatch",
    "freeact_sub.config.schema": (
        "ChildBudget ModelsConfig RootBudget "
        "Config ContextConfig KernelConfig McpServerConfig SessionsConfig SubagentsConfig TerminalConfig"
    ),
    "freeact_sub.errors": (
        "AgentBusyError ApprovalDeniedError ConfigError ContextOverflowError FreeactError InvalidRequestError "
        "KernelBranchError KernelError KernelLostError KernelSnapshotError KernelStartError LimitReachedError McpError "
        "NoAnswerError SessionBusyError SessionError SpawnForbiddenError StrategyError TaskError UntrustedError "
        "WorkspaceConflictError"
    ),
    "freeact_sub.events.ending": "RunStatus",
    "freeact_sub.events": (
        "AgentEvent AgentFinished AgentMessage AgentStarted Answer ApprovalAnswered ApprovalRequest Cancelled Compacted "
        "CodeExecutionOutput CodeExecutionOutputChunk Decision Event KernelLost MessageKind ModelProgress Notice "
        "QuestionAnswered QuestionRequest Remember Response ResponseChunk StrategyProgress Thoughts ThoughtsChunk "
        "ToolCallStarted ToolOutput UsageUpdated"
    ),
    "freeact_sub.config.load": "load_config",
    "freeact_sub.export": "export_events export_session",
    "freeact_sub.sessions": "StoredSession list_sessions",
    "freeact_sub.tools": "SpawnRequest",
    "freeact_sub.config.gateway": "GatewayConfig",
    "freeact_sub.modes": "Mode",
    "freeact_sub.calls": "CodeAction FileWrite McpCall NetworkConnect SavedVariables ShellCommand SpawnCall ToolCall",
    "freeact_sub.cells": "CellError DisplayData ExecuteResult StreamText",
    "freeact_sub.kernels": "Changes Kernel KernelProvider OwnFiles",
    "freeact_sub.approvals.rules.rule": "Rule",
    "freeact_sub.agents.context.sizes": "ContextUse",
    "freeact_sub.agents.debug": "DebugState",
    "freeact_sub.approvals.rules.patterns": "Pattern",
    "freeact_sub.config.trust": "Trust",
    "freeact_sub.events.strategy_step": "SearchedState",
    "freeact_sub.kernels.snapshots.report": "LostVariable",
    "freeact_sub.sessions.store": "SessionStore",
    "freeact_sub.tools.tool": "NodeHandle",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'freeact_sub' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
