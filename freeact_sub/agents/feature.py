"""`Feature`: takes part in the life of agents at a few seams, without the core knowing it.

An object of a `Feature` belongs to one tree of agents (`Agent(features=[...])`), and makes a `RunPart` for each run of each
agent in it. All methods are optional: the base does nothing. They are called in this order:

1.  `Feature.attach`, once, as the agent is made. Each tap that it returns hears every event of the tree, in order.
2.  `Feature.open`, entered as the root is opened, and left as it is closed: the last one that was entered first.
3.  `Feature.kernel`, each time the place of an agent's kernel is decided: the first feature first.
4.  `Feature.run` makes the part in a run. `RunPart.begins`, once, before `AgentStarted`; `RunPart.known`, before it works.
5.  `RunPart.opening`, once, before the model reads the prompt; then `RunPart.capability`. `RunPart.message`, for what a
    person sends later.
6.  For each call: `RunPart.advisers`, before the gate decides; `RunPart.try_out`, before a person is asked; then
    `RunPart.call`, around the call that may run.
    `Feature.requests`, when code in a kernel first asks the host something. `RunPart.did`, for each action of code.
7.  `RunPart.answer`, each time the model would end the run.
8.  `RunPart.closing`, once, after the children of the run have ended and before its kernel is closed.
9.  `RunPart.facts`, to complete the ending; and `RunPart.ended`, once, when nothing can change it any more.

**Order.** `ORDER` in `freeact_sub/features/__init__.py` is the only list. The first feature is the outermost around a call,
and the first to be asked elsewhere.

**Errors.** `opening`, `message`, `advisers` and `answer` may raise `ApprovalDeniedError`: the run is `rejected`. `call` may
raise what the tool may. Anything else that a feature raises ends the run as `failed`, except in `closing`, `facts` and
`ended`, where it is logged. Taps must not raise.

**Cancellation.** All coroutines run inside the run's scope and may be cancelled at any `await`, except `closing`, which runs
to its end for at most `CLOSING_SECONDS`. A part that has begun something in `call` ends it in `finally`.

**Clocks.** The clock of the run goes on in a feature. One that asks a person, or runs a program of theirs, enters
`agent.run.clocks_paused()`, and in a call of code the cell's clock too (`call.paused()`).
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias, TypeVar

from pydantic_ai.capabilities import AbstractCapability

from freeact_sub.agents.call import EndedCall, Proceed, Question, RequestedCall, Work
from freeact_sub.agents.ports import UsedKernel
from freeact_sub.agents.runs.results import RunResult
from freeact_sub.approvals.advice import Adviser
from freeact_sub.approvals.open_questions import TryOut
from freeact_sub.calls import Call
from freeact_sub.channel import Tap
from freeact_sub.errors import FreeactError
from freeact_sub.kernels import CellClock, KernelSpec
from freeact_sub.tools import SpawnRequest

if TYPE_CHECKING:
    from freeact_sub.agents.tree_agent import TreeAgent

T = TypeVar("T")
logger = logging.getLogger(__name__)

CLOSING_SECONDS: Final = 5.0
"""The time of all features together."""

Handler: TypeAlias = Callable[[Mapping[str, Any], CellClock | None], Awaitable[Any]]
"""Takes parameters and the requesting cell's clock (None: no cell runs), and returns a JSON value. Or it returns an
iterator: the cell shows the texts that it yields, and its last item, which is not a text, is the value."""


class FeatureRoot(Protocol):
    """The root of a tree of agents, as its features know it. One with methods of `Agent` may know more: it is a `Root`."""

    @property
    def agent(self) -> "TreeAgent":
        """The agent without a parent."""
        ...

    def find(self, agent_id: str) -> "TreeAgent | None":
        """An agent of the tree. None: there is none with this id, or it is forgotten."""
        ...

    def notice(self, text: str) -> None:
        """Show a notice to people, in the next run if none is live."""
        ...


class RunPart:
    """What a feature does in one run of one agent."""

    def begins(self, prompt: str, request: SpawnRequest | None) -> None:
        """The run begins, and has emitted nothing yet. Args: request: for the child that it is of."""

    def known(self) -> RunResult | None:
        """An answer that is there already, so that the run need not work. None: there is none."""
        return None

    async def ask(self, question: Question, proceed: Callable[[], Awaitable[Any]]) -> Any:
        """Called around a request to a model beside the conversation; without `proceed` it is not made."""
        del question
        return await proceed()

    async def opening(self, prompt: str) -> str:
        """Called before the model reads a prompt; returns what it reads besides."""
        del prompt
        return ""

    @property
    def hears_messages(self) -> bool:
        """Whether it has a say on what a person sends; otherwise the model reads it at once."""
        return False

    async def message(self, text: str) -> str | None:
        """Called with what a person sends to the working agent; returns what its model reads. None: nothing."""
        return text

    def advisers(self, agent: "TreeAgent", tool_call_id: str | None) -> Sequence[Adviser]:
        """Who has a say, beside the rules, on the calls of an agent or a node. None: allowed calls are not delayed."""
        del agent, tool_call_id
        return ()

    def try_out(self, agent: "TreeAgent", call: Call) -> TryOut | None:
        """What can tell a person, who is about to be asked, what a call would do. None: nothing can."""
        del agent, call
        return None

    async def call(self, call: RequestedCall, proceed: Proceed[T]) -> EndedCall[T]:
        """Called around each call that may run; without `proceed` it does not. A changed or noted result is the call's."""
        del call
        return await proceed()

    def did(self, agent: "TreeAgent", call: Call) -> None:
        """Code of an agent or a node does something: it starts an allowed program, or has written a file."""

    def capability(self) -> AbstractCapability[Any] | None:
        """A capability of pydantic-ai for the turns of the run; it stands in front of a user's. None: there is none."""
        return None

    async def answer(self, text: str) -> str:
        """Called when the model would end the run; returns why it must go on. Empty: it may end."""
        del text
        return ""

    async def closing(self, ending: RunResult, kernel: UsedKernel) -> None:
        """Called when the run's children have ended, and its kernel has not."""

    def facts(self, ending: RunResult) -> RunResult:
        """Complete what is known of the run; called for its ending, and before it whenever somebody looks."""
        return ending

    def ended(self, result: RunResult) -> None:
        """The run has ended, and its parent's has not."""


