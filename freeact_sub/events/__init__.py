"""The events of a run: one flat, ordered stream per root run, of frozen values.

Every agent of a tree writes to the same stream; the header of each event, `AgentEvent`, names the sender and its place.
Each run of an agent has one `AgentStarted` and, as its last event, one `AgentFinished`; a child that is resumed begins
another run.
"""

import json
import math
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, get_args

from pydantic import Field, TypeAdapter

from freeact_sub.calls import Call
from freeact_sub.cells import CellError, ClearOutput, DisplayData, ExecuteResult, MimeBundle, ReplyStatus, StreamText
from freeact_sub.config.budget import Usage
from freeact_sub.events.answers import NOBODY, Answerable, Decidable
from freeact_sub.events.answers import Answer as Answer
from freeact_sub.events.answers import Decision as Decision
from freeact_sub.events.answers import Difference as Difference
from freeact_sub.events.answers import Effects as Effects
from freeact_sub.events.answers import FileEffect as FileEffect
from freeact_sub.events.answers import Remember as Remember
from freeact_sub.events.answers import VariableChange as VariableChange
from freeact_sub.events.ending import Ending
from freeact_sub.events.forms import PersonQuestion
from freeact_sub.events.forms import QuestionField as QuestionField
from freeact_sub.events.json_lines import content, json_line
from freeact_sub.events.progress import CallProgress, PlanState, StrategyStep
from freeact_sub.modes import Mode


@dataclass(frozen=True, kw_only=True)
class AgentEvent:
    """The header of every event."""

    momentary: ClassVar[bool] = False  # True: it describes a moment, or a piece of what follows; no session keeps it

    agent_id: str = ""
    """The agent that sent the event, such as `agent-1f09a2c4`."""
    parent_id: str | None = None
    """The agent's parent; None for the root."""
    depth: int = 0
    """Distance from the root."""
    tool_call_id: str | None = None
    """The model's tool call to which the event belongs, if any."""
    seq: int = -1
    """Position in the root run's stream, counted from 0 without gaps."""
    time: float = 0.0
    """Seconds since the epoch."""

    def to_json(self) -> str:
        """Return the event as one line of JSON; `type` names its class."""
        return json_line({"type": type(self).__name__} | content(self))

    @staticmethod
    def from_json(line: str) -> "Event":
        """Read an event from the output of `to_json`; unknown fields are skipped. One of an unknown class is a notice.

        Raises:
            ValueError: The line is not an event.
        """
        data = json.loads(line)
        if isinstance(data, dict) and data.get("agent_id") and data.get("type") not in _NAMES:
            header = {item.name: data.pop(item.name) for item in fields(AgentEvent) if item.name in data}
            data = {**header, "type": "Notice", "content": f"{data.pop('type', 'an event')}: {json.dumps(data)}"}
        event: Event = _adapter().validate_python(data)
        return event


@cache
def _adapter() -> TypeAdapter[Any]:
    """Return the reader of events of all classes; making it takes a while."""
    return TypeAdapter(Annotated[Event, Field(discriminator="type")])


MessageKind: TypeAlias = Literal["request", "response", "status", "cancel"]
"""`request`: a question; `response`: the answer to it; `status`: news without a question; `cancel`: end your work."""


class _WithContent:
    """An event with `content`, under the name `text` that all events share."""

    content: str

    @property
    def text(self) -> str:
        """The text of `content`."""
        return self.content


@dataclass(frozen=True, kw_only=True)
class AgentStarted(AgentEvent):
    """An agent starts a run. `tool_call_id` is the parent's call: `task`, `delegate` or a cell; None: a program's."""

    type: Literal["AgentStarted"] = "AgentStarted"
    prompt: str
    description: str = ""
    """A short label of the work, if the parent gave one."""
    queued: bool = False
    """Whether the agent first waits for a slot among the working children, or for a kernel."""
    key: str = ""
    """The agent's durable name, which shows its ancestors: `agent:ROOT:subagent:ID`."""
    agent_type: str | None = None
    """The name of the agent's type, if it has one."""
    mode: Mode | None = None
    """The mode: the actions that the agent may take without approval."""
    model: str = ""
    """The agent's model, `PROVIDER:NAME`. Empty: the agent is Python code."""


@dataclass(frozen=True, kw_only=True)
class AgentFinished(Ending, AgentEvent):
    """A run has ended and the agent's resources are closed. This is the last event of the run."""

    type: Literal["AgentFinished"] = "AgentFinished"
    output: str = ""
    """The answer. If the status is not `completed`: the model's last text."""

    @property
    def text(self) -> str:
        """The text of `output`."""
        return self.output


