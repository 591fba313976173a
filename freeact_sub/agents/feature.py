"""Features: classes that take part in the life of agents at a few seams, without the core knowing them.

A `Feature` belongs to one tree of agents (`Agent(features=[...])`), and makes a `RunPart` for each run of each agent in it.
All methods are optional: the base does nothing. They are called in this order:

1.  `Feature.attach`, once, when the root is made. Each tap that it returns hears every event of the tree, in order.
2.  `Feature.around` and `Feature.open`, entered when the root is opened, and left when it is closed, in reverse order: the
    first before its kernel is made and after that has ended, the second while there is a kernel.
3.  `Feature.kernel`, when an `AgentKernel` is made, and when the mode of the root has changed. `KernelFeature.kernel_part`,
    once for each agent or node that gets a kernel of its own: the part changes hands with it (`KernelPart.assign`), and is
    closed with it.
    `Feature.requests`, when code in a kernel first asks the host something, and anew when the kernel has another holder.
4.  `Feature.run`, when a run begins: it makes the part. `RunPart.begins`, before `AgentStarted`; then `RunPart.known`.
5.  `RunPart.opening`, before the model reads the prompt, and before it reads a message of a person.
    `Feature.instructions` and `RunPart.capability`, once, before the first turn. `RunPart.ask`, around each question beside
    the conversation; `RunPart.child`, around the start of each child, or around its whole run if the agent waits for it.
6.  For each call: `RunPart.advisers`, before the gate decides; then `RunPart.call`, around the call that may run.
    `RunPart.did`, for each action of code.
    `RunPart.limit`, when the run has reached a bound of its budget, or a cell in it its time, before that ends it.
7.  `RunPart.answer`, each time the model would end the run.
8.  `RunPart.closing`, once, after the children of the run have ended and before its kernel is closed. A child that is
    cancelled, or whose time is up, has no live kernel any more.
9.  `RunPart.facts`, to complete the ending; and `RunPart.ended`, once, when nothing can change it any more.

**Order.** The order in the list of features is the only one: the first feature stands outermost around a call, and is asked
first elsewhere. `default_features` has the list of this package.

**Errors.** `opening`, `advisers` and `answer` may raise `ApprovalDeniedError`, and the run is `rejected`; a message of a
person is then only not read, unless the error has `ends_run`. Any other exception ends the run as `failed`, with the name of
the part, but in `closing`, `facts` and `ended` it is logged. `call` lets exceptions of `proceed` pass. Taps must not raise.

**Cancellation.** All coroutines run inside the scope of the run and may be cancelled at any `await`, except `closing`, which
runs to its end for at most `RunPart.closing_seconds`. A part that begins something in `call` ends it in `finally`.

**Clocks.** The clock of a run goes on while a feature works. A feature that asks a person, or runs a program of a person,
enters `agent.run.clocks_paused()`; around a call `call.paused()`, which stops the clock of the cell too.

Features know an agent and its run as `FeatureAgent` and `FeatureRun`. These name no class of the core, so that the core can
change below the features of users. `RequestedCall` and `EndedCall` are one tool call before it is made, and its result;
`Asker` is an agent that wants to do something.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Final, Generic, Literal, Protocol, Self, TypeAlias, TypeVar

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, TextContent, UserContent
from pydantic_ai.models import Model

from freeact_sub.agents.results import RunResult
from freeact_sub.approvals import Policy
from freeact_sub.approvals.gate import Adviser, check_overrides
from freeact_sub.calls import Call, CodeAction, SpawnCall, ToolCall
from freeact_sub.channel import Emitter, Tap
from freeact_sub.config.budget import Budget, Usage
from freeact_sub.config.schema import Config
from freeact_sub.errors import ApprovalDeniedError, FreeactError, InvalidRequestError, LimitReachedError
from freeact_sub.events import Answer
from freeact_sub.events.forms import PersonQuestion
from freeact_sub.kernels import CellClock, HostRequestHandler, Kernel, KernelSpec
from freeact_sub.tools import ChildRequest, JudgedToolset, Tool

T = TypeVar("T")

Maker: TypeAlias = Literal["model", "code", "program", "check"]
"""The maker of a call: the model; code in a cell, with the tools that its agent has; a program, a person, or whoever runs a
cell in a node (`RequestedCall.is_asked` says whether it is asked about); or the check of an answer, which runs in another
kernel, so that its cells are not tried."""

logger = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Mapping[str, Any], CellClock | None], Awaitable[Any]]
"""A function of the parameters and the clock of the requesting cell (None: no cell runs) that returns a JSON value. Or an
iterator: the cell shows the texts that it yields, and its last item, which is not a text, is the value."""


class FeatureRun(Protocol):
    """A run of an agent, as features know it."""

    has_model: bool
    """Whether a model does the work, not a program."""
    must_end: ApprovalDeniedError | None
    """The reason why the run must end after the present call of its model. A feature may set it."""
    prompt: Sequence[UserContent]
    """The prompt in parts, as the model reads it. A feature may set it in `RunPart.opening`; later it is empty."""

    @property
    def is_live(self) -> bool:
        """Whether the run has begun and not ended."""
        ...

    @property
    def is_cancelled(self) -> bool:
        """Whether the run, or an ancestor's, is being cancelled."""
        ...

    @property
    def seconds(self) -> float:
        """Seconds that the run has taken, without waiting for people."""
        ...

    @property
    def usage(self) -> Usage:
        """The agent's own spending in this run, without its children's."""
        ...

    @property
    def left(self) -> Budget:
        """The budget that a child could be given at this moment."""
        ...

    @property
    def conversation(self) -> Sequence[ModelMessage]:
        """The messages so far, and those that wait for the next request."""
        ...

    def tell(self, text: str | TextContent) -> bool | None:
        """Send the model a text before its next request. Return None before its first request, False after its last."""
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
        """Whether code may have run in the kernel."""
        ...

    @property
    def has_own_files(self) -> bool:
        """Whether the kernel works in a copy of the workspace."""
        ...

    async def get(self) -> Kernel:
        """Return the live kernel; start one if needed. Raises: KernelError: There is none."""
        ...

    async def copy(
        self, handler: HostRequestHandler | None = None, change: Callable[[KernelSpec], KernelSpec] | None = None
    ) -> Kernel:
        """Branch the live kernel; the caller closes it. Raises: KernelError: It cannot be branched."""
        ...

    async def reset(self) -> None:
        """Replace the kernel with a new one. Raises: KernelError: There is none."""
        ...


