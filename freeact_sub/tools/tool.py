"""`Tool`: what one tool implements, and `ToolContext`: what it is given to work with.

A tool knows nothing of agents. What it needs of its agent stands in the context: a kernel, a way to emit events, a gate, and
`spawn`, a function that the agent placed there.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import BaseModel
from pydantic_ai import BinaryContent

from freeact_sub.budget import Budget, Usage
from freeact_sub.calls import Call
from freeact_sub.config import Config
from freeact_sub.events import AgentEvent
from freeact_sub.kernels import Kernel
from freeact_sub.modes import Mode

Outcome: TypeAlias = Literal["success", "failed"]


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """What the model reads of a call."""

    text: str
    images: tuple[BinaryContent, ...] = ()
    outcome: Outcome = "success"


@dataclass(frozen=True, kw_only=True)
class SpawnRequest:
    """A child that is asked for, by whatever way."""

    prompt: str
    description: str = ""
    """A label of a few words."""
    agent: str | None = None
    """A named agent type. None: an agent like its parent."""
    model: str | None = None
    """A name of the setting `models`, or `PROVIDER:NAME`. None: that of its type, else its parent's."""
    mode: Mode | None = None
    """None: the parent's; it is never more than that."""
    scope: str = ""
    """What the child is told to keep to: a folder, files, a part of the work."""
    budget: Budget = Budget()
    """Cut to what the parent has left."""
    output_type: Any = str
    """What the child's answer must be, as pydantic-ai's `output_type`."""
    output_schema: Mapping[str, Any] | None = None
    """The JSON schema that `output_type` was made of. None: it was made of none."""
    branch: bool = False
    """The child's kernel starts as a copy of its parent's live kernel."""
    prepare: Callable[[Kernel], Awaitable[str]] | None = None
    """Called with the child's kernel before its first turn; what it returns is added to the prompt."""
    tool_call_id: str | None = None
    """Of the call that asks."""


@dataclass(frozen=True, kw_only=True)
class ChildState:
    """What an agent knows of one of its background children."""

    agent_id: str
    description: str
    status: str
    """What it does, or how it ended."""
    ended: bool
    seconds: float
    usage: Usage
    """Of the child and all below it."""
    output: Any = None
    """Its answer once it has ended; at another status than `completed` the last text there was."""
    error: str = ""
    """Why it has not completed."""
    report: str = ""
    """Once it has ended: status line and answer, as its parent's model reads them."""
    question: str = ""
    """What it waits for an answer to; empty if it does not."""


class Children(Protocol):
    """An agent's background children. They end with its run."""

    async def start(self, request: SpawnRequest) -> ChildState:
        """Start a child and do not wait for it.

        Raises:
            FreeactError: It must not be started.
        """
        ...

    def list(self) -> Sequence[ChildState]:
        """All that were started in this run, in order of start."""
        ...

    async def wait(self, agent_ids: Sequence[str], timeout_seconds: float) -> Sequence[ChildState]:
        """Wait until these (none: all) have ended, or one of them asks a question, or the time is up.

        Raises:
            FreeactError: An id is not that of a background child of this agent.
        """
        ...

    def send(self, agent_id: str, text: str) -> str:
        """Answer a child's question, or tell it something that its model reads before its next request.

        Returns:
            What was done, in one sentence.

        Raises:
            FreeactError: The id is not that of a background child of this agent, or the child has ended.
        """
        ...

    async def cancel(self, agent_id: str) -> ChildState:
        """End a child and all below it; what it had so far is in its state.

        Raises:
            FreeactError: The id is not that of a background child of this agent.
        """
        ...


class KernelAccess(Protocol):
    """The agent's kernel, which may be starting, lost or replaced."""

    async def get(self) -> Kernel:
        """The live kernel; started, or started anew, if need be.

        Raises:
            KernelStartError: It does not start.
            KernelLostError: It has died too often in this run.
        """
        ...

    async def reset(self) -> None:
        """Throw the kernel away and start a new one."""
        ...


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """What a call has at hand."""

    config: Config
    tool_call_id: str
    kernel: KernelAccess
    output_folder: Path
    """Where the agent's long outputs are written."""
    emit: Callable[[AgentEvent], Awaitable[None]]
    """Writes an event with the agent's header and this call's id."""
    spawn: Callable[[SpawnRequest], Awaitable[ToolResult]]
    """Starts a child and waits for its end."""
    children: Children
    """Those that work in the background."""
    ask: Callable[[str, str | None], Awaitable[str]]
    """Makes one model request, of a prompt and the name of a model in the settings (None: the agent's own)."""
    ask_parent: Callable[[str], Awaitable[str]] | None = None
    """Asks the agent's parent a question and waits for the answer. None: its parent waits for it and cannot answer."""


class Tool(Protocol):
    """One tool. Its name, description and JSON schema stand in `tools/NAME.json`."""

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
        """Do it. A failure that the model can react to is a result; raising is for what ends the run."""
        ...
