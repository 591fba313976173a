"""`RequestedCall` and `EndedCall`: one tool call before it is made, and its result."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeAlias, TypeVar

from pydantic_ai.models import Model

from freeact_sub.calls import Call, CodeAction, SpawnCall, ToolCall

if TYPE_CHECKING:
    from freeact_sub.agents.tree_agent import TreeAgent
    from freeact_sub.kernels import CellClock

T = TypeVar("T")

Maker: TypeAlias = Literal["model", "code", "program", "check"]
"""Who makes a call: the model; code in a cell, with the tools that its agent has; a program, whose own cells nobody is asked
about; or the check of an answer, which runs in another kernel, so that its cells are not tried."""


@dataclass(frozen=True, kw_only=True)
class Asker:
    """On whose behalf something is done, and from where."""

    agent: "TreeAgent"
    """The agent, or the node, whose policy decides."""
    by: Maker = "model"
    tool_call_id: str | None = None
    """The model's call; for code, that of its cell. None: no cell runs."""
    clock: "CellClock | None" = None
    """The clock of the calling cell."""

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clocks of the run and of the calling cell, while a person is asked or something of theirs runs."""
        with self.agent.run.clocks_paused(), nullcontext() if self.clock is None else self.clock.paused():
            yield


@dataclass(frozen=True, kw_only=True)
class RequestedCall(Asker):
    """A call before it is made."""

    name: str
    args: dict[str, Any]
    call: Call
    """The value that rules and people judge."""
    call_id: str = ""
    """The id of a call from code. Empty: the model makes it."""
    is_asked: bool = True
    """A person or a rule is still to allow it."""
    is_begun: bool = False
    """Its tool began it, and runs again because a person has approved it meanwhile: only the rest remains."""
    is_changed: bool = False
    """A person has changed its code."""

    @property
    def label(self) -> str:
        """What the caller named it."""
        match self.call:
            case SpawnCall() | CodeAction():
                return self.call.description
            case ToolCall(tool_name="ask", args={"label": str(label)}):
                return label
            case _:
                return ""

    def with_code(self, code: str | None) -> Self:
        """The call with the code that a person wants to run instead. Args: code: None: unchanged."""
        if code is None or not isinstance(self.call, CodeAction):
            return self
        return replace(self, call=replace(self.call, code=code), args={"code": code}, is_changed=True)


@dataclass(frozen=True, kw_only=True)
class EndedCall(Generic[T]):
    """The result of a call."""

    value: T
    """For the caller."""
    text: str
    """For front ends."""
    outcome: Literal["success", "failed", "denied"]
    seconds: float = 0.0
    """The time it ran."""
    notes: tuple[str, ...] = ()
    """Texts of features for the agent's model, which reads them with the result of its call."""

    def noted(self, *notes: str) -> Self:
        """The result with more notes."""
        return replace(self, notes=(*self.notes, *notes)) if notes else self


@dataclass(frozen=True, kw_only=True)
class Question:
    """A request to a model beside the conversation."""

    agent: "TreeAgent"
    prompt: str
    model: Model
    history: tuple[str, ...] = ()
    """Earlier prompts and answers, alternating."""
    schema: Mapping[str, Any] | None = None
    """Of a typed answer. None: text."""


Proceed: TypeAlias = Callable[[], Awaitable[EndedCall[T]]]
"""Makes a call: the features that stand inside, then the tool."""
Work: TypeAlias = Callable[[RequestedCall], Awaitable[EndedCall[T]]]
"""Runs the tool of a call, which may have other code than was requested."""