class FeatureAgent(Protocol):
    """An agent, or a node that it keeps, as features know it."""

    @property
    def agent_id(self) -> str:
        """The id, as in the events."""
        ...

    @property
    def parent_id(self) -> str | None:
        """The id of the parent; None for the root."""
        ...

    @property
    def depth(self) -> int:
        """The distance from the root."""
        ...

    @property
    def name(self) -> str:
        """The name for people."""
        ...

    @property
    def label(self) -> str:
        """The name for models."""
        ...

    @property
    def path(self) -> tuple[str, ...]:
        """The names for people from the root to this agent."""
        ...

    @property
    def config(self) -> Config:
        """The settings of the root."""
        ...

    @property
    def policy(self) -> Policy:
        """The policy that decides on its calls at this moment."""
        ...

    @property
    def emitter(self) -> Emitter:
        """The writer of the agent's events to the root's present stream."""
        ...

    @property
    def run(self) -> FeatureRun:
        """The present or last run; for a node, its owner's."""
        ...

    async def ask_person(
        self,
        asked: PersonQuestion,
        *,
        tool_call_id: str | None = None,
        clock: CellClock | None = None,
        may_be_passed_over: bool = False,
    ) -> Answer:
        """Ask a person, and stop the clocks of run and cell meanwhile. Without a person the answer has no text.

        Args:
            asked: The question.
            tool_call_id: The call that it belongs to.
            clock: The clock of the cell that it belongs to.
            may_be_passed_over: Nobody is there if the reader of the events has neither shown nor answered the question.
        """
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
        return self.agent.policy

    @cached_property
    def emitter(self) -> Emitter:
        """A writer of all events of one question to one stream, though another run may begin meanwhile."""
        return self.agent.emitter

    @property
    def path(self) -> tuple[str, ...]:
        """The names for people from the root to the agent."""
        return self.agent.path

    @cached_property
    def advisers(self) -> Sequence[Adviser]:
        """The features' advisers on the call."""
        return self.agent.run.advisers(self)

    @property
    def ended(self) -> str:
        """The reason why a question that nobody answered is closed."""
        if self.agent.run.is_cancelled:
            return "cancelled"
        return "the call has ended" if self.clock is None else "the cell has ended"

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clocks of the run and of the calling cell, while a person is asked or a program of theirs runs."""
        with self.agent.run.clocks_paused(), nullcontext() if self.clock is None else self.clock.paused():
            yield


@dataclass(frozen=True, kw_only=True)
class RequestedCall(Asker):
    """A call before it is made."""

    name: str
    args: dict[str, Any]
    """The arguments; for a cell, `code` alone."""
    call: Call
    """The value that rules and people judge."""
    call_id: str = ""
    """The id of a call from code. Empty: the model makes it."""
    is_asked: bool = True
    """Whether a person or a rule is still to allow the call."""
    is_begun: bool = False
    """Whether the tool began before a person approved the call, and runs again: only the rest remains."""
    is_changed: bool = False
    """Whether a person has changed the code."""

    @property
    def label(self) -> str:
        """The caller's name for the call."""
        match self.call:
            case SpawnCall() | CodeAction():
                return self.call.description
            case ToolCall(tool_name="ask", args={"label": str(label)}):
                return label
            case _:
                return ""

    def with_code(self, code: str | None) -> Self:
        """Return the call with the code that a person wants to run instead. Args: code: None: unchanged."""
        if code is None or not isinstance(self.call, CodeAction):
            return self
        return replace(self, call=replace(self.call, code=code), args={"code": code}, is_changed=True)


