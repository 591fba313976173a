"""`Tool`: what one tool implements, and `ToolContext`: what it is given to work with.

A tool knows nothing of agents. What it needs of its agent stands in the context: a kernel, a way to emit events, a gate, and
`spawn`, a function that the agent placed there.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import BaseModel
from pydantic_ai import BinaryContent

from freeact_sub.calls import Call
from freeact_sub.config import Config
from freeact_sub.events import AgentEvent
from freeact_sub.kernels import Kernel

Outcome: TypeAlias = Literal["success", "failed"]


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """What the model reads of a call."""

    text: str
    images: tuple[BinaryContent, ...] = ()
    outcome: Outcome = "success"


@dataclass(frozen=True, kw_only=True)
class SpawnRequest:
    """A child that is asked for."""

    prompt: str
    description: str = ""
    max_turns: int | None = None
    tool_call_id: str | None = None


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
