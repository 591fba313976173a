"""`Tool`, the interface of tools, and `ToolContext`, what a tool works with.

A tool knows nothing of agents. What it needs of its agent stands in the context: a kernel, a way to emit events, a gate, and
`spawn`, a function that the agent placed there.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import BaseModel
from pydantic_ai import BinaryContent
from pydantic_ai.messages import UserContent
from pydantic_ai.models import Model

from freeact_sub.calls import Call, SpawnCall, ToolCall
from freeact_sub.config.budget import Budget, Usage
from freeact_sub.config.schema import Config
from freeact_sub.events import AgentEvent, Answer
from freeact_sub.events.forms import PersonQuestion
from freeact_sub.kernels import Kernel
from freeact_sub.modes import History, Mode, Thinking

Outcome: TypeAlias = Literal["success", "failed"]


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """The result of a call, as the model reads it."""

    text: str
    images: tuple[BinaryContent, ...] = ()
    outcome: Outcome = "success"
    sections: tuple[str, ...] = ()
    """The parts of a text; if the whole is too long, the model sees some of each. Empty: the text is one part."""
    bounded: bool = False
    """The text is already within the model's bound."""
    file: str | None = None
    """A file that has all of a text that was cut."""


class NodeHandle(Protocol):
    """A kernel node (`freeact_sub.KernelNode`), as requests name it."""

    @property
    def node_id(self) -> str:
        """Its id."""
        ...


@dataclass(frozen=True, kw_only=True)
class SpawnRequest:
    """A request to start a child, from a tool, code or a program."""

    prompt: str
    content: "tuple[UserContent, ...]" = ()
    """The prompt as the model reads it, where it has more than text: texts, pictures and files, in order."""
    description: str = ""
    """A label of a few words."""
    agent: str | None = None
    """A named agent type. None: the parent's."""
    model: str | Model | None = None
    """A name in the setting `models`, `PROVIDER:NAME`, or a `Model` of pydantic-ai; `inherit`: its parent's. None: its
    type's, else that of the setting `subagents.model`, else its parent's."""
    thinking: Thinking | None = None
    """How much its model thinks. None: as its type says, else as its parent."""
    tools: tuple[str, ...] | None = None
    """The only tools of the child and of all below it, out of those that it would have; `*` matches any characters.
    None: all of them."""
    mode: Mode | None = None
    """Never more than the parent's. None: the parent's."""
    scope: str = ""
    """The limits of the child's work: a folder, files, a part of the task."""
    budget: Budget = Budget()
    """Cut to what the parent has left."""
    output_type: Any = str
    """The type of the child's answer: pydantic-ai's `output_type`, or a type of frames or arrays, which come by value."""
    output_schema: Mapping[str, Any] | None = None
    """The JSON schema that `output_type` was made from. None: it was not made from a schema."""
    branch: bool = False
    """The child's kernel starts as a copy of its parent's live kernel."""
    branch_of: NodeHandle | str | None = None
    """The child's kernel starts as a copy of this node's; an id names one of the parent's nodes."""
    own_files: bool = False
    """It works in a copy of the workspace: nobody else sees what it writes there (`KernelNode.diff`). Only a branch can:
    without `branch_of`, it is one of its parent's kernel."""
    history: History = "none"
    """What the child reads of the conversation before its prompt: the node's (`branch_of`), or its parent's so far."""
    keep: bool = False
    """The child's kernel outlives its answer as a node (`RunResult.node`)."""
    resume: str | None = None
    """The id of an ended child to resume: it continues with its conversation and its variables, as the agent
    that it was."""
    check: str | Callable[[Any], Any] | None = None
    """Checks the answer before it is accepted (docs/receipts.md): code that looks at `answer`, in a branch of the child's
    kernel, or a function of it. It fails if it raises, or if its value is false; a function may return nothing."""
    verify: Callable[[Any], Awaitable[str]] | None = None
    """Checks it in the kernel that knows its type; returns what is wrong."""
    prepare: Callable[[Kernel], Awaitable[str]] | None = None
    """Called with the child's kernel before its first turn; the returned text is added to the prompt."""
    inputs_digest: str = ""
    """The digest of what `prepare` puts into the kernel. Empty: unknown."""
    tool_call_id: str | None = None
    """The call that starts the child, for its `AgentStarted`. None: a program starts it."""

    @property
    def continues_all(self) -> bool:
        """Whether the child goes on where its parent is, with all that the parent has."""
        other = self.branch_of is not None or self.own_files or self.tools is not None or self.mode is not None
        return self.history == "all" and not other

    def call(self, *, background: bool = False) -> SpawnCall:
        """The call that rules and people judge. Args: background: the parent does not wait for the child."""
        return SpawnCall(
            prompt=self.prompt,
            description=self.description,
            max_turns=self.budget.turns,
            mode=self.mode,
            agent=self.agent or "",
            background=background,
            resume=self.resume or "",
            model=model_words(self.model),
            thinking=self.thinking or "",
            history="" if self.history in ("none", 0) else str(self.history),
            tools=self.tools,
            own_files=self.own_files,
        )


