"""`RequestedCall` and `EndedCall`: one tool call before it is made, and its result.

`Asker` is an agent that wants to do something; `FeatureAgent` and `FeatureRun` are the agent and its run, as features know
them. They name no class of the core, so that the core can change below the features of users.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, Literal, Protocol, Self, TypeAlias, TypeVar

from pydantic_ai.messages import ModelMessage, TextContent, UserContent
from pydantic_ai.models import Model

from freeact_sub.approvals import Policy
from freeact_sub.approvals.advice import Adviser
from freeact_sub.calls import Call, CodeAction, SpawnCall, ToolCall
from freeact_sub.channel import Emitter
from freeact_sub.config.budget import Budget, Usage
from freeact_sub.config.schema import Config
from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.events import Answer
from freeact_sub.events.forms import PersonQuestion
from freeact_sub.kernels import CellClock, HostRequestHandler, Kernel, KernelSpec
from freeact_sub.tools import ChildRequest

T = TypeVar("T")

Maker: TypeAlias = Literal["model", "code", "program", "check"]
"""The maker of a call: the model; code in a cell, with the tools that its agent has; a program, whose own cells nobody is
asked about; or the check of an answer, which runs in another kernel, so that its cells are not tried."""


class FeatureRun(Protocol):
    """A run of an agent, as features know it."""

    has_model: bool
    """A model does the work, not a program."""
    must_end: ApprovalDeniedError | None
    """The reason why the run must end after the present call of its model. A feature may set it. None: it goes on."""
    prompt: Sequence[UserContent]
    """The prompt in parts, as the model reads it. A feature may set it in `RunPart.opening`; later it is empty."""

    @property
    def is_live(self) -> bool:
        """Whether the run has begun and not ended."""
        ...

    @property
    def seconds(self) -> float:
        """The time that it has taken, without waiting for people."""
        ...

    @property
    def usage(self) -> Usage:
        """The spending of the agent itself in this run, up to now."""
        ...

    @property
    def left(self) -> Budget:
        """The most that a child could be given at this moment."""
        ...

    @property
    def conversation(self) -> Sequence[ModelMessage]:
        """The messages so far, and those that wait for the next request."""
        ...

    def tell(self, text: str | TextContent) -> bool | None:
        """Send what the model reads before its next request. Returns None before its first request, False after its last."""
        ...

    def advisers(self, asker: "Asker") -> Sequence[Adviser]:
        """Return the advisers of all features on a call. Args: asker: the agent or node that makes it."""
        ...

    def clocks_paused(self) -> AbstractContextManager[None]:
        """Stop the clocks of this run and of its ancestors in a block, while a person is asked."""
        ...


class UsedKernel(Protocol):
    """An agent's kernel, which may be starting, lost or replaced."""

    @property
    def is_used(self) -> bool:
        """Whether code may have run in it."""
        ...

    @property
    def has_own_files(self) -> bool:
        """Whether it works in a copy of the workspace."""
        ...

    async def get(self) -> Kernel:
        """Returns the live kernel; starts one if needed. Raises: KernelError: There is none."""
        ...

    async def copy(
        self, handler: HostRequestHandler | None = None, change: Callable[[KernelSpec], KernelSpec] | None = None
    ) -> Kernel:
        """Branch the live kernel; the caller closes it. Raises: KernelError: It cannot be branched."""
        ...

    async def reset(self) -> None:
        """Replaces the kernel with a new one. Raises: KernelError: There is none."""
        ...


class FeatureAgent(Protocol):
    """An agent, or a node that it keeps, as features know it."""

    @property
    def agent_id(self) -> str:
        """Its id, as in the events."""
        ...

    @property
    def parent_id(self) -> str | None:
        """None for the root."""
        ...

    @property
    def depth(self) -> int:
        """Distance from the root."""
        ...

    @property
    def name(self) -> str:
        """Its name for people."""
        ...

    @property
    def label(self) -> str:
        """Its name for models."""
        ...

    @property
    def path(self) -> tuple[str, ...]:
        """The names for people from the root to this agent."""
        ...

    @property
    def config(self) -> Config:
        """The settings of its root."""
        ...

    @property
    def present_policy(self) -> Policy:
        """The policy that decides on its calls at this moment."""
        ...

    @property
    def emitter(self) -> Emitter:
        """Writes its events to the present stream of the root."""
        ...

    @property
    def run(self) -> FeatureRun:
        """Its present or last run; for a node, that of its owner."""
        ...

    async def ask_person(
        self, asked: PersonQuestion, *, tool_call_id: str | None = None, clock: CellClock | None = None
    ) -> Answer:
        """Ask a person, and stop the clocks of run and cell meanwhile. Without a person the answer has no text."""
        ...


