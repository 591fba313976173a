"""The events of a run: one flat, ordered stream per root run, of frozen values.

Every agent of a tree writes to the same stream. Who an event is from stands in its header (`agent_id`, `parent_id`,
`depth`), not in how it is nested, so a reader treats a root and a great-grandchild alike. Events are created with their
content only; the channel stamps the header when it takes them in (`channel.py`), which is what keeps `seq` free of gaps.

For each agent there is exactly one `AgentStarted` and exactly one `AgentFinished`, which comes last of that agent's.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from freeact_sub.budget import Usage
from freeact_sub.calls import Call
from freeact_sub.cells import CellError, DisplayData, ExecuteResult, MimeBundle, ReplyStatus, StreamText

RunStatus: TypeAlias = Literal["completed", "failed", "timeout", "limit", "cancelled", "rejected", "kernel_lost"]
"""How a run ended. The host decides it from what happened, never from text."""

MessageKind: TypeAlias = Literal["request", "response", "status", "cancel"]
"""`request`: a question; `response`: its answer; `status`: news that need no answer; `cancel`: end your work."""

Remember: TypeAlias = Literal["session", "project"]
"""For how long an answer holds beyond its call."""


@dataclass(frozen=True, kw_only=True)
class AgentEvent:
    """The header of every event."""

    agent_id: str = ""
    """The agent that the event is from, such as `agent-1f09a2c4`."""
    parent_id: str | None = None
    """The agent that started it; None for the root."""
    depth: int = 0
    """Distance from the root."""
    tool_call_id: str | None = None
    """The model's tool call during which this happened, if any."""
    seq: int = -1
    """Position in the root run's stream, counted from 0 without gaps."""
    time: float = 0.0
    """Seconds since the epoch."""

    def to_json(self) -> str:
        """The event as one line of JSON; `type` names its class."""
        content = {item.name: getattr(self, item.name) for item in fields(self) if not item.name.startswith("_")}
        text = json.dumps(_plain({"type": type(self).__name__, **content}), ensure_ascii=False, allow_nan=False)
        return text.encode("utf-8", "backslashreplace").decode("utf-8")  # file names may hold what is no text


@dataclass(frozen=True, kw_only=True)
class AgentStarted(AgentEvent):
    """An agent begins a run."""

    prompt: str
    description: str = ""
    """A short label of the work, where its parent gave one."""
    queued: bool = False
    """True where the agent first waits for a place among the working children, or for a kernel."""
    key: str = ""
    """The agent's durable name, which shows the chain above it: `agent:ROOT:subagent:ID`."""


@dataclass(frozen=True, kw_only=True)
class AgentFinished(AgentEvent):
    """A run has ended, and the agent's resources are closed. The last event of its agent."""

    status: RunStatus
    output: str = ""
    """The answer, or at another status than `completed` the last text there was."""
    error: str = ""
    """One sentence on why the status is not `completed`."""
    usage: Usage = Usage()
    """What this agent itself has spent in the run."""
    tree_usage: Usage = Usage()
    """What this agent and all its descendants have spent in the run."""
    seconds: float = 0.0
    files_read: tuple[str, ...] = ()
    """Files in the workspace that its cells have read with Python, relative to it; at most 1,000."""
    files_written: tuple[str, ...] = ()
    """Those that its cells, or programs they started, have written, as far as that was seen; at most about 1,000."""


@dataclass(frozen=True, kw_only=True)
class ThoughtsChunk(AgentEvent):
    """A piece of the model's thinking."""

    content: str


@dataclass(frozen=True, kw_only=True)
class Thoughts(AgentEvent):
    """One whole block of thinking, after its chunks."""

    content: str


@dataclass(frozen=True, kw_only=True)
class ResponseChunk(AgentEvent):
    """A piece of the model's text."""

    content: str


@dataclass(frozen=True, kw_only=True)
class Response(AgentEvent):
    """One whole block of the model's text, after its chunks."""

    content: str


@dataclass(frozen=True, kw_only=True)
class ToolCallStarted(AgentEvent):
    """The model calls a tool; approval, if needed, comes after this."""

    tool_name: str
    args: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ToolOutput(AgentEvent):
    """What the model reads as the result of a tool call."""

    tool_name: str
    content: str
    outcome: Literal["success", "failed", "denied", "retried"] = "success"


@dataclass(frozen=True, kw_only=True)
class CodeExecutionOutputChunk(AgentEvent):
    """Output of a running cell, as it comes."""

    output: StreamText | DisplayData | ExecuteResult | CellError


