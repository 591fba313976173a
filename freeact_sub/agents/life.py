"""Lives of agents: identity (`TreeAgent`), the state of a run (`PresentRun`), and all agents of a root (`Tree`).

`RunRecord` is the part of a run that can be written to disk. Other code changes a run only through its methods. At the
end a run gives back its limits, its slot and its place for a kernel; the record and the account remain.

Spans have the ids of agents, so that a trace can be read beside their events.
"""

import itertools
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
from pydantic_ai.messages import ModelMessage, TextContent, UserContent, repair_messages
from pydantic_ai.models import Model, ModelRequestParameters

from freeact_sub.agent_names import PREFIX, child_key, depth_of, root_key, short_id
from freeact_sub.agents.feature import NO_PARTS, Asker, FeatureAgent, RunParts, UsedKernel
from freeact_sub.agents.money import Account, Ledger, size_of
from freeact_sub.agents.results import ACTIVE, NO_BOUNDS, AgentInfo, AgentStatus, RunResult
from freeact_sub.agents.rights import AgentType, Rights
from freeact_sub.agents.shared import ExecutionContext, KernelHolder, KernelPlaces, Shared, no_kernel_left
from freeact_sub.approvals import Policy, narrowed
from freeact_sub.approvals.gate import Adviser
from freeact_sub.calls import NO_CHOICES, ChildChoices, FanOut, SpawnCall
from freeact_sub.channel import Emitter
from freeact_sub.config.budget import Budget, Usage
from freeact_sub.config.schema import Config
from freeact_sub.errors import ApprovalDeniedError, LimitReachedError
from freeact_sub.events import Answer, Notice
from freeact_sub.events.ending import RunStatus
from freeact_sub.events.forms import PersonQuestion
from freeact_sub.kernels import CellClock
from freeact_sub.models.observers import addresses
from freeact_sub.modes import INHERIT, Mode
from freeact_sub.spans import Stopwatch, note_here, part_of, span
from freeact_sub.tools import ChildRequest

OUTPUT_FOLDER: Final = Path(".freeact") / "outputs"
"""The folder in the workspace for long outputs and answers."""
NAME: Final = "freeact-sub"
"""The name of an agent without a type: names of spans are few, so that viewers can group them."""

MAX_ENDED: Final = 200
"""The number of ended children that are still listed; each takes about 30 kB."""
MAX_HISTORIES: Final = 100
MAX_BYTES: Final = 64 * 2**20
"""Bytes of the conversations of all children that have ended, as text."""
MAX_TRIES: Final = 10_000
"""Tries after which an id may share its short id, of which there are 65,536, with another agent."""


class AtWork(Protocol):
    """An agent at work, as its run and others of its tree reach it."""

    @property
    def expected(self) -> Sequence[ModelMessage]:
        """The conversation so far, and the messages for the next request."""
        ...

    def send(self, text: str | TextContent, *, of_person: bool = False) -> bool | None:
        """Send the model a text before its next request. Return None before its first request, False after its last."""
        ...

    def give_up(self) -> None:
        """Declare the run ended."""
        ...


class RunClock:
    """The clock of one run.

    It stops while a person is asked on behalf of the run or a descendant, and while the run waits for a slot or a kernel.
    """

    def __init__(self, seconds: float | None, reached: Callable[[str, float, float], LimitReachedError]) -> None:
        """Make the clock. Args: seconds: the bound, if any. reached: makes the error from a limit, an amount and a bound."""
        self._reached = reached
        self._seconds = seconds
        self._watch = Stopwatch(self._set_deadline)
        self._scope: anyio.CancelScope | None = None

    @property
    def left(self) -> float | None:
        """The remaining seconds. None: no bound."""
        return None if self._seconds is None else self._seconds - self._watch.seconds

    @property
    def seconds(self) -> float:
        """Seconds that the run has taken, without the time that the clock stood still."""
        return self._watch.seconds

    @property
    def stood_still(self) -> float:
        """Seconds that the clock has stood still."""
        return self._watch.paused_seconds

    @property
    def reached(self) -> LimitReachedError:
        """The error that names the bound."""
        return self._reached("seconds", round(self._watch.seconds, 3), self._seconds or 0.0)

    def check(self) -> None:
        """Raise LimitReachedError if no time is left."""
        if self.left is not None and self.left <= 0:
            raise self.reached

    @contextmanager
    def running(self) -> Iterator[anyio.CancelScope]:
        """Cancel the block when the time is up; the scope's `cancelled_caught` tells."""
        with anyio.CancelScope() as self._scope:
            self._set_deadline()
            yield self._scope

    def paused(self) -> AbstractContextManager[None]:
        """Stop the clock during the block."""
        return self._watch.paused()

    def _set_deadline(self) -> None:
        if self._scope is not None and self.left is not None:
            self._scope.deadline = float("inf") if self._watch.is_paused else anyio.current_time() + self.left


