"""`AgentTree`: what all agents of one root share; `AgentNode`: one agent in it.

Ids, depth, parenthood, usage and slots are kept here, by the host. Nothing of it is ever read from a kernel.
"""

import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.toolsets import AbstractToolset

from freeact_sub.agents.clock import RunClock
from freeact_sub.agents.definitions import AgentType, AgentTypes
from freeact_sub.agents.factory import AgentFactory, DefaultFactory, ExecutionContext
from freeact_sub.agents.filework import FileWork, Writers
from freeact_sub.agents.keys import child_key, depth_of, root_key
from freeact_sub.agents.ledger import Account, Ledger
from freeact_sub.agents.other_models import OtherModels
from freeact_sub.agents.places import KernelPlaces, Slots
from freeact_sub.agents.results import NO_BOUNDS, AgentInfo, AgentStatus
from freeact_sub.agents.reuse import KeptResults
from freeact_sub.approvals import Gate, Policy, narrowed
from freeact_sub.budget import Budget, Usage
from freeact_sub.channel import Emitter, EventChannel
from freeact_sub.config import Config
from freeact_sub.errors import LimitReachedError, SpawnForbiddenError
from freeact_sub.events import Notice, RunStatus
from freeact_sub.kernels import KernelProvider
from freeact_sub.mcp import McpCatalogue
from freeact_sub.modes import Mode

OUTPUT_FOLDER: Final = Path(".freeact") / "outputs"
"""Where in the workspace long outputs and answers are written."""


@dataclass(kw_only=True)
class AgentTree:
    """What all agents of one root share."""

    config: Config
    model: Model
    provider: KernelProvider
    catalogue: McpCatalogue
    gate: Gate
    policy: Policy
    """Of the root; a child's is its parent's, or narrower."""
    toolsets: Sequence[AbstractToolset[Any]] = ()
    capabilities: Sequence[AbstractCapability[Any]] = ()
    model_settings: dict[str, Any] = field(default_factory=dict)
    types: AgentTypes = field(default_factory=AgentTypes)
    """The named types of agents."""
    factory: AgentFactory = field(default_factory=DefaultFactory)
    """Decides what a child is."""
    other_models: OtherModels = field(init=False)
    channel: EventChannel = field(default_factory=EventChannel)
    """Of the present run of the root."""
    ledger: Ledger = field(default_factory=Ledger)
    kept: KeptResults = field(default_factory=KeptResults)
    """What children have answered, where `subagents.cache` is set."""
    slots: Slots = field(init=False)
    kernel_places: KernelPlaces = field(init=False)
    writers: Writers = field(default_factory=Writers)
    """Who has written which file, in the present run of the root."""
    at_work: dict[str, Any] = field(default_factory=dict)
    """The loops whose runs have begun and not ended, by agent id, in order of start."""
    backgrounds: set[Any] = field(default_factory=set)
    """What owns background children that outlive their parents; closed with the root."""
    nodes: dict[str, "AgentNode"] = field(default_factory=dict)
    """All agents there were, in order of start."""
    notices: list[str] = field(default_factory=list)
    """What is to be told at the beginning of the next run."""

    def __post_init__(self) -> None:
        self.other_models = OtherModels(self.config)
        self.slots = Slots(self.config.subagents.max_concurrent)
        self.kernel_places = KernelPlaces(self.config.kernel.max_live)

    def notice(self, text: str) -> None:
        """Tell whoever reads the root's events; where nobody does at the moment, in the next run."""
        root = next(iter(self.nodes.values()), None)
        if root is None or root.scope is None:
            self.notices.append(text)
        else:
            root.emitter.put(Notice(content=text))

    def add(
        self,
        parent: "AgentNode | None" = None,
        *,
        description: str = "",
        budget: Budget = NO_BOUNDS,
        mode: Mode | None = None,
        work_scope: str = "",
        kind: AgentType | None = None,
        model: Model | None = None,
    ) -> "AgentNode":
        """Make an agent, with an id that no other of the tree has. For a child, `check_spawn` must have passed in this step.

        Args:
            parent: None for the root.
            description: A label.
            budget: What is asked for; cut to what the parent has left.
            mode: None: its parent's.
            work_scope: What the agent is told to keep to.
            kind: Its named type.
            model: None: its parent's.
        """
        agent_id = next(
            agent_id for agent_id in iter(lambda: f"agent-{secrets.token_hex(4)}", "") if agent_id not in self.nodes
        )
        policy = parent.policy if parent else self.policy
        if parent is None:
            account = self.ledger.open(agent_id, self._root_budget(budget))
        else:
            asked = budget.over(self.config.subagents.budget)
            left = parent.account.left(seconds=parent.clock.left)
            account = self.ledger.open(agent_id, asked.cut(left), parent.account)
        node = AgentNode(
            tree=self,
            agent_id=agent_id,
            key=child_key(parent.key) if parent else root_key(agent_id),
            parent=parent,
            description=description,
            work_scope=work_scope,
            account=account,
            policy=policy if mode is None else narrowed(policy, mode),
            kind=kind,
            model=model or (parent.model if parent else self.model),
        )
        if parent is None:
            self.kernel_places.take_now(node)
        self.nodes[agent_id] = node
        return node

    def open_root_account(self, agent_id: str, budget: Budget) -> Account:
        """The account of a new run of the root. Args: budget: what is asked for; the configured one for all else."""
        return self.ledger.open(agent_id, self._root_budget(budget))

    def _root_budget(self, asked: Budget) -> Budget:
        return asked.over(self.config.budget).over(Budget(depth=self.config.subagents.max_depth))