@dataclass(frozen=True, kw_only=True)
class EndedCall(Generic[T]):
    """The result of a call."""

    value: T
    """The result for the caller."""
    text: str
    """The result as front ends show it."""
    outcome: Literal["success", "failed", "denied"]
    seconds: float = 0.0
    """The seconds that the call ran."""
    notes: tuple[str, ...] = ()
    """Notes of features that the agent's model reads with the result."""

    def noted(self, *notes: str) -> Self:
        """Return the result with more notes."""
        return replace(self, notes=(*self.notes, *notes)) if notes else self


class CallsOfCode(Protocol):
    """Maker of the calls of code in a kernel, on behalf of the kernel's holder."""

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
    """The length of the list that holds the question; 1 if none is known."""
    payer: Any = None
    """The account of this package that pays, below the run's. None: the run's."""

    @property
    def digest(self) -> str:
        """The hash of the question and the model; another program gets the same one."""
        model, history = model_words(self.model), list(self.history)
        return digest_of(kind="ask", prompt=self.prompt, history=history, model=model, output=self.schema)


def model_words(model: Model) -> list[str]:
    """Return the name and the address of a model: two models of one name may have different servers."""
    return [model.model_id, str(model.base_url)]


def digest_of(**parts: Any) -> str:
    """Return one hash of these JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, kw_only=True)
class NewChild:
    """A child that an agent is about to start."""

    agent: FeatureAgent
    request: ChildRequest
    by: Maker
    waits: bool
    """Whether the agent waits for the child to end."""
    together: int = 1
    """The length of the list that holds the child; 1 if none is known."""
    payer: Any = None
    """The account of this package that pays, below the run's. None: the run's."""
    program: Callable[[str, Any], Awaitable[Any]] | None = None
    """A function that answers the prompt instead of a model; its second argument is the child's `ExecutionContext`."""


