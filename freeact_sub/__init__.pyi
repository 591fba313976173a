__version__: str

from freeact_sub.agent import (
    Agent as Agent,
)
from freeact_sub.agents import (
    AgentInfo as AgentInfo,
    AgentStatus as AgentStatus,
    Child as Child,
    ChildRecord as ChildRecord,
    ExecutionContext as ExecutionContext,
    KernelNode as KernelNode,
    Run as Run,
    RunOptions as RunOptions,
    RunResult as RunResult,
    depth_of as depth_of,
    parent_of as parent_of,
)
from freeact_sub.agents.money import (
    ContextUse as ContextUse,
)
from freeact_sub.agents.root import (
    DebugState as DebugState,
)
from freeact_sub.agents.feature import (
    Feature as Feature,
    FeatureRoot as FeatureRoot,
    RunPart as RunPart,
)
from freeact_sub.agents.feature import (
    NewChild as NewChild,
    Question as Question,
    Asker as Asker,
    EndedCall as EndedCall,
    FeatureAgent as FeatureAgent,
    FeatureRun as FeatureRun,
    Proceed as Proceed,
    RequestedCall as RequestedCall,
)
from freeact_sub.approvals import (
    Policy as Policy,
    Approve as Approve,
)
from freeact_sub.approvals.gate import (
    Advice as Advice,
    Adviser as Adviser,
)
from freeact_sub.approvals.patterns import (
    Pattern as Pattern,
)
from freeact_sub.approvals.policy import (
    Rule as Rule,
    Rules as Rules,
)
from freeact_sub.calls import (
    Call as Call,
    ChildChoices as ChildChoices,
    CodeAction as CodeAction,
    FanOut as FanOut,
    FileWrite as FileWrite,
    McpCall as McpCall,
    NetworkConnect as NetworkConnect,
    SavedVariables as SavedVariables,
    ShellCommand as ShellCommand,
    SpawnCall as SpawnCall,
    ToolCall as ToolCall,
)
from freeact_sub.cells import (
    CellError as CellError,
    ClearOutput as ClearOutput,
    DisplayData as DisplayData,
    ExecuteReply as ExecuteReply,
    ExecuteResult as ExecuteResult,
    StreamText as StreamText,
)
from freeact_sub.strategies.comparing import (
    Continuation as Continuation,
    compare_models as compare_models,
)
from freeact_sub.config.budget import (
    Budget as Budget,
    ChildBudget as ChildBudget,
    RootBudget as RootBudget,
    Usage as Usage,
)
from freeact_sub.config.schema import (
    Config as Config,
    ContextConfig as ContextConfig,
    EffectsConfig as EffectsConfig,
    GatewayConfig as GatewayConfig,
    KernelConfig as KernelConfig,
    McpServerConfig as McpServerConfig,
    ModelsConfig as ModelsConfig,
    OAuthConfig as OAuthConfig,
    SessionsConfig as SessionsConfig,
    SubagentsConfig as SubagentsConfig,
    TerminalConfig as TerminalConfig,
)
from freeact_sub.config.project_texts import (
    SkillModule as SkillModule,
)
from freeact_sub.config.load import (
    load_config as load_config,
)
from freeact_sub.config.trust import (
    Trust as Trust,
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
    KernelValueError as KernelValueError,
    LimitReachedError as LimitReachedError,
    McpError as McpError,
    NoAnswerError as NoAnswerError,
    SessionBusyError as SessionBusyError,
    SessionError as SessionError,
    SpawnForbiddenError as SpawnForbiddenError,
    StrategyError as StrategyError,
    TaskError as TaskError,
    UntrustedError as UntrustedError,
    UnusablePythonError as UnusablePythonError,
    WorkspaceConflictError as WorkspaceConflictError,
)
from freeact_sub.events import *
from freeact_sub.events.ending import (
    RunStatus as RunStatus,
)
from freeact_sub.events.forms import (
    PersonQuestion as PersonQuestion,
)
from freeact_sub.events.progress import (
    PlanStep as PlanStep,
)
from freeact_sub.events.ending import (
    CallReceipt as CallReceipt,
    CellReceipt as CellReceipt,
    ChildReceipt as ChildReceipt,
    CommandReceipt as CommandReceipt,
    FileReceipt as FileReceipt,
    NamedFile as NamedFile,
    Receipts as Receipts,
)
from freeact_sub.events.progress import (
    SearchedState as SearchedState,
)
from freeact_sub.export import (
    export_events as export_events,
    export_session as export_session,
)
from freeact_sub.features import (
    default_features as default_features,
)
from freeact_sub.features.sessions.forking import (
    SessionFork as SessionFork,
    fork_session as fork_session,
)
from freeact_sub.features.undo import (
    UndoReport as UndoReport,
)
from freeact_sub.hooks import (
    Hook as Hook,
)
from freeact_sub.kernels import (
    AuditSettings as AuditSettings,
    CellClock as CellClock,
    CellOutputBuffer as CellOutputBuffer,
    CellRun as CellRun,
    HostRequestHandler as HostRequestHandler,
    Kernel as Kernel,
    KernelPlace as KernelPlace,
    KernelProvider as KernelProvider,
    KernelSpec as KernelSpec,
    TrialBounds as TrialBounds,
)
from freeact_sub.kernels.snapshot_reports import (
    LostVariable as LostVariable,
)
from freeact_sub.kernels.wall.programs import (
    LaterProgram as LaterProgram,
)
from freeact_sub.kernels.wall.sandbox import (
    Limits as Limits,
    SandboxPolicy as SandboxPolicy,
)
from freeact_sub.kernels.files import (
    Changes as Changes,
    OwnFiles as OwnFiles,
)
from freeact_sub.mcp import McpServers as McpServers
from freeact_sub.models.code_actions import (
    NoModel as NoModel,
)
from freeact_sub.modes import (
    Mode as Mode,
)
from freeact_sub.sessions import (
    SessionStore as SessionStore,
    StoredSession as StoredSession,
    list_sessions as list_sessions,
)
from freeact_sub.show.callbacks import (
    Callbacks as Callbacks,
    dispatch as dispatch,
)
from freeact_sub.features.agent_types import (
    AgentFactory as AgentFactory,
    ChildAgent as ChildAgent,
)
from freeact_sub.show.replay import (
    session_events as session_events,
)
from freeact_sub.tools.tool import (
    ChildRequest as ChildRequest,
    NodeHandle as NodeHandle,
)
from freeact_sub.agents.feature import (
    UsedKernel as UsedKernel,
)
from freeact_sub.approvals.open_questions import (
    CallTrial as CallTrial,
    Tried as Tried,
)
from freeact_sub.channel import (
    Emitter as Emitter,
    EventChannel as EventChannel,
)
