"""`Run`: one prompt to the root agent, as its reader sees it: ordered events, then a result.

`EventStream` is a run of which only the events are read.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, Self

from freeact_sub.agents.children.spawn import Work
from freeact_sub.agents.runs.loop import AgentLoop
from freeact_sub.agents.runs.present_run import PresentRun
from freeact_sub.agents.runs.results import ACTIVE, AgentStatus, AnswerT, PictureUse, RunResult
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.channel import EventChannel, check_event_loop
from freeact_sub.config.budget import Budget, Usage
from freeact_sub.errors import FreeactError
from freeact_sub.events import Answer, ApprovalRequest, Decision, Event, QuestionRequest
from freeact_sub.system.closing import carry_out

if TYPE_CHECKING:
    from freeact_sub.agents.root import Root

NEVER_BEGAN: Final[RunResult[Any]] = RunResult(output="", status="cancelled", error="the run was closed before it began")

READ_TWICE: Final = (
    "another task reads this run, and each event goes to one reader: read it in one task, and await `result()` there, or "
    "after that task has ended"
)


class Run(Generic[AnswerT]):
    """A run of the root agent and all its descendants.

    Iterate over it for the events, await `result()`, or do both in turn. As a context manager, it cancels what is still
    running on exit. It starts on the first of these uses. `Agent.run` and similar methods make it.
    """

    def _hold(self, root: "Root", loop: AgentLoop, work: Work, *, channel: EventChannel, budget: Budget) -> None:
        self._root = root
        self._loop = loop
        self._home = root.home
        self._work = work
        self._budget = budget
        self._tree = root.tree
        self._shared = root.tree.shared
        self._channel = channel
        self._pictures: PictureUse = "saved"
        self._present: PresentRun | None = None
        """Its state. None: it has not begun, or still waits for the end of the run before."""
        self._before: Run | None = None
        """The run whose end it waits for."""
        self.has_reader = True
        """Somebody reads its events and can answer questions."""
        self._task: asyncio.Task[RunResult[AnswerT]] | None = None
        self._unsent: list[str] = []
        self._is_read = False
        """Somebody waits for its next event."""
        self._closed = False
        """It was closed, or cancelled before it began."""

    @property
    def status(self) -> AgentStatus:
        """The root agent's activity, or its outcome."""
        return self._present.status if self._present is not None else "idle"

    @property
    def files_written(self) -> tuple[str, ...]:
        """The files in the workspace that the root has written so far, relative to it."""
        return self._present.so_far.files_written if self._present is not None else ()

    @property
    def usage(self) -> Usage:
        """The spending of the root and all its descendants so far."""
        return self._present.account.usage if self._present is not None else Usage()

    @property
    def prompt(self) -> str:
        """The work to do."""
        return self._work.prompt

    def add_note(self, text: str) -> None:
        """Have the model read a text after its prompt; a front end does this before the run starts."""
        self._work = replace(self._work, note=text)

    @property
    def pictures(self) -> PictureUse:
        """How pictures that cells display reach the user; a front end sets it before the run starts."""
        return self._pictures

    @pictures.setter
    def pictures(self, pictures: PictureUse) -> None:
        self._pictures = pictures
        if self._present is not None:
            self._shared.stream.pictures = pictures

    @property
    def is_ending(self) -> bool:
        """Whether it ends soon without anybody's help, so that the next run can wait for it."""
        if self._closed or (self._present is not None and (self._present.is_cancelled or not self._loop.children.is_open)):
            return True
        return (
            not self.has_reader and self._work.program == self._loop.children.until_idle and self._loop.children.are_ending
        )

    @property
    def ends_first(self) -> "Run | None":
        """The run that must end before one can begin for a child. None: this run takes the child, or refuses it."""
        return self._before if self._present is None else None if self.has_reader else self

    def cancel(self, agent_id: str | None = None) -> bool:
        """Cancel the run, or one child with its descendants. Returns at once; the endings arrive as events.

        Returns:
            False if no such agent is working.
        """
        if agent_id is not None and agent_id != self._agent.agent_id:
            agent = self._tree.agents.get(agent_id)
            return agent is not None and agent.run.cancel()
        if self._present is not None:
            return self._present.cancel()
        if self._closed:
            return False
        self._never_begin()
        return True

    def send(self, text: str, agent_id: str | None = None) -> bool:
        """Steer an agent: its model reads the text before its next request.

        Args:
            text: The message.
            agent_id: A working child. None: the root agent, which receives it even if it has not begun yet.

        Returns:
            False if nobody will read it: no such child is working, or it has not made its first request yet; or the root has
            made its last request, has ended, or is a program.
        """
        if agent_id is not None and agent_id != self._agent.agent_id:
            loop = self._tree.at_work.get(agent_id)
            return loop is not None and bool(loop.send(text, of_person=True))
        if self._closed or self._work.program is not None or (self._present is not None and not self._present.is_live):
            return False
        self._unsent.append(text)
        return self._flush()

    @property
    def open_requests(self) -> tuple[ApprovalRequest | QuestionRequest, ...]:
        """The approval requests and questions that wait for an answer, oldest first."""
        found: list[ApprovalRequest | QuestionRequest] = [*self._shared.gate.open_requests]
        found += self._shared.questions.open_requests
        return tuple(sorted(found, key=lambda request: request.seq))

    def answer(self, request_id: str, answer: Decision | Answer | str) -> bool:
        """Answer an approval request (by a `Decision`) or a question (by a text, or by values) by its id, from any thread.

        A `Notice` reports a rule that cannot be written into the project's file.

        Returns:
            False if no such request is open: it is unknown, already answered or withdrawn.

        Raises:
            ValueError: The decision's pattern is invalid, or it is no answer to the question, which stays open.
        """
        if isinstance(answer, Decision):
            return self._shared.gate.answer(request_id, answer)
        return self._shared.questions.answer(request_id, Answer(text=answer) if isinstance(answer, str) else answer)

    def withdraw(self, request_id: str, reason: str = "withdrawn") -> bool:
        """Close an open request because nobody will answer it; whoever asks is told the reason, and the run goes on."""
        denied, absent = Decision(allowed=False, reason=reason, nobody=True), Answer(reason=reason, nobody=True)
        return self.answer(request_id, denied) or self.answer(request_id, absent)

    async def result(self) -> RunResult[AnswerT]:
        """Read to the end and return the result. Approval requests get the answer for unattended runs.

        A run that this call begins is cancelled with it, as a task is with the one that awaits it.
        """
        with self.cancelled_with_caller():
            async for event in self:
                self._answer_for_nobody(event)
            return await self._outcome()

    @contextlib.contextmanager
    def cancelled_with_caller(self) -> Iterator[None]:
        """Cancel a run that begins in this context if the caller is cancelled there; a run that has begun before goes on."""
        begins = self._task is None
        try:
            yield
        except asyncio.CancelledError:
            if begins:
                self.cancel()
            raise

    async def aclose(self) -> None:
        """Cancel what is still running and wait until it has ended. Can be called again.

        Raises:
            FreeactError: The agent was opened in another event loop.
        """
        check_event_loop(self._home)
        self._leave()
        if self._task is not None:
            await carry_out(self.ended(), timeout_seconds=30)

    def leave(self) -> None:
        """Cancel what is still running, without waiting for the end, from any thread."""
        self._closed = True
        if self._task is not None and self._home is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the run with it
                self._home.call_soon_threadsafe(self._leave)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        self.start()
        if self._is_read:
            raise FreeactError(READ_TWICE)
        self._is_read = True
        try:
            event = await self._channel.receive()
        finally:
            self._is_read = False
        self._flush()
        if event is None:
            await self._outcome()
            raise StopAsyncIteration
        return event

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def _agent(self) -> TreeAgent:
        return self._loop.agent

    def _never_begin(self) -> None:
        self._closed = True
        self._channel.finish()

    def _leave(self) -> None:
        self._closed = True
        self._channel.abandon()
        if self._present is not None and self._present.is_live:
            self._shared.gate.abandon()
            self._shared.questions.abandon()
            self._present.cancel()

    def start(self) -> None:
        """Start the run, unless it has started. It waits for the end of a run that is ending.

        Raises:
            AgentBusyError: Another run of the agent is live.
            FreeactError: The agent was opened in another event loop, or is closed.
        """
        check_event_loop(self._home)
        if self._task is None and not self._closed:
            self._before = self._root.take(self)
            if self._before is None:
                try:
                    self._begin()
                except BaseException:
                    self._root.forget(self)
                    raise
            self._task = asyncio.create_task(self._drive(), name=f"run of {self._agent.agent_id}")

    def start_without_reader(self) -> None:
        """Start a run whose events reach the taps only. Approval requests get the answer for unattended runs."""
        self.has_reader = False
        self.start()

    def _begin(self) -> None:
        self._shared.stream.begin(self._channel, self._pictures)
        self._loop.begin(self._budget)
        self._present = self._agent.run

    async def ended(self) -> None:
        """Wait until it has ended."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _drive(self) -> RunResult[AnswerT]:
        reading = None if self.has_reader else asyncio.create_task(self._read(), name="reads a run without a reader")
        try:
            if self._before is not None:
                await self._before.ended()
                self._before = None
                if self._closed:
                    return NEVER_BEGAN
                self._begin()
            return await self._loop.run(self._work)
        finally:
            self._channel.finish()
            self._shared.stream.end()
            if reading is not None:
                await asyncio.wait({reading})
            self._root.forget(self)

    async def _read(self) -> None:
        while (event := await self._channel.receive()) is not None:
            self._answer_for_nobody(event)

    def _answer_for_nobody(self, event: Event) -> None:
        if isinstance(event, ApprovalRequest):
            event.decide(event.if_nobody)
        elif isinstance(event, QuestionRequest):
            event.skip()

    async def _outcome(self) -> RunResult[AnswerT]:
        if self._task is None:
            return NEVER_BEGAN
        return await asyncio.shield(self._task)

    def _flush(self) -> bool:
        """Deliver the messages; returns False if nobody will read them."""
        if self._present is None:
            return True
        taken: bool | None = True
        while self._unsent and (taken := self._loop.send(self._unsent[0], of_person=True)):
            self._unsent.pop(0)
        if taken is False and self.status in ACTIVE:  # otherwise it has not begun
            self._unsent.clear()
            return False
        return True


class RootRun(Run[AnswerT]):
    """A run, as its agent makes it."""

    def __init__(self, root: "Root", loop: AgentLoop, work: Work, *, channel: EventChannel, budget: Budget) -> None:
        self._hold(root, loop, work, channel=channel, budget=budget)


class EventStream(AsyncGenerator[Event, None]):
    """Yields the events of a run; behaves like an async generator.

    A generator that a loop leaves by `break` is closed by a task that runs later. This stream cancels its run at once, so
    that the next run knows that it only has to wait.
    """

    def __init__(self, run: Run) -> None:
        """Args: run: begins with the first event that is read."""
        self._run = run

    async def asend(self, value: None) -> Event:
        """Return the next event. Args: value: must be None."""
        del value
        try:
            return await self._run.__anext__()
        except StopAsyncIteration:
            raise
        except BaseException:
            await self._run.aclose()
            raise

    async def athrow(self, typ: Any, val: Any = None, tb: Any = None) -> Event:
        """Close the run and raise the exception."""
        await self._run.aclose()
        return await super().athrow(typ, val, tb)

    async def aclose(self) -> None:
        """Cancel the run and wait for its end. Can be called again."""
        await self._run.aclose()

    def __del__(self) -> None:
        self._run.leave()