def model_words(model: str | Model | None) -> str:
    """How people read which model a child is to have. Empty: nobody has named one."""
    return (model or "") if isinstance(model, str | None) else model.model_id


@dataclass(frozen=True, kw_only=True)
class ChildState:
    """The state of a background child, for its parent."""

    agent_id: str
    description: str
    task: str
    """Its prompt."""
    status: str
    """A live status such as `running`, or how it ended."""
    ended: bool
    seconds: float
    usage: Usage
    """The spending of the child and its descendants."""
    output: Any = None
    """Its answer once it has ended; if the status is not `completed`, its last text."""
    error: str = ""
    """Why the child did not complete."""
    report: str = ""
    """Status line and answer for its parent's model, once it has ended."""
    question: str = ""
    """The child's open question; empty if there is none."""
    action: str = ""
    """The child's activity in one line; empty if it is not working."""


class BackgroundChildren(Protocol):
    """An agent's background children. They end with its run."""

    async def start(self, request: SpawnRequest) -> ChildState:
        """Starts a child without waiting for it.

        Raises:
            FreeactError: The child may not be started.
        """
        ...

    def list(self) -> Sequence[ChildState]:
        """Returns the children of this run, oldest first."""
        ...

    async def wait(self, agent_ids: Sequence[str], timeout_seconds: float) -> Sequence[ChildState]:
        """Waits until these children (default: all) have ended, one asks a question, or the time is up.

        Raises:
            FreeactError: An id does not name a background child of this agent.
        """
        ...

    async def message(self, agent_id: str, text: str, tool_call_id: str | None) -> str:
        """Answers a child's question, or sends a message that its model reads before its next request.

        A child that has ended is resumed in the background, with the text as its prompt. It needs approval like a new child.

        Args:
            agent_id: The child.
            text: The answer, the message or the prompt.
            tool_call_id: The id of the call that does this.

        Returns:
            The outcome, in one sentence.

        Raises:
            ApprovalDeniedError: Resuming the child was denied.
            FreeactError: It is not a child of this agent, or it cannot begin another run.
        """
        ...

    async def cancel(self, agent_id: str) -> ChildState:
        """Cancels a child and its descendants; its state has what it found so far.

        Raises:
            FreeactError: The id does not name a background child of this agent.
        """
        ...


class KernelAccess(Protocol):
    """The agent's kernel, which may be starting, lost or replaced."""

    async def get(self) -> Kernel:
        """Returns the live kernel; starts one if needed.

        Raises:
            KernelStartError: The kernel does not start.
            KernelLostError: The kernel has died too often in this run.
        """
        ...

    async def reset(self) -> None:
        """Replaces the kernel with a new one."""
        ...


@dataclass(frozen=True, kw_only=True)
class CellContext:
    """The means of running a cell."""

    config: Config
    tool_call_id: str
    output_folder: Path
    """The folder of the agent's long outputs."""
    emit: Callable[[AgentEvent], Awaitable[Any]]
    """Writes an event with the agent's header and this call's id."""
    asked_seconds: Callable[[], float] = lambda: 0.0
    """Returns for how many seconds people were asked so far on behalf of the agent and its descendants."""
    take_loss: Callable[[], str] = lambda: ""
    """Returns why an earlier kernel was lost, if no result has said so: this one does. Empty: nothing is to be said."""


@dataclass(frozen=True, kw_only=True)
class ToolContext(CellContext):
    """The means of a tool call."""

    kernel: KernelAccess
    spawn: Callable[[SpawnRequest], Awaitable[ToolResult]]
    """Starts a child and waits for its end."""
    children: BackgroundChildren
    """The background children."""
    ask: Callable[[str, str | None], Awaitable[str]]
    """Makes one model request. Args: the prompt; the name of a model in the settings, None: the agent's own."""
    ask_user: Callable[[PersonQuestion], Awaitable[Answer]]
    """Asks a person. The text of the answer is None if there is none."""
    ask_parent: Callable[[str], Awaitable[str]] | None = None
    """Asks the agent's parent a question, returns the answer. None: the parent waits for this agent and cannot answer."""


class Tool(Protocol):
    """One tool. `tools/NAME.json` has its name, description and JSON schema."""

    @property
    def name(self) -> str:
        """The name that the model calls it by."""
        ...

    @property
    def arguments(self) -> type[BaseModel]:
        """Validates the arguments; a test holds it against the JSON file."""
        ...

    def call(self, arguments: Any) -> Call:
        """The value that rules and people judge before the tool runs."""
        ...

    async def run(self, arguments: Any, context: ToolContext) -> ToolResult:
        """Runs the tool. A failure that the model can react to is a result; an exception ends the run."""
        ...


class HarmlessTool:
    """A tool that touches only its agent and the agent's children."""

    name: str

    def call(self, arguments: BaseModel) -> ToolCall:
        """See `Tool`."""
        return ToolCall(tool_name=self.name, args=arguments.model_dump(), harmless=True)
