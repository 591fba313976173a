"""`Tool`: what one tool implements, and `ToolContext`: what it is given to work with.

A tool knows nothing of agents. What it needs of its agent stands in the context: a kernel, a way to emit events, a gate, and
`spawn`, a function that the agent placed there.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import BaseModel
from pydantic_ai import BinaryContent

from freeact_sub.budget import Budget
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
    mode: Mode | None = None
    """None: the parent's; it is never more than that."""
    scope: str = ""
    """What the child is told to keep to: a folder, files, a part of the work."""
    budget: Budget = field(default_factory=Budget)
    """Cut to what the parent has left."""
    output_type: Any = str
    """What the child's answer must be, as pydantic-ai's `output_type`."""
    branch: bool = False
    """The child's kernel starts as a copy of its parent's live kernel."""
    prepare: Callable[[Kernel], Awaitable[str]] | None = None
    """Called with the child's kernel before its first turn; what it returns is added to the prompt."""
    tool_call_id: str | None = None
    """Of the call that asks."""


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
