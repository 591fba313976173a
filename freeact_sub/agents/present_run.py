"""`PresentRun`: the state of one run of an agent. `RunRecord` is the part of it that can be written to disk.

Other code changes a run only through its methods. At its end it gives back its limits, its slot and its place for a kernel;
the record and the account remain.

Two bounds hold for all working children of a tree: slots, a semaphore, and `KernelPlaces` for live kernels. An agent gives
its slot back while it waits for a child, but not its kernel, which holds its variables. So agents that wait for children may
occupy all kernel places, and one more child would wait for ever. A child takes its kernel place before its slot: whoever
waits for a kernel holds no slot that others need.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio
from pydantic_ai.messages import ModelMessage, TextContent, UserContent, repair_messages
from pydantic_ai.models import ModelRequestParameters

from freeact_sub.agents.feature import NO_PARTS, RunParts
from freeact_sub.agents.money import Account
from freeact_sub.agents.ports import AtWork, KernelHolder
from freeact_sub.agents.requested_call import Asker
from freeact_sub.agents.results import AgentStatus, RunResult
from freeact_sub.approvals.advice import Adviser
from freeact_sub.calls import FanOut
from freeact_sub.config.budget import Budget, Usage
from freeact_sub.errors import ApprovalDeniedError, LimitReachedError, SpawnForbiddenError
from freeact_sub.events.ending import RunStatus
from freeact_sub.system.stopwatch import Stopwatch


@dataclass(kw_only=True, eq=False)
class _WaitingHolder:
    holder: KernelHolder
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    refused: bool = False
    """All places now belong to nodes and to waiting agents."""


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
        """Whether a child of this agent would wait for ever, because all holders are nodes or wait for children."""
        return self.full and all(self._keeps_place(holder) or holder is parent for holder in self._holders)

    @property
    def holders(self) -> tuple[KernelHolder, ...]:
        """The agents and nodes that hold a place."""
        return tuple(self._holders)

    @property
    def waiting(self) -> int:
        """Agents that wait for a place."""
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


class RunClock:
    """The time one run may take.

    It stops while a person is asked on behalf of the run or a descendant, and while the run waits for a slot or a kernel.
    """

    def __init__(self, seconds: float | None, reached: Callable[[str, float, float], LimitReachedError]) -> None:
        """Args: seconds: the bound; None: no bound. reached: makes the error from a limit, an amount and a bound."""
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
        """Seconds that the run has taken, without those for which it stood still."""
        return self._watch.seconds

    @property
    def stood_still(self) -> float:
        """For how many seconds it has stood still."""
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
    """The root was closed since, and with it the models that were made for children."""
    acted_outside: bool = False
    """The agent or a descendant was allowed an action with an effect besides its answer."""


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
    """Covers the whole run: cancelling it cancels all descendants that do not outlive it."""
    parameters: ModelRequestParameters = field(default_factory=lambda: NO_PARAMETERS)
    """Instructions and tools of its last request."""
    is_to_end: Callable[[], bool] = _is_not
    """Whether it is decided that its model makes no more requests but a last report."""
    must_end: ApprovalDeniedError | None = None
    """Why it must end once the present call of its model has. None: undecided."""
    cell_notes: dict[str | None, list[str]] = field(default_factory=dict)
    """Notes on calls of code, which the model reads with the result of their cell, by its call."""
    features: RunParts = NO_PARTS
    """What features do in it."""
    at_work: AtWork | None = None
    """The agent in it. None: it has not begun, or has ended."""
    prompt: Sequence[UserContent] = ()
    """The prompt in parts, as the model reads it, while features may change it."""
    has_model: bool = True
    """A model does the work, not a program."""
    fan_out: FanOut | None = None
    """The last one that was quoted."""
    children_asked: int = 0
    """The number of children that the latest response of its model starts, and waits for."""
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
        """What features know of the run at this moment."""
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
        """Seconds that it has taken, as `Budget.seconds` counts them: a person who is asked takes none of them."""
        return self.clock.seconds if self.is_live else self.record.seconds

    @property
    def usage(self) -> Usage:
        """The spending of the agent itself in this run, up to now."""
        return self.account.own_usage

    @property
    def left(self) -> Budget:
        """The most that a child could be given at this moment."""
        return self.account.remaining(seconds=self.clock.left)

    @property
    def is_cancelled(self) -> bool:
        """Whether it, or the run of an ancestor, is being cancelled."""
        return any(run.scope is not None and run.scope.cancel_called for run in self._with_ancestors())

    @property
    def conversation(self) -> Sequence[ModelMessage]:
        """The messages so far, and those that wait for the next request."""
        return self.record.history if self.at_work is None else self.at_work.expected

    def tell(self, text: str | TextContent) -> bool | None:
        """Send what the model reads before its next request. Returns None before its first request, False after its last."""
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
        """Cancel the run. Returns False if it is not live."""
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