@dataclass(frozen=True, kw_only=True)
class Asker:
    """An agent that wants to do something, and the place from which it asks."""

    agent: FeatureAgent
    """The agent, or the node, whose policy decides."""
    by: Maker = "model"
    tool_call_id: str | None = None
    """The model's call; for code, the call of its cell. None: no cell runs."""
    clock: CellClock | None = None
    """The clock of the calling cell. None: no cell runs."""

    @property
    def policy(self) -> Policy:
        """The policy of the agent at this moment."""
        return self.agent.present_policy

    @cached_property
    def emitter(self) -> Emitter:
        """Writes all events of one question to one stream, though another run of the root may begin meanwhile."""
        return self.agent.emitter

    @property
    def path(self) -> tuple[str, ...]:
        """The names for people from the root to the agent."""
        return self.agent.path

    @cached_property
    def advisers(self) -> Sequence[Adviser]:
        """The features that have a say on the call."""
        return self.agent.run.advisers(self)

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
    """Its arguments; of a cell, `code` alone."""
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
        """The caller's name for it."""
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
    """The result for the caller."""
    text: str
    """The result for front ends."""
    outcome: Literal["success", "failed", "denied"]
    seconds: float = 0.0
    """The time it ran."""
    notes: tuple[str, ...] = ()
    """Texts of features for the agent's model, which reads them with the result of its call."""

    def noted(self, *notes: str) -> Self:
        """The result with more notes."""
        return replace(self, notes=(*self.notes, *notes)) if notes else self


class CallsOfCode(Protocol):
    """Makes the calls of code in a kernel, on behalf of who holds the kernel."""

    @property
    def agent(self) -> FeatureAgent:
        """The holder: an agent, or a node."""
        ...

    async def carry_out(
        self,
        name: str,
        call: Call,
        args: Mapping[str, Any],
        clock: CellClock | None,
        work: Callable[[], Awaitable[EndedCall[T]]],
        call_id: str = "",
    ) -> T:
        """Carry out a call as if the model had made it, and return the value for the code.

        Raises:
            FreeactError: The call is denied or fails.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Question:
    """A request to a model beside the conversation."""

    agent: FeatureAgent
    prompt: str
    model: Model
    history: tuple[str, ...] = ()
    """Earlier prompts and answers, alternating."""
    schema: Mapping[str, Any] | None = None
    """The schema of a typed answer. None: the answer is text."""
    by: Maker = "model"
    together: int = 1
    """The length of the list that it is part of; 1: it is not known to be part of one."""
    payer: Any = None
    """An account of this package below that of the run, which pays. None: the run's."""

    @property
    def digest(self) -> str:
        """Identifies what is asked, and of whom: the same question has the same one in another program."""
        model, history = model_words(self.model), list(self.history)
        return digest_of(kind="ask", prompt=self.prompt, history=history, model=model, output=self.schema)


def model_words(model: Model) -> list[str]:
    """The name of a model, and its address: two models of one name may have different servers."""
    return [model.model_id, str(model.base_url)]


def digest_of(**parts: Any) -> str:
    """Return what identifies these JSON values together."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, kw_only=True)
class NewChild:
    """A child that an agent is about to start."""

    agent: FeatureAgent
    """The agent that starts it."""
    request: ChildRequest
    by: Maker
    waits: bool
    """The agent waits for its end."""
    together: int = 1
    """The length of the list that it is part of; 1: it is not known to be part of one."""
    payer: Any = None
    """An account of this package below that of the run, which pays. None: the run's."""
    program: Callable[[str, Any], Awaitable[Any]] | None = None
    """Answers the prompt instead of a model; its second argument is the child's `ExecutionContext`."""


Proceed: TypeAlias = Callable[[], Awaitable[EndedCall[T]]]
"""Makes a call: the features that stand inside, then the tool."""
Work: TypeAlias = Callable[[RequestedCall], Awaitable[EndedCall[T]]]
"""Runs the tool of a call, which may have other code than was requested."""