Proceed: TypeAlias = Callable[[], Awaitable[EndedCall[T]]]
"""The rest of a call: the features that stand inside, then the tool."""
RunTool: TypeAlias = Callable[[RequestedCall], Awaitable[EndedCall[T]]]
"""The tool of a call, which may run with other code than was requested."""


class FeatureRoot(Protocol):
    """The root of a tree of agents, as its features know it."""

    @property
    def agent(self) -> FeatureAgent:
        """The agent without a parent."""
        ...

    def find(self, agent_id: str) -> FeatureAgent | None:
        """Find an agent of the tree. None: none has this id, or it is forgotten."""
        ...

    def notice(self, text: str) -> None:
        """Show a notice to people, in the next run if none is live."""
        ...


class RunPart:
    """The part that a feature takes in one run of one agent."""

    closing_seconds: ClassVar[float] = 5.0
    """Seconds for `closing`."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_overrides(cls, RunPart)

    def begins(self, prompt: str, request: ChildRequest | None) -> None:
        """Called when the run begins, before it emits anything. Args: request: the child to run. None: it is the root."""

    def known(self) -> RunResult | None:
        """Return an answer that exists already, so that the run need not work."""
        return None

    async def ask(self, question: Question, proceed: Callable[[Question], Awaitable[Any]]) -> Any:
        """Called around a question to a model beside the conversation. Without `proceed` the question is not asked."""
        return await proceed(question)

    async def child(self, child: NewChild, proceed: Callable[[NewChild], Awaitable[T]]) -> T:
        """Called around a child that the agent starts; may change or refuse the request.

        Args:
            child: The child as it was requested, and as the parts outside of this one have changed it.
            proceed: Starts it, and waits for its end if `child.waits`.

        Raises:
            SpawnForbiddenError: There must be no such child; the agent reads the reason.
        """
        return await proceed(child)

    async def opening(self, said: str, *, is_prompt: bool) -> str:
        """Called before the model reads a prompt or a message; returns text for it to read besides.

        Args:
            said: The prompt or message.
            is_prompt: The run begins with it. False: a person sends it while the agent works.

        Raises:
            ApprovalDeniedError: The model must not read it.
        """
        del said, is_prompt
        return ""

    def advisers(self, asker: Asker) -> Sequence[Adviser]:
        """Return advisers on a call, beside the rules. Args: asker: the agent or node that makes it."""
        del asker
        return ()

    async def call(self, call: RequestedCall, proceed: Proceed[T]) -> EndedCall[T]:
        """Called around each call that may run. Without `proceed` it does not run; the returned result counts."""
        del call
        return await proceed()

    async def limit(self, reached: LimitReachedError, asker: Asker) -> float:
        """Called before a limit ends a run, or a cell; returns how much more there is. 0: the limit ends it.

        Args:
            reached: The limit: `turns`, `tool_calls`, `requests`, `tokens` or `cost_usd` of the budget of `reached.owner`;
                or `CELL_SECONDS`, where an infinite number lifts the limit.
            asker: The agent or node that has reached it, and the place: `asker.clock` is the clock of the cell.
        """
        del reached, asker
        return 0.0

    def did(self, agent: FeatureAgent, call: Call) -> None:
        """Called when code of an agent or a node starts an allowed program, or has written a file."""

    def capability(self) -> AbstractCapability[Any] | None:
        """Return a capability of pydantic-ai for the turns of the run; a user's own stand behind it."""
        return None

    async def answer(self, text: str) -> str:
        """Called when the model would end the run; returns the reason to go on. Empty: the run may end."""
        del text
        return ""

    async def closing(self, ending: RunResult, kernel: UsedKernel) -> None:
        """Called after the children of the run have ended and before its kernel is closed."""

    def facts(self, ending: RunResult) -> RunResult:
        """Complete an ending. Called at the end of the run, and earlier whenever somebody looks."""
        return ending

    def ended(self, result: RunResult) -> None:
        """Called when the run has ended, and the run of its parent has not."""