@dataclass(kw_only=True)
class RunRecord:
    """Plain data of one run."""

    status: AgentStatus = "idle"
    seconds: float = 0.0
    """Seconds that the run took, without waiting. 0: it has not ended."""
    history: list[ModelMessage] = field(default_factory=list)
    """The conversation; a root continues that of its last run."""
    model_is_closed: bool = False
    """Whether the root, and with it the children's models, was closed since."""
    acted_outside: bool = False
    """Whether the agent or a descendant was allowed an action with an effect besides its answer."""


NO_PARAMETERS: Final = ModelRequestParameters()


def _is_not() -> bool:
    return False


@dataclass(kw_only=True, eq=False)
class PresentRun:
    """One run, from `begin` to `end`."""

    record: RunRecord
    account: Account
    parent: "PresentRun | None"
    """The parent agent's run, until this one ends. None: this is the root's."""
    slots: anyio.Semaphore
    kernel_places: KernelPlaces
    holder: KernelHolder
    """The agent, as a holder of a place for its kernel."""
    scope: anyio.CancelScope | None = None
    """The scope of the whole run: cancelling it cancels all descendants that do not outlive it."""
    parameters: ModelRequestParameters = field(default_factory=lambda: NO_PARAMETERS)
    """Instructions and tools of the last request."""
    is_to_end: Callable[[], bool] = _is_not
    """A function that tells whether the model makes no more requests but a last report."""
    must_end: ApprovalDeniedError | None = None
    """The reason why the run must end after the present call of its model. None: undecided."""
    denied: int = 0
    """The number of actions that a rule, an adviser or a person has denied."""
    cell_notes: dict[str | None, list[str]] = field(default_factory=dict)
    """Notes on calls of code, by the call of their cell, with whose result the model reads them."""
    features: RunParts = NO_PARTS
    """Parts of features."""
    at_work: AtWork | None = None
    """The agent at work in the run. None: it has not begun, or has ended."""
    prompt: Sequence[UserContent] = ()
    """The prompt in parts, as the model reads it, while features may change it."""
    has_model: bool = True
    """Whether a model does the work, not a program."""
    fan_out: FanOut | None = None
    """The fan-out that was quoted last."""
    resumed: Sequence[ModelMessage] = ()
    """The conversation of the resumed child's last run, until this one begins. Empty: the child is new."""
    children_asked: int = 0
    """The number of children that the model's latest response starts, and waits for."""
    clock: RunClock = field(init=False)
    _holds_slot: bool = False
    _calls_waiting: int = 0

    def __post_init__(self) -> None:
        self._is_root = self.parent is None
        self.clock = RunClock(self.account.budget.seconds, self.account.limit_error)

    @property
    def status(self) -> AgentStatus:
        """The agent's activity, or the run's outcome."""
        return self.record.status

    @property
    def so_far(self) -> RunResult:
        """The facts that features know of the run at this moment."""
        return self.features.facts(RunResult(value="", status="cancelled"))

    @property
    def is_live(self) -> bool:
        """Whether the run has begun and not ended."""
        return self.scope is not None

    @property
    def waits_for_child(self) -> bool:
        """Whether a call of the agent waits for a child."""
        return self._calls_waiting > 0

    @property
    def seconds(self) -> float:
        """Seconds that the run has taken, as `Budget.seconds` counts them: without the time that people take."""
        return self.clock.seconds if self.is_live else self.record.seconds

    @property
    def usage(self) -> Usage:
        """The agent's own spending in this run, without its children's."""
        return self.account.own_usage

    @property
    def left(self) -> Budget:
        """The budget that a child could be given at this moment."""
        return self.account.remaining(seconds=self.clock.left)

    @property
    def is_cancelled(self) -> bool:
        """Whether the run, or an ancestor's, is being cancelled."""
        return any(run.scope is not None and run.scope.cancel_called for run in self._with_ancestors())

    @property
    def conversation(self) -> Sequence[ModelMessage]:
        """The messages so far, and those that wait for the next request."""
        return self.record.history if self.at_work is None else self.at_work.expected

    def tell(self, text: str | TextContent) -> bool | None:
        """Send the model a text before its next request. Return None before its first request, False after its last."""
        return False if self.at_work is None else self.at_work.send(text)

    def advisers(self, asker: Asker) -> Sequence[Adviser]:
        """Return the advisers of all features on a call."""
        return self.features.advisers(asker)

    def begin(self) -> None:
        """Begin the run: start its clock and open its cancel scope."""
        self.scope = anyio.CancelScope()
        self.clock = RunClock(self.account.budget.seconds, self.account.limit_error)
        self.record.status = "starting" if self._is_root else "queued"

    def work(self) -> None:
        """Note that the agent has its slot and works."""
        self.record.status = "running"

    def keep_history(self, messages: Sequence[ModelMessage]) -> None:
        """Keep the final conversation; unanswered calls get an answer, because providers reject them otherwise."""
        self.record.history = repair_messages(list(messages))

    def end(self, status: RunStatus) -> None:
        """End the run and release its reservations."""
        self.account.close()
        if not self._is_root:  # the root's have a say while it is idle, and there is one of it
            self.features, self.parameters = NO_PARTS, NO_PARAMETERS
        self.is_to_end = _is_not
        self.parent = self.at_work = None
        self.record.seconds, self.record.status, self.scope = self.seconds, status, None

    def cancel(self) -> bool:
        """Cancel the run. Return False if it is not live."""
        if self.scope is None:
            return False
        self.scope.cancel()
        return True

    def note_outside_action(self) -> None:
        """Note an action with an outside effect, for the agent and its ancestors."""
        for run in self._with_ancestors():
            run.record.acted_outside = True

    @contextmanager
    def clocks_paused(self) -> Iterator[None]:
        """Stop the clocks of this run and of its ancestors, while a person is asked."""
        with ExitStack() as stack:
            for run in self._with_ancestors():
                stack.enter_context(run.clock.paused())
            yield

    async def take_kernel_place(self) -> None:
        """Wait for a place for a live kernel; the root always has one."""
        if not self._is_root:
            with self.clock.paused():
                await self.kernel_places.take(self.holder)

    async def take_slot(self) -> None:
        """Wait for one of the tree's slots; the root needs none."""
        if self._is_root:
            return
        with self.clock.paused():
            await self.slots.acquire()
        if self._holds_slot or self._calls_waiting or self.scope is None:
            # by now another call of this agent holds one, or waits for a child and needs none, or the run has ended
            self.slots.release()
        else:
            self._holds_slot = True

    def give_back_places(self) -> None:
        """Give back slot and kernel place to the next child; the root keeps its place."""
        self._give_slot_back()
        if not self._is_root:
            self.kernel_places.give_back(self.holder)

    @asynccontextmanager
    async def waiting_for_child(self) -> AsyncIterator[None]:
        """Give the slot back while waiting for a child, so that agents never deadlock on each other's slots.

        Raises:
            SpawnForbiddenError: The child waits for a kernel that could never become free while this agent waits.
        """
        self._calls_waiting += 1
        if self.kernel_places.stuck:
            self._calls_waiting -= 1
            raise no_kernel_left(self.kernel_places)
        self.record.status = "waiting"
        self._give_slot_back()
        cut_short = True
        try:
            yield
            cut_short = False
        finally:
            self._calls_waiting -= 1
            # after an interrupted wait take a slot only if one is free: a cancellation must not wait for one
            if self._calls_waiting == 0 and self.is_live and (self.slots.value or not cut_short):
                await self.take_slot()
            if self._calls_waiting == 0 and self.record.status == "waiting":
                self.record.status = "running"

    def _with_ancestors(self) -> Iterator["PresentRun"]:
        run: PresentRun | None = self
        while run is not None:
            yield run
            run = run.parent

    def _give_slot_back(self) -> None:
        if self._holds_slot:
            self._holds_slot = False
            self.slots.release()