@dataclass(frozen=True, kw_only=True)
class ThoughtsChunk(_WithContent, AgentEvent):
    """A piece of the model's thinking."""

    momentary = True
    type: Literal["ThoughtsChunk"] = "ThoughtsChunk"
    content: str


@dataclass(frozen=True, kw_only=True)
class Thoughts(_WithContent, AgentEvent):
    """A whole block of thinking, after its chunks."""

    type: Literal["Thoughts"] = "Thoughts"
    content: str


@dataclass(frozen=True, kw_only=True)
class ResponseChunk(_WithContent, AgentEvent):
    """A piece of the model's text."""

    momentary = True
    type: Literal["ResponseChunk"] = "ResponseChunk"
    content: str


@dataclass(frozen=True, kw_only=True)
class Response(_WithContent, AgentEvent):
    """A whole block of the model's text, after its chunks."""

    type: Literal["Response"] = "Response"
    content: str


@dataclass(frozen=True, kw_only=True)
class ToolCallStarted(AgentEvent):
    """The model calls a tool. Approval, if needed, follows."""

    type: Literal["ToolCallStarted"] = "ToolCallStarted"
    tool_name: str
    args: dict[str, Any]
    """The arguments; for a cell without its title, which is the `label`."""
    call_id: str = ""
    """The id that distinguishes calls by code in one cell, which all have the cell's `tool_call_id`. Empty: the model's
    call."""
    label: str = ""
    """The caller's name for the call: the `label` of `ask`, the `description` of `task` and of a cell."""


@dataclass(frozen=True, kw_only=True)
class ToolOutput(_WithContent, AgentEvent):
    """The result of a tool call, as the model reads it."""

    type: Literal["ToolOutput"] = "ToolOutput"
    tool_name: str
    content: str
    outcome: Literal["success", "failed", "denied", "retried"] = "success"
    call_id: str = ""
    """The `call_id` of its `ToolCallStarted`."""
    label: str = ""
    """The `label` of its `ToolCallStarted`."""


@dataclass(frozen=True, kw_only=True)
class ToolProgress(CallProgress, AgentEvent):
    """An MCP server reports the progress of a call, at most five times a second. The session does not keep this event."""

    momentary = True
    type: Literal["ToolProgress"] = "ToolProgress"
    tool_name: str
    call_id: str = ""
    """The `call_id` of its `ToolCallStarted`."""


@dataclass(frozen=True, kw_only=True)
class CodeExecutionOutputChunk(AgentEvent):
    """Output of a running cell, as it comes."""

    type: Literal["CodeExecutionOutputChunk"] = "CodeExecutionOutputChunk"
    output: Annotated[StreamText | DisplayData | ExecuteResult | CellError | ClearOutput, Field(discriminator="type")]
    """The output. `ClearOutput` removes the cell's output so far. A `DisplayData` with `update` replaces an earlier one."""

    @property
    def text(self) -> str:
        """The printed text, the plain text of a display or a value, or the error in one line."""
        match self.output:
            case StreamText(text=text):
                return text
            case DisplayData(data=data) | ExecuteResult(data=data):
                return str(data.get("text/plain", ""))
            case CellError(ename=name, evalue=value):
                return f"{name}: {value}"
        return ""


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
    """The number of characters left out of the chunks because the reader was too slow."""
    output_file: str | None = None
    """A file with the whole output, if `text` is shortened."""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ApprovalRequest(Decidable, AgentEvent):
    """A call waits for a decision; other calls continue.

    Several agents may have open requests at once. They may be decided in any order; the first decision counts.
    """

    type: Literal["ApprovalRequest"] = "ApprovalRequest"
    call: Annotated[Call, Field(discriminator="kind")]
    reason: str = ""
    """The rule that requires approval."""
    suggested: tuple[str, ...] = ()
    """Editable patterns that would allow similar calls from now on. Empty: similar calls always need approval."""
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
    model: str | None = None
    """The model that does the rest of a fan-out. None: the quoted one."""


@dataclass(frozen=True, kw_only=True)
class QuestionRequest(PersonQuestion, Answerable, AgentEvent):
    """A model, code (`input()` in a cell) or an MCP server asks a person. The asker waits; everything else continues.

    Several agents may have open questions at once. They may be answered in any order.
    """

    type: Literal["QuestionRequest"] = "QuestionRequest"


@dataclass(frozen=True, kw_only=True)
class QuestionAnswered(AgentEvent):
    """A question is closed; front ends remove it."""

    type: Literal["QuestionAnswered"] = "QuestionAnswered"
    request_id: str
    prompt: str
    answered: bool
    text: str = ""
    """The answer, as people read it, unless it is secret."""
    values: dict[str, Any] | None = None
    """The values of the question's fields. None: it had none, or there is no answer."""
    reason: str = ""
    """The reason why there is no answer."""