class KernelPart:
    """A feature's part in one kernel of an agent or a node, with which it changes hands.

    A replacement for a kernel that died, was reset or got another wall counts as the same kernel.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_overrides(cls, KernelPart)

    def assign(self, holder: FeatureAgent) -> None:
        """Called when the kernel has another holder. Must not wait."""

    def requests(self, calls: CallsOfCode) -> Mapping[str, Handler]:
        """Return handlers of requests that code in the kernel may make, by the name of the request.

        Args:
            calls: Makes calls of the code on behalf of the present holder.
        """
        del calls
        return {}

    def toolset(self) -> JudgedToolset | None:
        """Return tools for the holder's model, behind the built-in ones. Called once, before its first run."""
        return None

    async def aclose(self) -> None:
        """Called while the kernel is closed for good. Must bound its own time."""


class Feature:
    """A feature of one tree of agents."""

    name: ClassVar[str] = ""
    """The name by which `Agent` finds the feature. Empty: it has none."""
    root: FeatureRoot
    """The root of the tree, from `attach` on."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_overrides(cls, Feature)

    def attach(self, root: FeatureRoot) -> Sequence[Tap]:
        """Called once, when the root is made; returns functions that receive every event."""
        del root
        return ()

    def around(self) -> AbstractAsyncContextManager[Any]:
        """Return a context that is entered before the root's kernel is made, and left after that has ended.

        It should not be a generator: an event loop that ends closes all its asynchronous generators at once, in no order.
        """
        return nullcontext()

    def open(self) -> AbstractAsyncContextManager[Any]:
        """Return a context that is open while the root is. Objects of an event loop are made here."""
        return nullcontext()

    def run(self, agent: FeatureAgent) -> RunPart | None:
        """Make the part for a run that begins. None: the feature takes none."""
        del agent
        return None

    def requests(self, agent: FeatureAgent) -> Mapping[str, Handler]:
        """Return handlers of requests that code in an agent's or a node's kernel may make, by the name of the request."""
        del agent
        return {}

    def kernel(self, agent: FeatureAgent, spec: KernelSpec) -> KernelSpec:
        """Change how a kernel of an agent is started."""
        del agent
        return spec

    def instructions(self, agent: FeatureAgent) -> str:
        """Return lines for the list in an agent's system prompt; equal for all agents of one type, which share a cache."""
        del agent
        return ""


class ToolsFeature(Feature):
    """A feature with built-in tools. A feature of another package gives tools by a toolset in `RunPart.capability`."""

    def tools(self, agent: FeatureAgent) -> Sequence[Tool]:
        """Return tools for an agent, behind those of the core. Called once, before its first run.

        `tools/NAME.json` describes each.
        """
        raise NotImplementedError


class KernelFeature(Feature):
    """A feature with parts in kernels; so far for this package only."""

    def kernel_part(self, agent: FeatureAgent, kernel: UsedKernel) -> KernelPart | None:
        """Make the part in a kernel that has not started. None: the feature takes none. Args: agent: the first holder."""
        raise NotImplementedError