@dataclass(frozen=True, kw_only=True)
class KeptAgent:
    """An agent in plain values, as it is resumed after it has ended."""

    agent_id: str
    key: str
    parent_id: str | None
    """The id of the parent; None for the root."""
    description: str
    agent_type: str | None
    model: str
    """The name of the model."""
    address: str
    """The name and the server of the model. Empty: not known."""
    mode: Mode
    choices: Mapping[str, Any]
    """The choices for the agent, from `ChildChoices.kept`."""


@dataclass(kw_only=True, eq=False, repr=False)
class TreeAgent:
    """An agent, or a node: a live kernel without an agent, whose code is a part of its owner's run.

    The identity never changes; run, kernel and policy do, and features complete the rights of the root.
    """

    shared: Shared
    agent_id: str
    key: str
    """The durable name, and the only source of the agent's depth."""
    parent: "TreeAgent | None"
    choices: ChildChoices = NO_CHOICES
    """The choices for the agent, as the factory, its type and its parent completed them. The root has none."""
    policy: Policy
    """The policy that decides on its calls at this moment, with the folders of its kernel."""
    model: Model
    rights: Rights = field(default_factory=Rights)
    tool_call_id: str | None = None
    """The parent's call that started the agent. None: a program did."""
    in_background: bool = False
    """Whether the parent continues while the agent works; the two can exchange messages."""
    detached: bool = False
    """Whether the agent may outlive its parent's run."""
    continues: bool = False
    """Whether the agent continues its parent's whole conversation, under the same system prompt and tools."""
    owner: "TreeAgent | None" = None
    """The agent that keeps this node. None: this is an agent."""
    kernel: UsedKernel | None = None
    """The kernel. None: the agent has none, or somebody else has taken it over."""
    own_run: PresentRun = field(init=False)
    """The present or last run. A node has none."""

    @property
    def run(self) -> PresentRun:
        """The present or last run; a node's is its owner's."""
        return self.principal.own_run

    @property
    def description(self) -> str:
        """The label of the work. Empty: there is none."""
        return self.choices.description

    @property
    def keeps_kernel(self) -> bool:
        """Whether the kernel outlives the run as a node."""
        return self.choices.keep

    @property
    def config(self) -> Config:
        """The settings of the root."""
        return self.shared.config

    @property
    def principal(self) -> "TreeAgent":
        """The agent in whose run the code runs: this one, or the owner of a node."""
        return self if self.owner is None else self.owner.principal

    def use_kernel(self, folders: tuple[Path, ...]) -> None:
        """Note a new kernel. Args: folders: the agent's own, besides the workspace."""
        self.policy = self.policy.with_scratch(folders)

    async def ask_person(
        self,
        asked: PersonQuestion,
        *,
        tool_call_id: str | None = None,
        clock: CellClock | None = None,
        may_be_passed_over: bool = False,
    ) -> Answer:
        """Ask a person; an answer without a text is none. Meanwhile the clocks of run and cell stand still."""
        with self.run.clocks_paused(), clock.paused() if clock is not None else nullcontext():
            return await self.shared.questions.ask(
                asked,
                self.emitter,
                path=self.path,
                tool_call_id=tool_call_id,
                ended=lambda: Asker(agent=self, clock=clock).ended,
                may_be_passed_over=may_be_passed_over,
            )

    async def at_limit_of_cell(self, reached: LimitReachedError, clock: CellClock) -> float:
        """Return how many seconds more features give a cell whose time is up."""
        return await self.run.features.limit(reached, Asker(agent=self, tool_call_id=clock.tool_call_id, clock=clock))

    @property
    def waits_for_child(self) -> bool:
        """Whether the run cannot end before a child's."""
        return self.run.waits_for_child

    @cached_property
    def depth(self) -> int:
        """The distance from the root."""
        return depth_of(self.key)

    @property
    def parent_id(self) -> str | None:
        """The id of the parent; None for the root."""
        return self.parent.agent_id if self.parent else None

    @property
    def may_spawn(self) -> bool:
        """Whether this agent gets the spawning tools."""
        has_levels = bool(self.run.account.budget.depth) and self.shared.config.subagents.enabled
        return has_levels and self.rights.denied_by("task") is None

    @property
    def begins_as(self) -> "TreeAgent":
        """The agent whose tools and system prompt begin the requests: this one, or the one that it continues."""
        return self.parent.begins_as if self.continues and self.parent is not None else self

    @property
    def window_tokens(self) -> int | None:
        """The size of the model's window, if known."""
        return self.shared.config.context.window_tokens or self.model.context_window

    @property
    def output_folder(self) -> Path:
        """The folder for the agent's long outputs and its long answer."""
        return self.shared.config.workspace / OUTPUT_FOLDER / self.principal.agent_id

    @property
    def emitter(self) -> Emitter:
        """The writer of the agent's events to the root's present stream."""
        channel, of = self.shared.stream.channel, self.principal
        return Emitter(channel=channel, agent_id=of.agent_id, parent_id=of.parent_id, depth=of.depth)

    @property
    def label(self) -> str:
        """The agent's name for models: its whole id."""
        return self._named(self.agent_id)

    @property
    def name(self) -> str:
        """The agent's name for people."""
        return self._named(short_id(self.agent_id))

    def _named(self, agent_id: str) -> str:
        named = f"{agent_id} ({self.description})" if self.description else agent_id
        return named if self.owner is None else f"node {named}"

    @property
    def path(self) -> tuple[str, ...]:
        """The names for people from the root to this agent."""
        return (*(self.parent.path if self.parent else ()), self.name)

    @property
    def info(self) -> AgentInfo:
        """The agent as a front end lists it."""
        return AgentInfo(
            agent_id=self.agent_id,
            parent_id=self.parent_id,
            depth=self.depth,
            description=self.description,
            status=self.run.status,
            usage=self.run.account.own_usage,
            seconds=self.run.seconds,
            key=self.key,
            budget=self.run.account.budget,
            action=self.shared.activities.of(self.agent_id) if self.run.status in ACTIVE else "",
            fan_out=self.run.fan_out,
        )

    @property
    def kept(self) -> KeptAgent:
        """The agent in the form from which it is resumed."""
        return KeptAgent(
            agent_id=self.agent_id,
            key=self.key,
            parent_id=self.parent_id,
            description=self.description,
            agent_type=self.rights.type_name,
            model=self.model.model_id,
            address=addresses(self.model)[0],
            mode=self.policy.mode,
            choices=self.choices.kept,
        )

    @property
    def context(self) -> ExecutionContext:
        """The agent as its factory and children see it."""
        return ExecutionContext(
            agent_id=self.agent_id,
            parent_id=self.parent_id,
            depth=self.depth,
            _left=lambda: self.run.left,
            _cancelled=lambda: self.run.is_cancelled,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label}>"

    def ancestors(self) -> Iterator["TreeAgent"]:
        """Yield the agent itself, its parent, and so on up to the root."""
        agent: TreeAgent | None = self
        while agent is not None:
            yield agent
            agent = agent.parent

    def outlives(self, above: "TreeAgent") -> bool:
        """Return whether the agent may continue after the run of this ancestor has ended."""
        return any(agent.detached for agent in itertools.takewhile(lambda agent: agent is not above, self.ancestors()))