@dataclass(frozen=True, kw_only=True)
class UsageUpdated(AgentEvent):
    """A model response was counted."""

    type: Literal["UsageUpdated"] = "UsageUpdated"
    usage: Usage
    """The agent's own spending in the run so far."""
    tree_usage: Usage
    """The spending of the agent and its descendants in the run so far."""
    context_tokens: int | None = None
    """The tokens of the agent's conversation, with this response. None: as before."""
    window_tokens: int | None = None
    """The size of the model's context window. None: unknown (setting `context.window_tokens`)."""


@dataclass(frozen=True, kw_only=True)
class ModelProgress(AgentEvent):
    """The progress of a slow model request, sent about once a second after the first, and when a pause begins."""

    momentary = True
    type: Literal["ModelProgress"] = "ModelProgress"
    seconds: float
    """Seconds since the request was made."""
    tokens: int
    """The number of pieces received; many servers send one for each token. 0: none yet."""
    tokens_per_second: float | None = None
    """Pieces per second since the first one, once known."""
    paused_seconds: float | None = None
    """Seconds until the request is repeated; reported each second. None: no pause."""
    paused_because: str = ""
    """The reason of the pause, for people: the provider is busy, the server failed, the reply broke off."""

    @property
    def pause(self) -> str:
        """The note on the pause. Empty: there is none."""
        if self.paused_seconds is None:
            return ""
        return f"{self.paused_because or 'the provider is busy'}; trying again in {math.ceil(self.paused_seconds)} s"


@dataclass(frozen=True, kw_only=True)
class Compacted(AgentEvent):
    """The agent's conversation was shortened before it filled the model's context window. Variables stay."""

    type: Literal["Compacted"] = "Compacted"
    tokens_before: int = 0
    """An estimate of the tokens of a request with the conversation, including instructions and tools."""
    tokens_after: int = 0
    outputs: int = 0
    """The number of old outputs that became notes; each note names the file with the whole output."""
    summary: str = ""
    """The summary that replaces all but the first prompt and the newest turns. Empty: none was needed."""
    prompts: int = 0
    """The number of prompts and messages of people that the summary replaces, an earlier summary not counted."""
    turns: int = 0
    """The number of turns that it replaces, each with its calls and outputs."""
    kept_turns: int = 0
    """The number of the newest turns, which stay."""


@dataclass(frozen=True, kw_only=True)
class KernelLost(AgentEvent):
    """The agent's kernel died with its variables. A new kernel starts; the cell is not run again."""

    type: Literal["KernelLost"] = "KernelLost"
    reason: str


@dataclass(frozen=True, kw_only=True)
class Notice(_WithContent, AgentEvent):
    """A notice for the user that belongs to no call, such as an MCP server that did not start."""

    type: Literal["Notice"] = "Notice"
    content: str


@dataclass(frozen=True, kw_only=True)
class AgentMessage(_WithContent, AgentEvent):
    """A message between a parent and one of its background children, in either direction.

    The end of a background child is a message too, a `status` with `success`, unless its parent awaits or cancelled it.
    """

    type: Literal["AgentMessage"] = "AgentMessage"
    kind: MessageKind
    recipient_id: str
    content: str = ""
    correlation_id: str = ""
    """The id that a request and its response share."""
    task: str = ""
    """The prompt of the child that sent or receives the message."""
    success: bool | None = None
    """Whether a response holds an answer, or a child that ended completed. None: neither."""
    error: str = ""
    """The reason why not."""


@dataclass(frozen=True, kw_only=True)
class PlanUpdated(PlanState, AgentEvent):
    """An agent's present plan, which replaces the one before with the same `plan_id`."""

    type: Literal["PlanUpdated"] = "PlanUpdated"


@dataclass(frozen=True, kw_only=True)
class StrategyProgress(StrategyStep, AgentEvent):
    """A strategy (`freeact_sub.strategies`) finished a step, or ended."""

    type: Literal["StrategyProgress"] = "StrategyProgress"


@dataclass(frozen=True, kw_only=True)
class SkillLoaded(AgentEvent):
    """A skill (docs/skills.md) was loaded: the agent's conversation has its text from now on."""

    type: Literal["SkillLoaded"] = "SkillLoaded"
    name: str


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
    | ToolProgress
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
    | PlanUpdated
    | StrategyProgress
    | SkillLoaded
    | Cancelled
)
"""All event classes."""
_NAMES: Final = frozenset(kind.__name__ for kind in get_args(Event))


def __dir__() -> list[str]:
    own = "AgentEvent Answer Decision Difference Effects Event FileEffect MessageKind QuestionField Remember VariableChange"
    return [*own.split(), *(kind.__name__ for kind in get_args(Event))]