class RunParts:
    """The parts of all features in one run; each method calls the method of the same name of all parts."""

    def __init__(self, parts: Sequence[RunPart] = ()) -> None:
        self._parts = parts
        self._around = [part for part in parts if type(part).call is not RunPart.call]

    def all(self, kind: type[T]) -> Iterator[T]:
        """Yield the parts of a kind: a class or a runtime protocol, named by a feature that offers something to others."""
        return (part for part in self._parts if isinstance(part, kind))

    def begins(self, prompt: str, request: ChildRequest | None) -> None:
        """Tell all parts."""
        for part in self._parts:
            with _named(part, "begins"):
                part.begins(prompt, request)

    def known(self) -> RunResult | None:
        """Return the first answer that is there already."""
        for part in self._parts:
            with _named(part, "known"):
                if (known := part.known()) is not None:
                    return known
        return None

    async def ask(self, question: Question, ask: Callable[[Question], Awaitable[Any]]) -> Any:
        """Ask a model. Args: ask: makes the request."""
        for part in reversed(self._parts):
            if type(part).ask is not RunPart.ask:
                ask = partial(part.ask, proceed=ask)
        return await ask(question)

    async def child(self, child: NewChild, start: Callable[[NewChild], Awaitable[T]]) -> T:
        """Start a child. Args: start: starts it, and waits for its end if `child.waits`."""
        for part in reversed(self._parts):
            if type(part).child is not RunPart.child:
                start = partial(part.child, proceed=start)
        return await start(child)

    async def opening(self, said: str, *, is_prompt: bool) -> str:
        """Return the texts of all parts."""
        texts: list[str] = []
        for part in self._parts:
            with _named(part, "opening"):
                texts.append(await part.opening(said, is_prompt=is_prompt))
        return "\n\n".join(filter(None, texts))

    def advisers(self, asker: Asker) -> tuple[Adviser, ...]:
        """Return the advisers of all parts."""
        advisers: list[Adviser] = []
        for part in self._parts:
            with _named(part, "advisers"):
                advisers += part.advisers(asker)
        return tuple(advisers)

    async def call(self, call: RequestedCall, run_tool: RunTool[T]) -> EndedCall[T]:
        """Make a call. Args: run_tool: runs its tool."""
        proceed: Proceed[T] = partial(run_tool, call)
        for part in reversed(self._around):
            proceed = partial(_around, part, call, proceed)
        return await proceed()

    async def limit(self, reached: LimitReachedError, asker: Asker) -> float:
        """Return how much more the first part gives. 0: none gives any."""
        for part in self._parts:
            with _named(part, "limit"):
                if (more := await part.limit(reached, asker)) > 0:
                    return more
        return 0.0

    def did(self, agent: FeatureAgent, call: Call) -> None:
        """Tell all parts."""
        for part in self._parts:
            with _named(part, "did"):
                part.did(agent, call)

    def capabilities(self) -> list[AbstractCapability[Any]]:
        """Return the capabilities of all parts."""
        capabilities: list[AbstractCapability[Any]] = []
        for part in self._parts:
            with _named(part, "capability"):
                if (found := part.capability()) is not None:
                    capabilities.append(found)
        return capabilities

    async def answer(self, text: str) -> str:
        """Return the first reason to go on."""
        for part in self._parts:
            with _named(part, "answer"):
                if reason := await part.answer(text):
                    return reason
        return ""

    @property
    def closing_seconds(self) -> float:
        """Seconds that all parts may take together."""
        return sum(part.closing_seconds for part in self._closing)

    @property
    def _closing(self) -> list[RunPart]:
        return [part for part in self._parts if type(part).closing is not RunPart.closing]

    async def closing(self, ending: RunResult, kernel: UsedKernel) -> None:
        """Give each part its time."""
        for part in self._closing:
            with _without_harm(part, "closing"):
                async with asyncio.timeout(part.closing_seconds):
                    await part.closing(ending, kernel)

    def facts(self, ending: RunResult) -> RunResult:
        """Complete an ending by all parts."""
        for part in self._parts:
            with _without_harm(part, "facts"):
                ending = part.facts(ending)
        return ending

    def ended(self, result: RunResult) -> None:
        """Tell all parts."""
        for part in self._parts:
            with _without_harm(part, "ended"):
                part.ended(result)


NO_PARTS: Final = RunParts()
"""Parts of an ended child: thousands of them may be listed, and none keeps its own."""


async def _around(part: RunPart, call: RequestedCall, proceed: Proceed[T]) -> EndedCall[T]:
    """Run a part around a call. Raises: FreeactError: It fails, or returns no result."""
    passed: list[Exception] = []
    """Exceptions of the tool or of an inner part, which are no errors of this part."""

    async def inside() -> EndedCall[T]:
        try:
            return await proceed()
        except Exception as error:
            passed.append(error)
            raise

    try:
        ended = await part.call(call, inside)
    except Exception as error:
        if error in passed:
            raise
        with _named(part, "call"):
            raise
    if not isinstance(ended, EndedCall):
        made = f"{type(part).__qualname__}.call returned {_kind(ended)}"
        raise FreeactError(f"features: {made}: return the EndedCall of proceed(), or another one")
    return ended


