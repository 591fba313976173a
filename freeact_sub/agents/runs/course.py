"""`Course`: the course of one run of the root, from its begin to its end, whoever reads it.

What drives a run refers to its course, and not to the `Run` in a program's hands, so that a program that drops its `Run`
has dropped it: see `Run`.
"""

import asyncio
import contextlib
import weakref
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from freeact_sub import events as ev
from freeact_sub.agents.children.spawn import Work
from freeact_sub.agents.runs.loop import AgentLoop
from freeact_sub.agents.runs.present_run import PresentRun
from freeact_sub.agents.runs.results import PictureUse, RunResult
from freeact_sub.channel import EventChannel, check_event_loop
from freeact_sub.config.budget import Budget
from freeact_sub.system.closing import carry_out

if TYPE_CHECKING:
    from freeact_sub.agents.root import Root
    from freeact_sub.agents.runs.run import Run

NEVER_BEGAN: Final[RunResult[Any]] = RunResult(value="", status="cancelled", error="the run was closed before it began")
END_SECONDS: Final = 30.0
"""Seconds to wait for the end of a cancelled run. Its own bounds are shorter."""

BegunBy: TypeAlias = Literal["nobody", "reader", "block", "start"]
"""Whose a run is: its reader's, an `async with` block's, or the agent's, where `start` has begun it."""


class Course:
    """One run of the root."""

    def __init__(self, root: "Root", loop: AgentLoop, work: Work, *, channel: EventChannel, budget: Budget) -> None:
        """Nothing is started yet.

        Args:
            root: Its root.
            loop: The root's.
            work: The work to do.
            channel: Takes its events to the reader.
            budget: What it may spend.
        """
        self._root, self._home, self.tree = root, root.home, root.tree
        self.loop, self.work, self.channel = loop, work, channel
        self._budget = budget
        self.pictures: PictureUse = "saved"
        self.present: PresentRun | None = None
        """Its state. None: it has not begun, or still waits for the end of the run before."""
        self.task: asyncio.Task[RunResult[Any]] | None = None
        """Drives it. None: it has not begun."""
        self._before: Course | None = None
        """The run whose end it waits for."""
        self.begun_by: BegunBy = "nobody"
        self.is_used = False
        """A program has done something with it."""
        self.run: weakref.ref[Run[Any]] | None = None
        """The `Run` in a program's hands."""
        self._has_reader = True
        """Somebody reads its events and can answer questions."""
        self.is_read = False
        """Somebody waits for its next event."""
        self.is_left = False
        """A loop over its events was left, and nobody has read on."""
        self.closed = False
        """It was closed, or cancelled before it began."""

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, or never begins."""
        return self.task.done() if self.task is not None else self.closed

    @property
    def is_ending(self) -> bool:
        """Whether it ends soon without anybody's help, so that the next run can wait for it."""
        children = self.loop.children
        if self.closed or (self.present is not None and (self.present.is_cancelled or not children.is_open)):
            return True
        return not self._has_reader and self.work.program == children.until_idle and children.are_ending

    @property
    def gives_way(self) -> bool:
        """Whether it is cancelled for the next run: its reader has left it."""
        return self.begun_by == "reader" and self.is_left and not self.is_read

    @property
    def ends_first(self) -> "Course | None":
        """The run that must end before one can begin for a child. None: this run takes the child, or refuses it."""
        return self._before if self.present is None else None if self._has_reader else self

    def start(self, begun_by: BegunBy) -> None:
        """Start the run, unless it has started. It waits for the end of a run that is ending.

        Raises:
            AgentBusyError: Another run of the agent is live.
            FreeactError: The agent was opened in another event loop, or is closed.
        """
        self.is_used = True
        check_event_loop(self._home)
        if self.task is None and not self.closed:
            self._before = self._root.take(self)
            self.begun_by = begun_by
            if self._before is None:
                try:
                    self._begin()
                except BaseException:
                    self._root.forget(self)
                    raise
            self.task = asyncio.create_task(self._drive(), name=f"run of {self.loop.agent.agent_id}")

    def start_without_reader(self) -> None:
        """Start a run whose events reach the taps only. Approval requests get the answer for unattended runs."""
        self._has_reader = False
        self.start("start")

    def cancel(self) -> bool:
        """Cancel it. Returns False if it has ended."""
        self.is_used = True
        if self.present is not None:
            return self.present.cancel()
        if self.closed:
            return False
        self.closed = True
        self.channel.finish()
        return True

    async def end(self) -> None:
        """Cancel it, and read its events to the end: a reader that was cancelled does it."""
        self.cancel()
        await carry_out(self._read_to_the_end(), timeout_seconds=END_SECONDS)

    async def aclose(self) -> None:
        """Cancel it without a reader, and wait until it has ended."""
        self.is_used = True
        check_event_loop(self._home)
        self._leave()
        if self.task is not None:
            await carry_out(self.ended(), timeout_seconds=END_SECONDS)

    def leave(self) -> None:
        """Cancel it without a reader and without waiting for the end, from any thread."""
        self.closed = True
        if not self.has_ended and self._home is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the run with it
                self._home.call_soon_threadsafe(self._leave)

    async def ended(self) -> None:
        """Wait until it has ended."""
        if self.task is not None:
            await asyncio.wait({self.task})

    async def outcome(self) -> RunResult[Any]:
        """Wait until it has ended, and return its result."""
        return NEVER_BEGAN if self.task is None else await asyncio.shield(self.task)

    def _leave(self) -> None:
        self.closed = True
        self.channel.abandon()
        if self.present is not None and self.present.is_live:
            shared = self.tree.shared
            shared.gate.abandon()
            shared.questions.abandon()
            self.present.cancel()

    def _begin(self) -> None:
        self.tree.shared.stream.begin(self.channel, self.pictures)
        self.loop.begin(self._budget)
        self.present = self.loop.agent.run

    async def _drive(self) -> RunResult[Any]:
        reading = None if self._has_reader else asyncio.create_task(self._read(), name="reads a run without a reader")
        try:
            if self._before is not None:
                await self._before.ended()
                self._before = None
                if self.closed:
                    return NEVER_BEGAN
                self._begin()
            return await self.loop.run(self.work)
        finally:
            self.channel.finish()
            self.tree.shared.stream.end()
            if reading is not None:
                await asyncio.wait({reading})
            self._root.forget(self)

    async def _read_to_the_end(self) -> None:
        await self._read()
        await self.ended()

    async def _read(self) -> None:
        while (event := await self.channel.receive()) is not None:
            answer_for_nobody(event)


def answer_for_nobody(event: ev.Event) -> None:
    """Answer a request as where nobody is there."""
    if isinstance(event, ev.ApprovalRequest):
        event.decide(event.if_nobody)
    elif isinstance(event, ev.QuestionRequest):
        event.skip()