def chosen_model(named: str | Model | None, agent_type: AgentType | None, parent: TreeAgent) -> str | Model | None:
    """Return the model of a child: the call names it, else its type, else the setting. None: its parent's."""
    of_type = agent_type.model if agent_type is not None else None
    chosen = named or of_type or parent.shared.config.subagents.model
    return None if chosen == INHERIT else chosen


def with_model_named(call: SpawnCall, parent: TreeAgent) -> SpawnCall:
    """Return the call with the child's model, if that is not the usual one, so that people and rules judge it."""
    if call.resume:
        return replace(call, model="" if call.model == INHERIT else call.model)
    names = call.agent.split(", ") if call.agent else [""]  # a plan names a type for each of its children
    types = [parent.shared.types.get(name, parent.rights.agent_type) for name in names]
    usual = parent.shared.config.subagents.model
    models = {chosen_model(call.model or None, agent_type, parent) for agent_type in types}
    if models == {usual}:
        return replace(call, model="")
    return replace(call, model=", ".join(sorted(str(model or INHERIT) for model in models)))


def tree_agent(agent: FeatureAgent) -> TreeAgent:
    """Return the whole agent or node, for the core and the features of this package."""
    if not isinstance(agent, TreeAgent):
        raise TypeError(f"{agent!r} is no agent of a tree")
    return agent


