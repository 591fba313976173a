"""Settings and services that all agents of one root share (`Shared`).

Two bounds hold for all working children of a tree: slots, a semaphore, and `KernelPlaces` for live kernels. An agent gives
its slot back while it waits for a child, but not its kernel, which holds its variables. So agents that wait for children may
occupy all kernel places, and one more child would wait for ever. A child takes its kernel place before its slot: a child
that waits for a kernel holds no slot that others need.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.toolsets import AbstractToolset

from freeact_sub.activity import Activities
from freeact_sub.agents.feature import Features
from freeact_sub.agents.results import PictureUse
from freeact_sub.agents.rights import AgentType
from freeact_sub.approvals import Gate, OpenQuestions, Policy, RuleFiles
from freeact_sub.channel import DirectChannel, Emitter, EventChannel, Tap
from freeact_sub.config.budget import Budget
from freeact_sub.config.schema import Config, McpServerConfig
from freeact_sub.errors import InvalidRequestError, SpawnForbiddenError
from freeact_sub.events import AgentEvent, Notice
from freeact_sub.kernels import KernelProvider
from freeact_sub.models import usable_model
from freeact_sub.models.sending import Prefixes, Traffic
from freeact_sub.modes import Thinking
from freeact_sub.tools import OwnTools


@dataclass(frozen=True, kw_only=True)
class ExecutionContext:
    """A working agent, as a factory and its children see it."""

    agent_id: str
    parent_id: str | None
    """The id of the parent; None for the root."""
    depth: int
    _left: Callable[[], Budget] = field(repr=False, compare=False)
    _cancelled: Callable[[], bool] = field(repr=False, compare=False)

    @property
    def budget_left(self) -> Budget:
        """The budget that a child of the agent could be given at this moment."""
        return self._left()

    @property
    def cancelled(self) -> bool:
        """Whether the run, or an ancestor's, is being cancelled."""
        return self._cancelled()


class RootStream:
    """The channel of the root's present run, and the texts and events for the next one."""

    def __init__(self) -> None:
        self.channel: EventChannel = EventChannel()
        """The channel of the present or last run."""
        self.pictures: PictureUse = "saved"
        """The form in which displayed pictures reach the user in the present run."""
        self.messages: list[str] = []
        """Answers for the root's model, of children whose ancestors were all idle when they ended."""
        self._notices: list[str] = []
        self._events: list[AgentEvent] = []
        """Starts and ends of agents, with their headers: each agent starts and ends exactly once over all streams."""
        self._meanwhile: Callable[[], EventChannel] | None = None
        """A function that makes the channel of background children while no run is live."""

    @property
    def is_followed(self) -> bool:
        """Whether somebody hears background children while no run is live."""
        return self._meanwhile is not None

    def follow(self, hear: Callable[[Any], None], taps: Sequence[Tap]) -> None:
        """Receive events of background children while no run is live; otherwise they are dropped, and approvals denied."""
        self._meanwhile = lambda: DirectChannel(hear, taps)

    def begin(self, channel: EventChannel, pictures: PictureUse) -> None:
        """Begin a run."""
        self.channel, self.pictures = channel, pictures

    def end(self) -> None:
        """End the run, and its channel with it."""
        if self._meanwhile is not None:
            self.channel = self._meanwhile()

    def notice_later(self, text: str) -> None:
        """Hold a notice back for the next run."""
        self._notices.append(text)

    def emit_held_back(self, emitter: Emitter) -> None:
        """Put notices and events on the stream of a new run. Args: emitter: the root's."""
        for text in self._notices:
            emitter.put(Notice(content=text))
        for event in self._events:
            emitter.channel.put(event)
        self._notices, self._events = [], []

    def take_messages(self) -> list[str]:
        """Remove and return the messages, which precede the next prompt."""
        texts, self.messages = self.messages, []
        return texts

    def emit_or_keep(self, event: AgentEvent, emitter: Emitter) -> None:
        """Put an event of a detached agent on the open stream, or keep it for the next one."""
        if emitter.channel.closed:
            self._events.append(emitter.signed(event))
        else:
            emitter.put(event)