@dataclass(frozen=True, kw_only=True)
class CodeExecutionOutput(AgentEvent):
    """The end of a cell."""

    text: str
    """What the model reads: the head and the tail of the output."""
    status: ReplyStatus
    displays: tuple[MimeBundle, ...] = ()
    """Pictures, tables and other rich output, as MIME bundles."""
    left_out_chars: int = 0
    """Characters of output for which there was no chunk because the reader was too slow."""
    output_file: str | None = None
    """A file with all of the output, where `text` does not have all of it."""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Decision:
    """An answer to an approval request."""

    allowed: bool
    reason: str = ""
    """Why not; the model reads it."""
    remember: Remember | None = None
    """Allow all later calls like it too: in this session, or always in this project. None: this call alone."""
    pattern: str | None = None
    """What `like it` means. None: what the request suggests."""


@dataclass(frozen=True, kw_only=True)
class ApprovalRequest(AgentEvent):
    """A call waits for an answer; only this call does, all others go on.

    Requests of several agents may be open at once and may be answered in any order. The first answer counts.
    """

    request_id: str
    call: Call
    path: tuple[str, ...] = ()
    """Ids (and labels) of the agents from the root to the one that asks."""
    reason: str = ""
    """The rule because of which it is asked."""
    suggested: tuple[str, ...] = ()
    """Patterns that would allow it from now on; they can be edited. Empty: it is asked each time, whatever is answered."""
    headless: bool = False
    """True: nobody is asked, the answer follows at once."""
    if_nobody: Decision = Decision(allowed=False)
    """The answer that counts where nobody is there to give one."""
    _answer: Callable[[Decision], bool] | None = field(default=None, repr=False, compare=False)

    def approve(self, *, remember: Remember | None = None, pattern: str | None = None) -> bool:
        """Let the call run. False if it was answered already.

        Args:
            remember: Allow all like it too, in this session or in this project. None: this call alone.
            pattern: What `like it` means, such as `shell:git push *`. None: what is suggested.

        Raises:
            ValueError: The pattern is none; the question stays open.
        """
        return self.decide(Decision(allowed=True, remember=remember, pattern=pattern))

    def deny(self, reason: str = "") -> bool:
        """Refuse the call; the model reads the reason and goes on. False if it was answered already."""
        return self.decide(Decision(allowed=False, reason=reason))

    def decide(self, decision: Decision) -> bool:
        """Give any answer. False if the request was answered already, or is withdrawn.

        Raises:
            ValueError: The answer's pattern is none; the question stays open.
        """
        return self._answer is not None and self._answer(decision)


@dataclass(frozen=True, kw_only=True)
class ApprovalAnswered(AgentEvent):
    """An approval request is closed: a front end takes its question away."""

    request_id: str
    allowed: bool
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class UsageUpdated(AgentEvent):
    """A model response was counted."""

    usage: Usage
    """What this agent itself has spent in the run so far."""
    tree_usage: Usage
    """What this agent and its descendants have spent in the run so far."""


@dataclass(frozen=True, kw_only=True)
class ModelProgress(AgentEvent):
    """A model request takes its time; told about once a second, from the second second on."""

    seconds: float
    """Since the request was made."""
    tokens: int
    """That have come, as far as they can be told apart: many servers send one a piece. 0: the model is still silent."""
    tokens_per_second: float | None = None
    """Since the first one. None: there is nothing to measure yet."""


@dataclass(frozen=True, kw_only=True)
class KernelLost(AgentEvent):
    """The agent's kernel died; its variables are gone. The cell is not run again; a new kernel is started."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Notice(AgentEvent):
    """Something the user should know that belongs to no call, such as an MCP server that did not start."""

    content: str


@dataclass(frozen=True, kw_only=True)
class AgentMessage(AgentEvent):
    """An agent tells another something: a parent one of its background children, or such a child its parent."""

    kind: MessageKind
    recipient_id: str
    content: str = ""
    correlation_id: str = ""
    """A request and its response have the same."""


@dataclass(frozen=True, kw_only=True)
class Cancelled(AgentEvent):
    """The run was cancelled from outside; its `AgentFinished` follows."""


Event: TypeAlias = (
    AgentStarted
    | AgentFinished
    | ThoughtsChunk
    | Thoughts
    | ResponseChunk
    | Response
    | ToolCallStarted
    | ToolOutput
    | CodeExecutionOutputChunk
    | CodeExecutionOutput
    | ApprovalRequest
    | ApprovalAnswered
    | UsageUpdated
    | ModelProgress
    | KernelLost
    | Notice
    | AgentMessage
    | Cancelled
)
"""Every kind of event there is."""


def _plain(value: Any, above: tuple[int, ...] = ()) -> Any:
    """The value as JSON has it: money and what JSON does not know as text, what contains itself cut off."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if id(value) in above:
        return "…"
    above = (*above, id(value))
    if hasattr(value, "__dataclass_fields__"):
        kind = {"kind": value.kind} if hasattr(value, "kind") else {"type": type(value).__name__}
        value = kind | {item.name: getattr(value, item.name) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item, above) for key, item in value.items()}
    return [_plain(item, above) for item in value] if isinstance(value, list | tuple | set | frozenset) else str(value)