def name_of(agent: TreeAgent) -> str:
    """Return the name of the spans of an agent's runs."""
    return agent.rights.type_name or NAME


def conversation_of(agent: TreeAgent) -> str:
    """Return the id that all agents of the tree share: their session's, if it is kept."""
    return agent.shared.recorded.session_id or list(agent.ancestors())[-1].agent_id


async def is_raised(reached: LimitReachedError, account: Account, asker: Asker) -> bool:
    """Let features raise a bound that an account, or one above it, has reached; return whether it was raised.

    Of all who reach it at once, one asks. What was left as it is stays so.
    """
    name, at = reached.limit, account.bounded_by(reached)
    if at is None:
        return False
    giver = at.giver_of(name)
    with asker.paused():
        async with giver.raising:
            if name in giver.final:
                return False
            if at.bounded_by(reached) is None:
                return True  # meanwhile
            if giver is not at:
                if name in giver.raised:
                    at.lift(name)
                    return True
                reached = giver.limit_error(name, giver.taken(name), giver.bound(name), reached.needed)
            more = await tree_agent(asker.agent).run.features.limit(reached, asker)
            if more > 0:
                giver.raise_bound(name, more)
            else:
                giver.final.add(name)
            return more > 0


@contextmanager
def traced_run(agent: TreeAgent) -> Iterator[None]:
    """Stand around a run of a model, in the span that pydantic-ai has made of it."""
    with part_of(conversation_of(agent)):
        note_here(**{"gen_ai.agent.id": agent.agent_id}, depth=agent.depth, mode=agent.policy.mode)
        yield
        _spent(agent)


