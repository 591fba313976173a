"""The interface of tools (`Tool`), and the context of a call (`ToolContext`).

A tool knows nothing of agents. All that it needs stands in the context: a kernel, a way to emit events, a gate, and
`spawn`, a function that the agent placed there.
"""

import functools
import importlib.resources
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import BaseModel
from pydantic_ai import BinaryContent, ToolDefinition

from freeact_sub.calls import Call, ToolCall
from freeact_sub.config.budget import Usage
from freeact_sub.config.schema import Config
from freeact_sub.events import AgentEvent, Answer
from freeact_sub.events.forms import PersonQuestion
from freeact_sub.kernels import Kernel
from freeact_sub.tools.request import ChildRequest, schema_for_models

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
    """Whether the text is already within the model's bound."""
    file: str | None = None
    """A file with the whole of a text that was cut."""


@dataclass(frozen=True, kw_only=True)
class ChildState:
    """The state of a background child, for its parent."""

    agent_id: str
    description: str
    task: str
    """The prompt."""
    status: str
    """The live status, such as `running`, or the outcome."""
    ended: bool
    seconds: float
    usage: Usage
    """The spending of the child and its descendants."""
    output: Any = None
    """The answer once the child has ended; if the status is not `completed`, its last text."""
    error: str = ""
    """The reason why the child did not complete."""
    report: str = ""
    """Status line and answer for its parent's model, once it has ended."""
    question: str = ""
    """The child's open question; empty if there is none."""
    action: str = ""
    """The child's activity in one line; empty if it is not working."""


class BackgroundChildren(Protocol):
    """Background children of an agent, which end with its run."""

    async def start(self, request: ChildRequest) -> ChildState:
        """Start a child without waiting for it.

        Raises:
            FreeactError: The child may not be started.
        """
        ...

    def list(self) -> Sequence[ChildState]:
        """Return the children of this run, oldest first."""
        ...

    async def wait(self, agent_ids: Sequence[str], timeout_seconds: float) -> Sequence[ChildState]:
        """Wait until these children (default: all) have ended, one asks a question, or the time is up.

        Raises:
            FreeactError: An id does not name a background child of this agent.
        """
        ...

    async def message(self, agent_id: str, text: str, tool_call_id: str | None) -> str:
        """Answer a child's question, or send a message that its model reads before its next request.

        An ended child is resumed in the background, with the text as its prompt. It needs approval like a new child.

        Args:
            agent_id: The child.
            text: The answer, the message or the prompt.
            tool_call_id: The id of the calling tool's call.

        Returns:
            The outcome, in one sentence.

        Raises:
            ApprovalDeniedError: Resuming the child was denied.
            FreeactError: The id is no child's of this agent, or the child cannot begin another run.
        """
        ...

    async def cancel(self, agent_id: str) -> ChildState:
        """Cancel a child and its descendants; its state has what it found so far.

        Raises:
            FreeactError: The id does not name a background child of this agent.
        """
        ...


class KernelAccess(Protocol):
    """The agent's kernel, which may be starting, lost or replaced."""

    async def get(self) -> Kernel:
        """Return the live kernel; start one if needed.

        Raises:
            KernelStartError: The kernel does not start.
            KernelLostError: The kernel has died too often in this run.
        """
        ...

    async def reset(self) -> None:
        """Replace the kernel with a new one."""
        ...


@dataclass(frozen=True, kw_only=True)
class CellContext:
    """The means of running a cell."""

    config: Config
    tool_call_id: str
    output_folder: Path
    emit: Callable[[AgentEvent], Awaitable[Any]]
    """A function that writes an event with the agent's header and this call's id."""
    asked_seconds: Callable[[], float] = lambda: 0.0
    """A function that returns the seconds that people were asked so far for the agent and its descendants."""
    take_loss: Callable[[], str] = lambda: ""
    """A function that returns why an earlier kernel was lost, for this result to say. Empty: nothing to say."""


@dataclass(frozen=True, kw_only=True)
class ToolContext(CellContext):
    """The means of a tool call."""

    kernel: KernelAccess
    spawn: Callable[[ChildRequest], Awaitable[ToolResult]]
    """A function that starts a child and waits for its end."""
    children: BackgroundChildren
    ask: Callable[[str, str | None], Awaitable[str]]
    """A function that makes one model request. Args: the prompt; the name of a model in the settings, None: the agent's
    own."""
    ask_user: Callable[[PersonQuestion], Awaitable[Answer]]
    """A function that asks a person; an answer without text is none."""
    ask_parent: Callable[[str], Awaitable[str]] | None = None
    """A function that asks the agent's parent. None: the parent waits for this agent and cannot answer."""


class Tool(Protocol):
    """A tool. `tools/NAME.json` has its name, description and JSON schema."""

    @property
    def name(self) -> str:
        """The name that the model calls it by."""
        ...

    @property
    def arguments(self) -> type[BaseModel]:
        """The model that validates the arguments; a test holds it against the JSON file."""
        ...

    def call(self, arguments: Any) -> Call:
        """Return the value that rules and people judge before the tool runs."""
        ...

    async def run(self, arguments: Any, context: ToolContext) -> ToolResult:
        """Run the tool. A failure that the model can react to is a result; an exception ends the run."""
        ...


class PlainTool:
    """A tool that is judged by its name; harmless if its file says so: it touches only its agent and its children."""

    name: str

    def call(self, arguments: BaseModel) -> ToolCall:
        """Return a call by the tool's name."""
        return ToolCall(tool_name=self.name, args=arguments.model_dump(), harmless=is_harmless(self.name))


def is_harmless(name: str) -> bool:
    """Return whether a tool is built in, and its file has `"metadata": {"harmless": true}`."""
    return name in built_in_names() and bool((_told(name).get("metadata") or {}).get("harmless", False))


@functools.cache
def load_definition(name: str) -> ToolDefinition:
    """Load `tools/NAME.json`, the model's description of a tool; a wheel has it beside this module.

    The schema of `task` is made from the choices for a child, which stand in one place only.
    """
    told = {**_told(name)}
    if "parameters_json_schema" not in told:
        from freeact_sub.tools.children import TaskArguments  # noqa: PLC0415  # all others say their own

        told["parameters_json_schema"] = schema_for_models(TaskArguments)
    return ToolDefinition(**told)


@functools.cache
def _told(name: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((_definitions() / f"{name}.json").read_text(encoding="utf-8"))
    return told


@functools.cache
def built_in_names() -> frozenset[str]:
    """Return the names of all built-in tools, including those that an agent does not have."""
    return frozenset(file.name.removesuffix(".json") for file in _definitions().iterdir() if file.name.endswith(".json"))


def _definitions() -> Traversable:
    packaged = importlib.resources.files("freeact_sub.tools") / "definitions"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "tools"
