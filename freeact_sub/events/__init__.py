"""The events of a run: one flat, ordered stream per root run, of frozen values.

Every agent of a tree writes to the same stream; its header (`agent_id`, `parent_id`, `depth`) says who an event is from. The
channel stamps the header when it takes an event in (`channel.py`), which keeps `seq` free of gaps.

For each run of an agent there is exactly one `AgentStarted` and one `AgentFinished`, which comes last of that run's. A child
that has ended and is asked on begins another run, under the same `agent_id`.
"""

from freeact_sub.events.answers import ABSENT, ASKED, Answer, Decision, Remember
from freeact_sub.events.event import (
    AgentEvent,
    AgentFinished,
    AgentMessage,
    AgentStarted,
    ApprovalAnswered,
    ApprovalRequest,
    Cancelled,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    Compacted,
    Event,
    KernelLost,
    MessageKind,
    ModelProgress,
    Notice,
    QuestionAnswered,
    QuestionRequest,
    Response,
    ResponseChunk,
    StrategyProgress,
    Thoughts,
    ThoughtsChunk,
    ToolCallStarted,
    ToolOutput,
    UsageUpdated,
    json_schema,
)

__all__ = [
    "ABSENT",
    "ASKED",
    "AgentEvent",
    "AgentFinished",
    "AgentMessage",
    "AgentStarted",
    "Answer",
    "ApprovalAnswered",
    "ApprovalRequest",
    "Cancelled",
    "CodeExecutionOutput",
    "CodeExecutionOutputChunk",
    "Compacted",
    "Decision",
    "Event",
    "KernelLost",
    "MessageKind",
    "ModelProgress",
    "Notice",
    "QuestionAnswered",
    "QuestionRequest",
    "Remember",
    "Response",
    "ResponseChunk",
    "StrategyProgress",
    "Thoughts",
    "ThoughtsChunk",
    "ToolCallStarted",
    "ToolOutput",
    "UsageUpdated",
    "json_schema",
]