@contextmanager
def traced_program(agent: TreeAgent, program: Callable[..., Any]) -> Iterator[None]:
    """Stand around a run of a program."""
    name = getattr(program, "__name__", "") or "program"
    named = {"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": name}
    with span(f"invoke_workflow {name}", **named), part_of(conversation_of(agent)):
        note_here(**{"gen_ai.agent.id": agent.agent_id}, depth=agent.depth)
        yield
        _spent(agent)


def _spent(agent: TreeAgent) -> None:
    usage = agent.run.account.own_usage
    if usage.cost_usd is not None:
        note_here(cost_usd=float(usage.cost_usd))


@dataclass(kw_only=True)
class Tree:
    """All agents of one root."""

    shared: Shared
    agents: dict[str, TreeAgent] = field(default_factory=dict)
    """The agents by id, oldest first, so the root comes first."""
    at_work: dict[str, AtWork] = field(default_factory=dict)
    """The working agents by id, oldest first."""
    outliving: set[Callable[[], Awaitable[None]]] = field(default_factory=set)
    """Functions that close parts of a run that have outlived it; called when the root is closed."""
    ledger: Ledger = field(default_factory=Ledger)
    answered_by: dict[str, str] = field(default_factory=dict)
    """Ids of the children that got an earlier child's answer, mapped to the id of the earlier one."""
    _histories: dict[str, int] = field(default_factory=dict)
    """Bytes of the conversations of ended children, oldest first."""
    _short_ids: set[str] = field(default_factory=set)
    """Short ids of all agents of the tree and its session. None is given twice, even if its agent is forgotten."""

    @property
    def root(self) -> TreeAgent:
        """The agent without a parent."""
        return next(iter(self.agents.values()))

    def notice(self, text: str) -> None:
        """Show a notice in the root's stream, or in its next one if no run is live."""
        if not self.agents or self.root.agent_id not in self.at_work:  # a stream starts with AgentStarted
            self.shared.stream.notice_later(text)
        else:
            self.root.emitter.put(Notice(content=text))

    def add_root(self, history: list[ModelMessage], agent_id: str | None = None) -> TreeAgent:
        """Make the root. Features add their parts once they are attached (`add_parts`).

        Args:
            history: The conversation to continue.
            agent_id: The id in the resumed session.
        """
        shared, agent_id = self.shared, agent_id or self._new_id()
        root = TreeAgent(
            shared=shared,
            agent_id=agent_id,
            key=root_key(agent_id),
            parent=None,
            policy=shared.policy,
            model=shared.model,
            rights=Rights(servers=shared.config.mcp_servers),
        )
        shared.kernel_places.take_now(root)
        self.agents[agent_id] = root
        run = self._make_run(root, self.ledger.open(agent_id, self._root_budget(NO_BOUNDS)), None)
        run.record.history = history
        return root

    def add_parts(self) -> None:
        """Let the attached features make their parts for the idle root."""
        self.root.run.features = self.shared.features.run(self.root)

    def begin_root(self, budget: Budget) -> None:
        """Begin a run of the root. Args: budget: overrides the configured one."""
        root, last = self.root, self.root.run
        self._forget_ended()
        account = self.ledger.open(root.agent_id, self._root_budget(budget))
        run = self._make_run(root, account, None)
        self.add_parts()
        run.record.history, run.parameters = last.record.history, last.parameters
        run.begin()

    def add_child(
        self,
        parent: TreeAgent,
        request: ChildRequest,
        *,
        agent_type: AgentType | None,
        model: Model | None,
        in_background: bool,
        earlier: Sequence[KeptAgent] = (),
        payer: Account | None = None,
    ) -> TreeAgent:
        """Make a child and begin its run. `check_spawn` must have passed, without an `await` in between.

        Args:
            parent: The agent that starts it.
            request: The request; the parent bounds its budget and its mode.
            agent_type: None: the parent's.
            model: None: the parent's.
            in_background: Whether the parent does not wait for it.
            earlier: For a resumed child, the agents from below the parent down to the child.
            payer: The account that pays, below the parent's. None: the parent's.
        """
        config, policy = self.shared.config.subagents, parent.policy
        choices = request.choices.model_copy(update={"thinking": request.thinking or parent.choices.thinking})
        same_kind = agent_type is parent.rights.agent_type and model is None
        above = parent
        for between in earlier[:-1]:
            above = self.agents.get(between.agent_id) or self._add_ended(between, above)
        agent = TreeAgent(
            shared=self.shared,
            agent_id=earlier[-1].agent_id if earlier else self._new_id(),
            key=earlier[-1].key if earlier else child_key(parent.key),
            parent=above,
            choices=choices,
            policy=policy if request.mode is None else narrowed(policy, request.mode),
            model=model or parent.model,
            rights=above.rights.for_child(agent_type, choices.tools),
            tool_call_id=request.tool_call_id,
            in_background=in_background,
            detached=in_background and config.detach,
            continues=request.continues_all and not in_background and same_kind,
        )
        asked = request.budget.over(config.budget)
        budget = asked.cut(parent.run.left)
        if budget.depth is not None:  # a child resumed by an agent further above has fewer levels below it
            budget = budget.model_copy(update={"depth": max(0, budget.depth - (agent.depth - parent.depth - 1))})
        if payer is not None:
            budget = budget.cut(payer.remaining())
        account = self.ledger.open(agent.agent_id, budget, payer or parent.run.account)
        account.rests = {name: own for name, own in asked if name not in Budget.OWN and own != getattr(budget, name)}
        self.agents[agent.agent_id] = agent
        run = self._make_run(agent, account, parent.run)
        run.features = self.shared.features.run(agent)
        run.begin()
        return agent

    def _forget_ended(self) -> None:
        """Forget the children that ended first, except holders of kernels and ancestors of agents at work."""
        at_work = {above.agent_id for agent_id in self.at_work for above in self.agents[agent_id].ancestors()}
        needed = at_work | {holder.agent_id for holder in self.shared.kernel_places.holders} | {self.root.agent_id}
        ended = [agent_id for agent_id in self.agents if agent_id not in needed]
        for agent_id in ended[:-MAX_ENDED]:
            del self.agents[agent_id]

    def keep_history(self, agent: TreeAgent, reused_from: str) -> None:
        """Keep the conversation of an ended child, so that it can be resumed; the oldest make room.

        Args:
            agent: The child.
            reused_from: The agent whose answer it was given, if any.
        """
        kept, messages = self._histories, agent.run.record.history
        kept.pop(agent.agent_id, None)
        if reused_from:  # it has no conversation of its own that could take a place
            self.answered_by[agent.agent_id] = reused_from
            return
        kept[agent.agent_id] = sum(size_of(part) for message in messages for part in message.parts)
        while len(kept) > MAX_HISTORIES or sum(kept.values()) > MAX_BYTES:
            oldest = next(iter(kept))
            del kept[oldest]
            if (other := self.agents.get(oldest)) is not None and (other is agent or not other.run.is_live):
                other.run.record.history = []

    def withdraw(self, agent: TreeAgent, before: TreeAgent | None = None) -> None:
        """Undo `add_child` for a child that cannot begin, including the spawn counted for its parent.

        Args:
            agent: The child.
            before: The earlier entry of a resumed child.
        """
        agent.run.account.withdraw()
        del self.agents[agent.agent_id]
        if before is not None:
            self.agents[agent.agent_id] = before

    def _add_ended(self, kept: KeptAgent, parent: TreeAgent) -> TreeAgent:
        """Add an agent of an earlier program, which does not run, as the ancestor of a resumed child."""
        choices = ChildChoices(description=kept.description, **kept.choices)
        kind = self.shared.types[kept.agent_type] if kept.agent_type else None
        agent = TreeAgent(
            shared=self.shared,
            agent_id=kept.agent_id,
            key=kept.key,
            parent=parent,
            choices=choices,
            policy=narrowed(parent.policy, kept.mode),
            model=parent.model,
            rights=parent.rights.for_child(kind, choices.tools),
        )
        self.agents[agent.agent_id] = agent
        self._make_run(agent, self.ledger.open(agent.agent_id, NO_BOUNDS), None)
        return agent

    def _make_run(self, agent: TreeAgent, account: Account, parent: PresentRun | None) -> PresentRun:
        shared = self.shared
        run = PresentRun(
            record=RunRecord(),
            account=account,
            parent=parent,
            slots=shared.slots,
            kernel_places=shared.kernel_places,
            holder=agent,
        )
        agent.own_run = run
        return run

    def _new_id(self) -> str:
        """Return an id whose short id, too, is new to the tree and its session."""
        known = self.shared.recorded.runs
        if not self._short_ids:
            self._short_ids.update(map(short_id, [*self.agents, *known]))
        for tries in itertools.count():
            agent_id = f"{PREFIX}{secrets.token_hex(4)}"
            is_new = agent_id not in self.agents and agent_id not in known
            if is_new and (short_id(agent_id) not in self._short_ids or tries > MAX_TRIES):
                break
        self._short_ids.add(short_id(agent_id))
        return agent_id

    def _root_budget(self, asked: Budget) -> Budget:
        config = self.shared.config
        budget = asked.over(config.budget)
        return budget if budget.depth is not None else budget.model_copy(update={"depth": config.subagents.max_depth})
