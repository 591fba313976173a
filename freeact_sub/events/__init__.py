"""The events of a run: one flat, ordered stream per root run, of frozen values.

Every agent of a tree writes to the same stream; its header (`agent_id`, `parent_id`, `depth`) says who an event is from. The
channel stamps the header when it takes an event in (`channel.py`), which keeps `seq` free of gaps.

For each run of an agent there is exactly one `AgentStarted` and one `AgentFinished`, which comes last of that run's. A child
that has ended and is resumed begins another run, under the same `agent_id`.
"""

import json
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import ConfigDict, Field, TypeAdapter

from freeact_sub.calls import Call
from freeact_sub.cells import CellError, ClearOutput, DisplayData, ExecuteResult, MimeBundle, ReplyStatus, StreamText
from freeact_sub.config.budget import Usage
from freeact_sub.events.answers import NOBODY, AnswerableByText, Decidable
from freeact_sub.events.answers import Answer as Answer
from freeact_sub.events.answers import Decision as Decision
from freeact_sub.events.answers import Remember as Remember
from freeact_sub.events.ending import Ending
from freeact_sub.events.json_lines import content, json_line
from freeact_sub.events.strategy_step import StrategyStep
from freeact_sub.modes import Mode

MessageKind: TypeAlias = Literal["request", "response", "status", "cancel"]
"""`request`: a question; `response`: its answer; `status`: news that need no answer; `cancel`: end your work."""


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
        return json_line({"type": type(self).__name__} | content(self))

    @staticmethod
    def from_json(line: str) -> "Event":
        """The event that `to_json` has written; fields that are not known are skipped.

        Raises:
            ValueError: The line is no event.
        """
        return _adapter().validate_python(json.loads(line))


@dataclass(frozen=True, kw_only=True)
class AgentStarted(AgentEvent):
    """An agent begins a run.

    A child's `tool_call_id` names its parent's call: `task`, `delegate` or a cell. None: the root's, or a program's.
    """

    type: Literal["AgentStarted"] = "AgentStarted"
    prompt: str
    description: str = ""
    """A short label of the work, where its parent gave one."""
    queued: bool = False
    """True: the agent first waits for a slot among the working children, or for a kernel."""
    key: str = ""
    """The agent's durable name, which shows the chain above it: `agent:ROOT:subagent:ID`."""
    agent_type: str | None = None
    """The name of its agent type. None: it has none."""
    mode: Mode | None = None
    """How much the agent does without a question."""
    model: str = ""
    """The agent's model, `PROVIDER:NAME`. Empty: it answers without one."""


@dataclass(frozen=True, kw_only=True)
class AgentFinished(Ending, AgentEvent):
    """A run has ended, and the agent's resources are closed. The last event of its agent."""

    type: Literal["AgentFinished"] = "AgentFinished"
    output: str = ""
    """The answer; at another status than `completed`, the last text."""


@dataclass(frozen=True, kw_only=True)
class ThoughtsChunk(AgentEvent):
    """A piece of the model's thinking."""

    type: Literal["ThoughtsChunk"] = "ThoughtsChunk"
    content: str


@dataclass(frozen=True, kw_only=True)
class Thoughts(AgentEvent):
    """A whole block of thinking, after its chunks."""

    type: Literal["Thoughts"] = "Thoughts"
    content: str


@dataclass(frozen=True, kw_only=True)
class ResponseChunk(AgentEvent):
    """A piece of the model's text."""

    type: Literal["ResponseChunk"] = "ResponseChunk"
    content: str


@dataclass(frozen=True, kw_only=True)
class Response(AgentEvent):
    """A whole block of the model's text, after its chunks."""

    type: Literal["Response"] = "Response"
    content: str


@dataclass(frozen=True, kw_only=True)
class ToolCallStarted(AgentEvent):
    """The model calls a tool. Approval, if needed, follows."""

    type: Literal["ToolCallStarted"] = "ToolCallStarted"
    tool_name: str
    args: dict[str, Any]
    """The arguments; those of a cell without its title, which is the `label`."""
    call_id: str = ""
    """Tells apart the calls of code in one cell, which all have the `tool_call_id` of the cell. Empty: the model's call."""
    label: str = ""
    """What the caller named the call: the `label` of `ask`, the `description` of `task` and of a cell."""