class OtherModels:
    """The models besides the root's, each built once."""

    def __init__(self, config: Config, traffic: Traffic) -> None:
        """Make the store. Args: traffic: the root's."""
        self._config = config
        self._traffic = traffic
        self._models: dict[tuple[str | int, Sequence[str] | None], Model] = {}
        """Models by name, or by identity for a model object, as models need not be hashable; and by their fallbacks."""
        self._lock = asyncio.Lock()
        self._open = AsyncExitStack()

    async def get(self, wanted: str | Model, fallbacks: tuple[str, ...] | None = None) -> Model:
        """Return a model, wrapped as agents use it.

        Args:
            wanted: A name of `config.models`, `PROVIDER:NAME`, or a model. The address configured for the root's model
                also applies to named models of the same provider.
            fallbacks: Models that stand in for it. None: the setting `fallback_models`.

        Raises:
            InvalidRequestError: `wanted` is none of these.
            ConfigError: The model cannot be built; the message says why.
        """
        full = self._config.models.names.get(wanted, wanted) if isinstance(wanted, str) else wanted
        if not isinstance(full, str | Model):
            raise InvalidRequestError(
                "the model of a child must be a name in the setting `models`, `PROVIDER:NAME`, or a Model of pydantic-ai; "
                f"this is a {type(full).__name__}"
            )
        key = (full if isinstance(full, str) else id(full), fallbacks)
        config = self._config if fallbacks is None else self._config.model_copy(update={"fallback_models": fallbacks})
        async with self._lock:
            if key not in self._models:
                model = usable_model(config, self._traffic, full)
                self._models[key] = await self._open.enter_async_context(model)  # its HTTP client is closed with the root
            return self._models[key]

    async def aclose(self) -> None:
        """Close all models that were built."""
        self._models.clear()
        await self._open.aclose()


class KernelHolder(Protocol):
    """A holder of a place for a live kernel: an agent, or a node."""

    @property
    def agent_id(self) -> str:
        """The id."""
        ...

    @property
    def keeps_kernel(self) -> bool:
        """Whether the place is held until somebody closes the kernel."""
        ...

    @property
    def waits_for_child(self) -> bool:
        """Whether the place is held at least until a child has ended."""
        ...


@dataclass(kw_only=True, eq=False)
class _WaitingHolder:
    holder: KernelHolder
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    refused: bool = False
    """Whether all places now belong to nodes and to waiting agents."""


class KernelPlaces:
    """A bound on the live kernels of a tree; more agents wait in order."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._holders: set[KernelHolder] = set()
        self._waiting: deque[_WaitingHolder] = deque()

    @property
    def full(self) -> bool:
        """Whether the next agent has to wait."""
        return len(self._holders) >= self.size

    def would_never_come(self, parent: KernelHolder) -> bool:
        """Return whether a child of this agent would wait for ever, because all holders are nodes or wait for children."""
        return self.full and all(self._keeps_place(holder) or holder is parent for holder in self._holders)

    @property
    def holders(self) -> tuple[KernelHolder, ...]:
        """The agents and nodes that hold a place."""
        return tuple(self._holders)

    @property
    def waiting(self) -> int:
        """The number of agents that wait for a place."""
        return len(self._waiting)

    @property
    def stuck(self) -> bool:
        """Whether somebody waits for a place while all holders are nodes or wait for children."""
        return bool(self._waiting) and all(map(self._keeps_place, self._holders))

    def take_now(self, holder: KernelHolder) -> None:
        """Take a place without waiting, for the root."""
        self._holders.add(holder)

    async def take(self, holder: KernelHolder) -> None:
        """Wait for a place and take it.

        Raises:
            SpawnForbiddenError: Meanwhile the last place went to a node.
        """
        if holder in self._holders:  # it has got the place with its kernel
            return
        if not self.full and not self._waiting:
            self._holders.add(holder)
            return
        waiting = _WaitingHolder(holder=holder)
        self._waiting.append(waiting)
        try:
            await waiting.is_over.wait()
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
        if waiting.refused:
            raise no_kernel_left(self)

    def pass_on(self, holder: KernelHolder, other: KernelHolder) -> None:
        """Transfer a place, if the holder has one."""
        if holder in self._holders:
            self._holders.discard(holder)
            self._holders.add(other)

    def give_back(self, holder: KernelHolder) -> None:
        """Give the holder's place, if it has one, to the next agent."""
        self._holders.discard(holder)
        while self._waiting and not self.full:
            first = self._waiting.popleft()
            self._holders.add(first.holder)
            first.is_over.set()
        if self.stuck and any(other.keeps_kernel for other in self._holders):
            for waiting in self._waiting:
                waiting.refused = True
                waiting.is_over.set()
            self._waiting.clear()

    def _keeps_place(self, holder: KernelHolder) -> bool:
        return holder.waits_for_child or holder.keeps_kernel


