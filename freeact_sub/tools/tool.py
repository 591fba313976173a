"""The interface of tools (`Tool`), the context of a call (`ToolContext`), and requests for children.

A tool knows nothing of agents. All that it needs stands in the context: a kernel, a way to emit events, a gate, and
`spawn`, a function that the agent placed there. A parent asks for a child by a `ChildRequest`, a model or its code by an
`AskedChild`; both inherit the choices of `ChildChoices` (`calls.py`).
"""

import functools
import importlib.resources
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, ValidationError, field_validator
from pydantic_ai import BinaryContent, ToolDefinition
from pydantic_ai.messages import UserContent
from pydantic_ai.models import Model
from pydantic_core import to_json

from freeact_sub.calls import Call, ChildChoices, SpawnCall, ToolCall
from freeact_sub.config.budget import Usage
from freeact_sub.config.schema import Config
from freeact_sub.errors import InvalidRequestError, LimitReachedError
from freeact_sub.events import AgentEvent, Answer
from freeact_sub.events.forms import PersonQuestion
from freeact_sub.kernels import CellClock, Kernel
from freeact_sub.text import wrong_fields

Outcome: TypeAlias = Literal["success", "failed"]


class NodeHandle(Protocol):
    """A kernel node (`freeact_sub.KernelNode`), as requests name it."""

    @property
    def node_id(self) -> str:
        """The id of the node."""
        ...


class ChildRequest(ChildChoices):
    """A request to start a child, from a tool, code or a program.

    Raises:
        InvalidRequestError: A choice has another form; the message names it.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    prompt: str
    content: Annotated[tuple[UserContent, ...], SkipValidation] = ()
    """The prompt's texts, pictures and files in order, where it has more than text."""
    model: Annotated[str | Model | None, SkipValidation] = None
    """The name of a model in the setting `models`, `PROVIDER:NAME`, or a `Model` of pydantic-ai; `inherit`: the parent's.
    None: the type's, else the setting `subagents.model`, else the parent's."""
    branch_of: Annotated[NodeHandle | str | None, SkipValidation] = None
    """The node whose kernel the child's starts as a copy of; an id names one of the parent's nodes."""
    output_type: Any = str
    """The type of the child's answer: pydantic-ai's `output_type`, or a type of frames or arrays, which come by value."""
    output_schema: Mapping[str, Any] | None = None
    """The JSON schema behind `output_type`, if it was made from one."""
    check: Annotated[str | Callable[[Any], Any] | None, SkipValidation] = None
    """The check of the answer before it is accepted (docs/receipts.md): code that looks at `answer`, in a branch of the
    child's kernel, or a function of it. It fails if it raises, or if its value is false; a function may return nothing."""
    verify: Annotated[Callable[[Any], Awaitable[str]] | None, SkipValidation] = None
    """The check in the kernel that knows the answer's type; returns what is wrong."""
    prepare: Annotated[Callable[[Kernel], Awaitable[str]] | None, SkipValidation] = None
    """A function called with the child's kernel before its first turn; its text is added to the prompt."""
    inputs_digest: str = ""
    """The digest of the values that `prepare` puts into the kernel. Empty: unknown."""
    tool_call_id: str | None = None
    """The call that starts the child, for its `AgentStarted`. None: a program starts it."""

    if not TYPE_CHECKING:  # type checkers know the fields

        def __init__(self, **choices: Any) -> None:
            try:
                super().__init__(**choices)
            except ValidationError as error:
                raise InvalidRequestError(f"a child: {wrong_fields(error.errors())}") from error

    @field_validator("output_schema")
    @classmethod
    def _is_json(cls, schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        try:
            to_json(schema)
        except ValueError as error:
            raise ValueError(f"the schema of the answer is not JSON: {error}") from error
        return schema

    def replace(self, **choices: Any) -> Self:
        """Return the request with other choices. Raises: InvalidRequestError: One has another form."""
        return type(self)(**{**dict(self), **choices})

    @property
    def is_branch(self) -> bool:
        """Whether the child's kernel starts as a copy of its parent's live kernel, as with files of its own it must."""
        return self.branch or (self.own_files and self.branch_of is None and self.resume is None)

    @property
    def choices(self) -> ChildChoices:
        """The choices that an agent keeps, without prompt and functions of a program."""
        own = {name: getattr(self, name) for name in ChildChoices.model_fields}
        node_id = getattr(self.branch_of, "node_id", self.branch_of)  # an agent that has ended holds no node
        return ChildChoices.model_construct(**own | {"branch_of": node_id})

    @property
    def continues_all(self) -> bool:
        """Whether the child continues its parent's conversation and state."""
        other = self.branch_of is not None or self.own_files or self.tools is not None or self.mode is not None
        return self.history == "all" and not other

    def call(self, *, background: bool = False) -> SpawnCall:
        """Return the call that rules and people judge. Args: background: the parent does not wait for the child."""
        return SpawnCall.of(self.prompt, self, background=background)


class AskedChild(ChildChoices):
    """A child as a model or its code asks for it, by plain values."""

    prompt: str = Field(min_length=1, description="The whole task: names, paths, details.")
    max_turns: int | None = Field(
        default=None, ge=1, description="Model responses that it may use.", json_schema_extra={"default": 10}
    )
    """The bound `turns` of the budget. None: the setting's."""

    @property
    def chosen(self) -> dict[str, Any]:
        """The choices by name, with the bound on turns in the budget."""
        budget = self.budget if self.max_turns is None else self.budget.model_copy(update={"turns": self.max_turns})
        return {name: getattr(self, name) for name in ChildChoices.model_fields} | {"budget": budget}


EMPTY: Final[tuple[Any, ...]] = ("", None, False, {}, [])


def schema_for_models(arguments: type[AskedChild]) -> dict[str, Any]:
    """Return the JSON schema of arguments for models, without repetition: each request pays for it."""
    schema = arguments.model_json_schema()
    fields = schema["properties"]
    ordered = {name: fields[name] for name in ("prompt", *(name for name in fields if name != "prompt"))}
    properties = {name: _short(field) for name, field in ordered.items()}
    return {"type": "object", "properties": properties, "required": schema["required"]}


def _short(field: dict[str, Any]) -> dict[str, Any]:
    kinds = [kind for kind in field.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        field = {**kinds[0], **{name: value for name, value in field.items() if name != "anyOf"}}
    needless = {"title", "minLength"} | ({"default"} if field.get("default") in EMPTY else set())
    return {name: value for name, value in field.items() if name not in needless}


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
    at_limit: Callable[[LimitReachedError, CellClock], Awaitable[float]] | None = None
    """A function that returns how many seconds more the cell may run, when its time is up; 0: it ends. None: it ends."""
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