@dataclass(frozen=True, kw_only=True)
class ToolOutput(AgentEvent):
    """The result of a tool call, as the model reads it."""

    type: Literal["ToolOutput"] = "ToolOutput"
    tool_name: str
    content: str
    outcome: Literal["success", "failed", "denied", "retried"] = "success"
    call_id: str = ""
    """That of its `ToolCallStarted`."""
    label: str = ""
    """That of its `ToolCallStarted`."""


@dataclass(frozen=True, kw_only=True)
class CodeExecutionOutputChunk(AgentEvent):
    """Output of a running cell, as it comes."""

    type: Literal["CodeExecutionOutputChunk"] = "CodeExecutionOutputChunk"
    output: Annotated[StreamText | DisplayData | ExecuteResult | CellError | ClearOutput, Field(discriminator="type")]
    """`ClearOutput`: what the cell has put out so far is gone. A `DisplayData` with `update` replaces an earlier one."""


@dataclass(frozen=True, kw_only=True)
class CodeExecutionOutput(AgentEvent):
    """The end of a cell."""

    type: Literal["CodeExecutionOutput"] = "CodeExecutionOutput"
    text: str
    """The head and tail of the output, as the model reads them. Empty: no output."""
    status: ReplyStatus
    displays: tuple[MimeBundle, ...] = ()
    """Pictures, tables and other rich output, as MIME bundles."""
    picture_files: tuple[str, ...] = ()
    """The saved pictures of the displays, in order; at most 100."""
    left_out_chars: int = 0
    """Characters of output without a chunk, because the reader was too slow."""
    output_file: str | None = None
    """A file with the whole output, if `text` is cut."""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ApprovalRequest(Decidable, AgentEvent):
    """A call waits for a decision; other calls continue.

    Several agents may have open requests at once. They may be decided in any order; the first decision counts.
    """

    type: Literal["ApprovalRequest"] = "ApprovalRequest"
    request_id: str
    call: Annotated[Call, Field(discriminator="kind")]
    path: tuple[str, ...] = ()
    """The agents from the root to the one that asks, by short id and label."""
    reason: str = ""
    """The rule that asks."""
    suggested: tuple[str, ...] = ()
    """Editable patterns that would allow such calls from now on. Empty: such calls are asked about each time."""
    headless: bool = False
    """True: no person is asked; the decision follows at once."""
    if_nobody: Decision = NOBODY
    """The decision if nobody makes one."""


@dataclass(frozen=True, kw_only=True)
class ApprovalDecided(AgentEvent):
    """An approval request was decided; front ends remove it."""

    type: Literal["ApprovalDecided"] = "ApprovalDecided"
    request_id: str
    allowed: bool
    reason: str = ""
    code: str | None = None
    """The code that runs instead of the cell's. None: the cell's own code."""


@dataclass(frozen=True, kw_only=True)
class QuestionRequest(AnswerableByText, AgentEvent):
    """A person is asked for a text, such as by `input()` in a cell; what asks waits, all else continues.

    Questions and approval requests of several agents may be open at once, and may be answered in any order.
    """

    type: Literal["QuestionRequest"] = "QuestionRequest"
    request_id: str
    prompt: str
    """The question; code in a kernel may have written it. Empty: the code says nothing about what it reads."""
    secret: bool = False
    """True: the answer is hidden while it is typed, and recorded nowhere."""
    path: tuple[str, ...] = ()
    """The agents from the root to the one that asks, by short id and label."""
    headless: bool = False
    """True: no person is asked; the question ends at once."""