class Feature:
    """What a feature does in one tree of agents."""

    name: ClassVar[str] = ""
    """How `Agent` finds it for its methods. Empty: it has none."""
    root: "FeatureRoot"

    def attach(self, root: "FeatureRoot") -> Sequence[Tap]:
        """Called once, as the agent is made; returns what hears every event."""
        self.root = root
        return ()

    def open(self) -> AbstractAsyncContextManager[Any]:
        """What is open while the root is."""
        return nullcontext()

    def run(self, agent: "TreeAgent") -> RunPart | None:
        """Make the part in a run that begins. None: it has none."""
        del agent
        return None

    def requests(self, agent: "TreeAgent") -> Mapping[str, Handler]:
        """What code in the kernel of an agent or a node may ask the host, by the name of the request."""
        del agent
        return {}

    def kernel(self, agent: "TreeAgent", spec: KernelSpec) -> KernelSpec:
        """Change how a kernel of an agent is started."""
        del agent
        return spec


class RunParts:
    """The parts of all features in one run."""

    def __init__(self, parts: Sequence[RunPart] = ()) -> None:
        self._parts = [*parts]
        self._around = [part for part in parts if type(part).call is not RunPart.call]

    def all(self, kind: type[T]) -> Iterator[T]:
        """The parts of a kind. A feature that offers something to others names the kind, a class or a runtime protocol."""
        return (part for part in self._parts if isinstance(part, kind))

    def add(self, part: RunPart) -> None:
        """Let something of the core take part."""
        self._parts.append(part)

    @property
    def hear_messages(self) -> bool:
        """See `RunPart.hears_messages`."""
        return any(part.hears_messages for part in self._parts)

    def begins(self, prompt: str, request: SpawnRequest | None) -> None:
        """See `RunPart.begins`."""
        for part in self._parts:
            part.begins(prompt, request)

    def known(self) -> RunResult | None:
        """See `RunPart.known`."""
        return next((known for part in self._parts if (known := part.known()) is not None), None)

    async def ask(self, question: Question, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Ask a model. Args: ask: makes the request."""
        for part in reversed(self._parts):
            ask = partial(part.ask, question, ask)
        return await ask()

    async def opening(self, prompt: str) -> str:
        """See `RunPart.opening`."""
        return "\n\n".join([text for part in self._parts if (text := await part.opening(prompt))])

    async def message(self, text: str) -> str | None:
        """See `RunPart.message`."""
        heard: str | None = text
        for part in self._parts:
            heard = None if heard is None else await part.message(heard)
        return heard

    def advisers(self, agent: "TreeAgent", tool_call_id: str | None) -> tuple[Adviser, ...]:
        """See `RunPart.advisers`."""
        return tuple(adviser for part in self._parts for adviser in part.advisers(agent, tool_call_id))

    def try_out(self, agent: "TreeAgent", call: Call) -> TryOut | None:
        """See `RunPart.try_out`; the first that can counts."""
        return next((found for part in self._parts if (found := part.try_out(agent, call)) is not None), None)

    async def call(self, call: RequestedCall, work: Work[T]) -> EndedCall[T]:
        """Make a call. Args: work: runs its tool."""
        proceed: Proceed[T] = partial(work, call)
        for part in reversed(self._around):
            proceed = partial(part.call, call, proceed)
        return await proceed()

    def did(self, agent: "TreeAgent", call: Call) -> None:
        """See `RunPart.did`."""
        for part in self._parts:
            part.did(agent, call)

    def capabilities(self) -> list[AbstractCapability[Any]]:
        """See `RunPart.capability`."""
        return [found for part in self._parts if (found := part.capability()) is not None]

    async def answer(self, text: str) -> str:
        """See `RunPart.answer`; the first reason counts."""
        for part in self._parts:
            if reason := await part.answer(text):
                return reason
        return ""

    async def closing(self, ending: RunResult, kernel: UsedKernel) -> None:
        """See `RunPart.closing`."""
        for part in self._parts:
            with _without_harm(part, "closing"):
                await part.closing(ending, kernel)

    def facts(self, ending: RunResult) -> RunResult:
        """See `RunPart.facts`."""
        for part in self._parts:
            with _without_harm(part, "facts"):
                ending = part.facts(ending)
        return ending

    def ended(self, result: RunResult) -> None:
        """See `RunPart.ended`."""
        for part in self._parts:
            with _without_harm(part, "ended"):
                part.ended(result)


NO_PARTS: Final = RunParts()
"""A child that has ended keeps none: thousands of them may be listed."""


@contextmanager
def _without_harm(part: RunPart, what: str) -> Iterator[None]:
    """Log an error of a feature where a run ends: it has its answer, and whoever waits for its end must see it."""
    try:
        yield
    except Exception:
        logger.exception("%s of a feature failed: %s", what, type(part).__qualname__)


class Features:
    """The features of one tree of agents, in their order."""

    def __init__(self, features: Sequence[Feature] = ()) -> None:
        self._features = tuple(features)

    def __iter__(self) -> Iterator[Feature]:
        return iter(self._features)

    def named(self, name: str) -> Any:
        """Return the feature with this name. Raises: FreeactError: There is none."""
        for feature in self._features:
            if feature.name == name:
                return feature
        raise FreeactError(f"this agent has no {name}: it was made without that feature")

    def attach(self, root: "FeatureRoot") -> list[Tap]:
        """Tell all features their root; return their taps."""
        return [tap for feature in self._features for tap in feature.attach(root)]

    def run(self, agent: "TreeAgent") -> RunParts:
        """Make the parts in a run that begins."""
        return RunParts([part for feature in self._features if (part := feature.run(agent)) is not None])

    def requests(self, agent: "TreeAgent") -> dict[str, Handler]:
        """See `Feature.requests`."""
        return {name: handler for feature in self._features for name, handler in feature.requests(agent).items()}

    def kernel(self, agent: "TreeAgent", spec: KernelSpec) -> KernelSpec:
        """See `Feature.kernel`."""
        for feature in self._features:
            spec = feature.kernel(agent, spec)
        return spec