def no_kernel_left(places: KernelPlaces) -> SpawnForbiddenError:
    """Return the error for a start that would wait for a kernel for ever."""
    return SpawnForbiddenError(
        f"all {places.size} kernels belong to agents that wait for a child or are kept as nodes, so one more would never "
        "come (setting `kernel.max_live`): close nodes, or do the work yourself"
    )


@dataclass(kw_only=True)
class Recorded:
    """The record of a tree of agents, by this program and earlier ones. The feature that writes it keeps it."""

    session_id: str = ""
    """The id of the record. Empty: there is none."""
    is_written: bool = False
    """Whether the record is open, and could be written when it was opened."""
    runs: Counter[str] = field(default_factory=Counter)
    """Runs that each agent has begun."""
    replaced: Sequence[str] = ()
    """The addresses of the root's earlier model, if somebody has chosen another one since."""


@dataclass(kw_only=True)
class Shared:
    """The services that all agents of a root use."""

    config: Config
    model: Model
    provider: KernelProvider
    gate: Gate
    questions: OpenQuestions
    """Questions to the person, besides approvals."""
    rule_files: RuleFiles
    policy: Policy
    """The root's policy; a child's is its parent's or narrower."""
    own_tools: OwnTools = field(default_factory=OwnTools)
    toolsets: Sequence[AbstractToolset[Any]] = ()
    capabilities: Sequence[AbstractCapability[Any]] = ()
    model_settings: dict[str, Any] = field(default_factory=dict)
    types: Mapping[str, AgentType] = field(default_factory=dict)
    """All types of agents, by name. A feature brings them."""
    servers: Mapping[str, McpServerConfig] = field(init=False)
    """All MCP servers of the tree, by name: those of the settings, and those of types."""
    traffic: Traffic
    """Slots and pauses that all model requests share."""
    stream: RootStream = field(default_factory=RootStream)
    recorded: Recorded = field(default_factory=Recorded)
    activities: Activities = field(default_factory=Activities)
    features: Features = field(default_factory=Features)
    kernel_places: KernelPlaces = field(init=False)
    other_models: OtherModels = field(init=False)
    slots: anyio.Semaphore = field(init=False)
    """The slots of working children; more children wait in order."""
    prefixes: Prefixes = field(init=False)

    def __post_init__(self) -> None:
        self.servers = self.config.mcp_servers
        self.kernel_places = KernelPlaces(self.config.kernel.max_live)
        self.renew()

    def request_settings(self, model: Model, thinking: Thinking | None = None) -> ModelSettings | None:
        """Return the settings of each request to a model, as pydantic-ai takes them, if there are any.

        Settings of a program for a model of its own choice count more than settings for all, and choices for one agent
        most.
        """
        own = model.settings if model is not self.model else None
        chosen = {} if thinking is None else {"thinking": False if thinking == "off" else thinking}
        return {**self.model_settings, **(own or {}), **chosen} or None  # type: ignore[return-value]  # the config leaves this TypedDict open

    def renew(self) -> None:
        """Renew everything that belongs to an event loop: the root may be reopened in another one."""
        self.other_models = OtherModels(self.config, self.traffic)
        self.slots = anyio.Semaphore(self.config.subagents.max_concurrent, fast_acquire=True)
        self.prefixes = Prefixes()