@dataclass(frozen=True, kw_only=True)
class QuestionAnswered(AgentEvent):
    """A question is closed; front ends remove it."""

    type: Literal["QuestionAnswered"] = "QuestionAnswered"
    request_id: str
    prompt: str
    answered: bool
    text: str = ""
    """The answer, unless it is secret."""
    reason: str = ""
    """Why there is no answer."""


@dataclass(frozen=True, kw_only=True)
class UsageUpdated(AgentEvent):
    """A model response was counted."""

    type: Literal["UsageUpdated"] = "UsageUpdated"
    usage: Usage
    """What this agent itself has spent in the run so far."""
    tree_usage: Usage
    """What this agent and its descendants have spent in the run so far."""


@dataclass(frozen=True, kw_only=True)
class ModelProgress(AgentEvent):
    """The progress of a slow model request: about once a second, from the second second on, and when a pause begins."""

    type: Literal["ModelProgress"] = "ModelProgress"
    seconds: float
    """Seconds since the request was made."""
    tokens: int
    """Pieces received; many servers send one for each token. 0: the model is still silent."""
    tokens_per_second: float | None = None
    """Pieces a second since the first one. None: nothing to measure yet."""
    paused_seconds: float | None = None
    """Seconds until the request is made again, because the provider is busy. None: it is not paused."""


@dataclass(frozen=True, kw_only=True)
class Compacted(AgentEvent):
    """The agent's conversation was shortened, because it was about to fill the model's context window. Variables stay."""

    type: Literal["Compacted"] = "Compacted"
    tokens_before: int = 0
    """What a request with the conversation takes, instructions and tools included; an estimate."""
    tokens_after: int = 0
    outputs: int = 0
    """Old outputs that became notes; each names the file that has all of it."""
    summary: str = ""
    """What the model reads instead of all but the first prompt and the newest turns. Empty: no summary was needed."""


@dataclass(frozen=True, kw_only=True)
class KernelLost(AgentEvent):
    """The agent's kernel died with its variables. A new kernel starts; the cell is not run again."""

    type: Literal["KernelLost"] = "KernelLost"
    reason: str


@dataclass(frozen=True, kw_only=True)
class Notice(AgentEvent):
    """News for the user that belong to no call, such as an MCP server that did not start."""

    type: Literal["Notice"] = "Notice"
    content: str


@dataclass(frozen=True, kw_only=True)
class AgentMessage(AgentEvent):
    """A message between a parent and one of its background children, in either direction.

    The end of a child that its parent does not wait for is one too: a `status` with `success`.
    """

    type: Literal["AgentMessage"] = "AgentMessage"
    kind: MessageKind
    recipient_id: str
    content: str = ""
    correlation_id: str = ""
    """The id that a request and its response share."""
    task: str = ""
    """The prompt of the child that the message is from, or for."""
    success: bool | None = None
    """Of a response: whether the question was answered. Of a child's end: whether it has completed. None: neither."""
    error: str = ""
    """Why not."""


@dataclass(frozen=True, kw_only=True)
class StrategyProgress(StrategyStep, AgentEvent):
    """A strategy (`freeact_sub.strategies`) has done a step, or has ended."""

    type: Literal["StrategyProgress"] = "StrategyProgress"


@dataclass(frozen=True, kw_only=True)
class Cancelled(AgentEvent):
    """The run was cancelled from outside; its `AgentFinished` follows."""

    type: Literal["Cancelled"] = "Cancelled"


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
    | ApprovalDecided
    | QuestionRequest
    | QuestionAnswered
    | UsageUpdated
    | ModelProgress
    | Compacted
    | KernelLost
    | Notice
    | AgentMessage
    | StrategyProgress
    | Cancelled
)
"""Every kind of event there is."""


def __dir__() -> list[str]:
    """Return the names that the package promises."""
    kinds = [kind.__name__ for kind in get_args(Event)]
    return ["AgentEvent", "Answer", "Decision", "Event", "MessageKind", "Remember", *kinds]


@cache
def _adapter() -> TypeAdapter[Event]:
    return TypeAdapter(Annotated[Event, Field(discriminator="type")], config=ConfigDict(use_attribute_docstrings=True))