@contextmanager
def _named(part: RunPart, moment: str) -> Iterator[None]:
    """Name the part and the moment in an unexpected error of a feature.

    Raises:
        FreeactError: A feature failed. Errors of our own pass, because they decide how a run or a call ends.
    """
    try:
        yield
    except FreeactError:
        raise
    except Exception as error:  # border: code of a user
        raise FreeactError(f"in {type(part).__qualname__}.{moment}: {type(error).__name__}: {error}") from error


@contextmanager
def _without_harm(part: RunPart, moment: str) -> Iterator[None]:
    """Log an error of a feature where a run ends: it has its answer, and its end must be seen."""
    try:
        yield
    except Exception:
        logger.exception("%s of a feature failed: %s", moment, type(part).__qualname__)


class Features:
    """The features of one tree of agents, in their order."""

    def __init__(self, features: Sequence[Feature] = ()) -> None:
        """Make the list. Raises: InvalidRequestError: One is no `Feature`."""
        self._features = tuple(features)
        for feature in self._features:
            if not isinstance(feature, Feature):
                raise InvalidRequestError(f"features: {_kind(feature)} is no Feature: subclass freeact_sub.Feature")

    def __iter__(self) -> Iterator[Feature]:
        return iter(self._features)

    def has(self, name: str) -> bool:
        """Return whether there is a feature with this name."""
        return any(feature.name == name for feature in self._features)

    def named(self, name: str) -> Any:
        """Return the feature with this name. Raises: FreeactError: There is none."""
        for feature in self._features:
            if feature.name == name:
                return feature
        raise FreeactError(f"this agent has no {name}: it was made without that feature")

    def attach(self, root: FeatureRoot) -> list[Tap]:
        """Tell all features their root; return their taps. Raises: InvalidRequestError: One belongs to another root."""
        taps: list[Tap] = []
        for feature in self._features:
            if "root" in vars(feature):
                raise InvalidRequestError(
                    f"features: this {type(feature).__name__} belongs to another agent: make a new one for each Agent"
                )
            feature.root = root
            taps += feature.attach(root)
        return taps

    def run(self, agent: FeatureAgent) -> RunParts:
        """Make the parts for a run that begins. Raises: InvalidRequestError: A feature makes something else."""
        parts: list[RunPart] = []
        for feature in self._features:
            part = feature.run(agent)
            if part is None:
                continue
            if not isinstance(part, RunPart):
                made = f"{type(feature).__name__}.run returned {_kind(part)}"
                raise InvalidRequestError(f"features: {made}: subclass freeact_sub.RunPart, or return None")
            parts.append(part)
        return RunParts(parts)

    def kernel_parts(self, agent: FeatureAgent, kernel: UsedKernel) -> list[KernelPart]:
        """Make the parts in a kernel."""
        keepers = (feature for feature in self._features if isinstance(feature, KernelFeature))
        return [*filter(None, (keeper.kernel_part(agent, kernel) for keeper in keepers))]

    def requests(self, agent: FeatureAgent) -> dict[str, Handler]:
        """Return the handlers of all features."""
        return {name: handler for feature in self._features for name, handler in feature.requests(agent).items()}

    def tools(self, agent: FeatureAgent) -> list[Tool]:
        """Return the tools of all features."""
        return [tool for feature in self._features if isinstance(feature, ToolsFeature) for tool in feature.tools(agent)]

    def instructions(self, agent: FeatureAgent) -> str:
        """Return the lines of all features, each behind a line break."""
        return "".join(f"\n{lines}" for feature in self._features if (lines := feature.instructions(agent)))

    def kernel(self, agent: FeatureAgent, spec: KernelSpec) -> KernelSpec:
        """Change how a kernel is started, by all features in turn."""
        for feature in self._features:
            spec = feature.kernel(agent, spec)
        return spec


def _kind(value: object) -> str:
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