@dataclass(kw_only=True, eq=False)
class AgentNode:
    """One agent: its place in the tree, and what its present run has done so far."""

    tree: AgentTree
    agent_id: str
    key: str
    """The only source of the agent's depth."""
    parent: "AgentNode | None"
    account: Account
    """What the present run may spend."""
    description: str = ""
    work_scope: str = ""
    """What the agent is told to keep to."""
    policy: Policy
    """What decides about its calls."""
    model: Model
    kind: AgentType | None = None
    """Its named type. None: it has none."""
    ask_parent: Callable[[str], Awaitable[str]] | None = None
    """Asks the parent a question. None: the parent waits for this agent, and cannot answer."""
    detached: bool = False
    """It may outlive the run of its parent."""
    status: AgentStatus = "idle"
    usage: Usage = Usage()
    tree_usage: Usage = Usage()
    total: Usage = Usage()
    """What the agent itself has spent in all its runs."""
    scope: anyio.CancelScope | None = None
    """Covers the present run; cancelling it reaches all descendants."""
    history: list[ModelMessage] = field(default_factory=list)
    clock: RunClock = field(init=False)
    """Of the present run."""
    files: FileWork = field(init=False)
    """What the present run has read and written."""
    _started: float = 0.0
    _ended: float | None = None
    _holds_slot: bool = False
    _calls_waiting: int = 0

    def __post_init__(self) -> None:
        self.clock = RunClock(self.agent_id, self.account.budget.seconds)
        self.files = FileWork(key=self.key, label=self.path[-1])

    @property
    def depth(self) -> int:
        """Distance from the root."""
        return depth_of(self.key)

    @property
    def budget(self) -> Budget:
        """What the present run may spend."""
        return self.account.budget

    @property
    def may_spawn(self) -> bool:
        """Whether this agent is offered the spawning tools."""
        return self.tree.config.subagents.enabled and bool(self.budget.depth)

    @property
    def waits_for_child(self) -> bool:
        """A call of this agent waits for a child, so its run cannot end before that."""
        return self._calls_waiting > 0

    @property
    def output_folder(self) -> Path:
        """Where the agent's long outputs and its long answer are written."""
        return self.tree.config.workspace / OUTPUT_FOLDER / self.agent_id

    @property
    def seconds(self) -> float:
        """How long the present or last run has lasted."""
        if not self._started:
            return 0.0
        return (self._ended or time.monotonic()) - self._started

    @property
    def emitter(self) -> Emitter:
        """The agent's pen for the present run's stream."""
        parent_id = self.parent.agent_id if self.parent else None
        return Emitter(channel=self.tree.channel, agent_id=self.agent_id, parent_id=parent_id, depth=self.depth)

    @property
    def path(self) -> tuple[str, ...]:
        """The agents from the root to this one, as people see them."""
        above = self.parent.path if self.parent else ()
        return (*above, f"{self.agent_id} ({self.description})" if self.description else self.agent_id)

    @property
    def info(self) -> AgentInfo:
        """What a front end lists."""
        return AgentInfo(
            agent_id=self.agent_id,
            parent_id=self.parent.agent_id if self.parent else None,
            depth=self.depth,
            description=self.description,
            status=self.status,
            usage=self.usage,
            seconds=self.seconds,
            key=self.key,
            budget=self.budget,
        )

    @property
    def context(self) -> ExecutionContext:
        """What those are told of the agent who work for it."""
        return ExecutionContext(
            agent_id=self.agent_id,
            parent_id=self.parent.agent_id if self.parent else None,
            depth=self.depth,
            _left=lambda: self.account.left(seconds=self.clock.left),
            _cancelled=lambda: any(node.scope is not None and node.scope.cancel_called for node in self.ancestors()),
        )

    def ancestors(self) -> Iterator["AgentNode"]:
        """The agent itself, its parent, and so on up to the root."""
        node: AgentNode | None = self
        while node is not None:
            yield node
            node = node.parent

    def begin(self, budget: Budget = NO_BOUNDS) -> None:
        """A run begins. Args: budget: of a run of the root; a child's was decided when it was made."""
        if self.parent is None:
            self.account = self.tree.open_root_account(self.agent_id, budget)
            self.tree.writers.clear()
        self.clock = RunClock(self.agent_id, self.budget.seconds)
        self.usage = self.tree_usage = Usage()
        self.files = FileWork(key=self.key, label=self.path[-1])
        self._started, self._ended = time.monotonic(), None
        self.scope = anyio.CancelScope()
        self.status = "queued" if self.parent else "starting"

    def end(self, status: RunStatus) -> None:
        """The run has ended."""
        self.account.close()
        self._ended, self.scope, self.status = time.monotonic(), None, status

    def spend(self, usage: Usage) -> None:
        """Count for this agent and for every ancestor."""
        self.usage += usage
        self.total += usage
        for node in self.ancestors():
            node.tree_usage += usage

    def take_tool_call(self) -> None:
        """Count a tool call that is about to run.

        Raises:
            LimitReachedError: The budget has none left.
        """
        self.account.take_tool_call()
        self.spend(Usage(tool_calls=1))

    def check_spawn(self) -> None:
        """Raise SpawnForbiddenError, which names the limit and its setting, if this agent may not start a child now."""
        tree = self.tree
        if not tree.config.subagents.enabled:
            raise SpawnForbiddenError("no agent may start children (setting `subagents.enabled`)")
        if not self.may_spawn:
            raise SpawnForbiddenError(
                f"agents may nest {self.depth} deep and this one is at depth {self.depth} "
                "(setting `subagents.max_depth`, or `depth` of a budget); do the work yourself"
            )
        try:
            self.account.check_spawn()
        except LimitReachedError as error:
            raise SpawnForbiddenError(f"{error} (setting `budget`, or what the agent was given)") from error
        if tree.kernel_places.would_never_come(self):
            raise self._no_kernel()

    def _no_kernel(self) -> SpawnForbiddenError:
        return SpawnForbiddenError(
            f"all {self.tree.kernel_places.size} kernels belong to agents that wait for a child, so the child would wait "
            "for ever (setting `kernel.max_live`); do the work yourself"
        )

    @contextmanager
    def clocks_paused(self) -> Iterator[None]:
        """A person is asked: meanwhile the time of this run, and of those that wait for it, stands still."""
        with ExitStack() as stack:
            for node in self.ancestors():
                stack.enter_context(node.clock.paused())
            yield

    async def take_kernel_place(self) -> None:
        """Wait for a place among the live kernels; the root has one."""
        if self.parent is not None:
            await self.tree.kernel_places.take(self)

    def give_kernel_place_back(self) -> None:
        """Let the next child have a kernel; the root keeps its own."""
        if self.parent is not None:
            self.tree.kernel_places.give_back(self)

    async def take_slot(self) -> None:
        """Wait for one of the tree's slots; the root needs none."""
        if self.parent is None:
            return
        await self.tree.slots.acquire()
        if self._holds_slot or self._calls_waiting:
            # meanwhile another call of this agent has taken one, or waits for a child and needs none
            self.tree.slots.release()
        else:
            self._holds_slot = True

    def give_slot_back(self) -> None:
        """Let the next child work."""
        if self._holds_slot:
            self._holds_slot = False
            self.tree.slots.release()

    @asynccontextmanager
    async def waiting_for_child(self) -> AsyncIterator[None]:
        """Give the slot back while waiting: agents that wait for each other's slots would wait for ever.

        Raises:
            SpawnForbiddenError: The child waits for a kernel that would never be free if this agent waited as well.
        """
        self._calls_waiting += 1
        if self.tree.kernel_places.stuck:
            self._calls_waiting -= 1
            raise self._no_kernel()
        self.status = "waiting"
        self.give_slot_back()
        cut_short = True
        try:
            yield
            cut_short = False
        finally:
            self._calls_waiting -= 1
            # whoever gave this child up may go on: with a slot if one is free, for a cancellation must not wait for one
            if self._calls_waiting == 0 and self.scope is not None and not (cut_short and self.tree.slots.full):
                await self.take_slot()
            if self._calls_waiting == 0 and self.status == "waiting":
                self.status = "running"
