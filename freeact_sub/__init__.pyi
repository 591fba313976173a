__version__: str

from freeact_sub.agents import (
    Agent as Agent,
    AgentFactory as AgentFactory,
    AgentInfo as AgentInfo,
    AgentStatus as AgentStatus,
    Child as Child,
    ChildAgent as ChildAgent,
    ChildRecord as ChildRecord,
    ExecutionContext as ExecutionContext,
    KernelNode as KernelNode,
    Run as Run,
    RunResult as RunResult,
    UndoReport as UndoReport,
    depth_of as depth_of,
    parent_of as parent_of,
)
from freeact_sub.config.budget import (
    Budget as Budget,
    Usage as Usage,
)
from freeact_sub.config.load import (
    load_config as load_config,
)
from freeact_sub.config.schema import (
    Config as Config,
    ContextConfig as ContextConfig,
    KernelConfig as KernelConfig,
    McpServerConfig as McpServerConfig,
    SessionsConfig as SessionsConfig,
    SubagentsConfig as SubagentsConfig,
    TerminalConfig as TerminalConfig,
)
from freeact_sub.events.ending import (
    RunStatus as RunStatus,
)
from freeact_sub.errors import (
    AgentBusyError as AgentBusyError,
    ApprovalDeniedError as ApprovalDeniedError,
    ConfigError as ConfigError,
    ContextOverflowError as ContextOverflowError,
    FreeactError as FreeactError,
    InvalidRequestError as InvalidRequestError,
    KernelBranchError as KernelBranchError,
    KernelError as KernelError,
    KernelLostError as KernelLostError,
    KernelSnapshotError as KernelSnapshotError,
    KernelStartError as KernelStartError,
    LimitReachedError as LimitReachedError,
    McpError as McpError,
    SessionBusyError as SessionBusyError,
    SessionError as SessionError,
    SpawnForbiddenError as SpawnForbiddenError,
    StrategyError as StrategyError,
    TaskError as TaskError,
    UntrustedError as UntrustedError,
    WorkspaceConflictError as WorkspaceConflictError,
)
from freeact_sub.events import (
    AgentEvent as AgentEvent,
    AgentFinished as AgentFinished,
    AgentMessage as AgentMessage,
    AgentStarted as AgentStarted,
    ApprovalAnswered as ApprovalAnswered,
    ApprovalRequest as ApprovalRequest,
    Cancelled as Cancelled,
    CodeExecutionOutput as CodeExecutionOutput,
    CodeExecutionOutputChunk as CodeExecutionOutputChunk,
    Compacted as Compacted,
    Decision as Decision,
    Event as Event,
    KernelLost as KernelLost,
    MessageKind as MessageKind,
    ModelProgress as ModelProgress,
    Notice as Notice,
    Remember as Remember,
    Response as Response,
    ResponseChunk as ResponseChunk,
    StrategyProgress as StrategyProgress,
    Thoughts as Thoughts,
    ThoughtsChunk as ThoughtsChunk,
    ToolCallStarted as ToolCallStarted,
    ToolOutput as ToolOutput,
    UsageUpdated as UsageUpdated,
)
from freeact_sub.export import (
    export_events as export_events,
    export_session as export_session,
)
from freeact_sub.sessions import (
    StoredSession as StoredSession,
    list_sessions as list_sessions,
)
from freeact_sub.show.callbacks import (
    Callbacks as Callbacks,
    dispatch as dispatch,
)
from freeact_sub.tools import (
    SpawnRequest as SpawnRequest,
)
