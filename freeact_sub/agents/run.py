"""Runs of the root: `Run`, in a program's hands; `Course`, its course from beginning to end; `EventStream`, its events.

What drives a run refers to its course, and not to the `Run`, so that a program that drops its `Run` has dropped it.
"""

import asyncio
import contextlib
import warnings
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Never, Self, TypeAlias, get_args

from freeact_sub import events as ev
from freeact_sub.agents.children import Work
from freeact_sub.agents.life import PresentRun
from freeact_sub.agents.loop import AgentLoop
from freeact_sub.agents.prompt import texts_of_people
from freeact_sub.agents.results import ACTIVE, RESULT_FIELDS, AgentStatus, AnswerT, PictureUse, RunResult
from freeact_sub.channel import EventChannel, check_event_loop, running_loop
from freeact_sub.config.budget import Budget, Usage
from freeact_sub.errors import FreeactError, InvalidRequestError
from freeact_sub.events.answers import ASKED
from freeact_sub.system.closing import carry_out
from freeact_sub.text import one_line

if TYPE_CHECKING:
    from freeact_sub.agents.root import Root

NEVER_BEGAN: Final[RunResult[Any]] = RunResult(value="", status="cancelled", error="the run was closed before it began")
END_SECONDS: Final = 30.0
"""Seconds to wait for the end of a cancelled run, whose own bounds are shorter."""

BegunBy: TypeAlias = Literal["nobody", "reader", "block", "start"]
"""The owner of a run: its reader, an `async with` block, or the agent, where `start` has begun it."""
READ_TWICE: Final = (
    "another task reads this run, and each event goes to one reader: read it in one task, and await `result()` there, or "
    "after that task has ended"
)
NOT_USED: Final = (
    "a run of {prompt!r} was made and never used, so nothing was done: await it for its result, or read its events with "
    "`async for`"
)
ASYNC_FOR: Final = (
    "events come over time: write `async for event in agent.{call}(...)`; `await agent.run(...)` gives the result"
)
NO_RESULT_YET: Final = "a run has no {name!r}, its result has: `(await agent.run(...)).{name}`"
STREAM_ONLY: Final = "a stream has events only: `await agent.run(...)` gives the result"


class Course:
    """One run of the root."""

    def __init__(self, root: "Root", loop: AgentLoop, work: Work, *, channel: EventChannel, budget: Budget) -> None:
        """Make the course; start nothing.

        Args:
            root: The root.
            loop: The root's loop.
            work: The work to do.
            channel: The channel of its events to the reader.
            budget: The bounds of its spending.
        """
        self._root, self._home, self.tree = root, root.home, root.tree
        self.loop, self.work, self.channel = loop, work, channel
        self._budget = budget
        self.pictures: PictureUse = "saved"
        self.present: PresentRun | None = None
        """The state. None: the run has not begun, or waits for the one before."""
        self.task: asyncio.Task[RunResult[Any]] | None = None
        """The task that drives the run. None: it has not begun."""
        self._before: Course | None = None
        """The run that must end first."""
        self.begun_by: BegunBy = "nobody"
        self.is_used = False
        """Whether a program has used the run."""
        self.run: weakref.ref[Run[Any]] | None = None
        """The `Run` in a program's hands."""
        self._has_reader = True
        """Whether somebody reads the events and can answer questions."""
        self.is_read = False
        """Whether somebody waits for the next event."""
        self.is_left = False
        """Whether a loop over the events was left, and nobody has read on."""
        self.closed = False
        """Whether the run was closed, or cancelled before it began."""

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended, or never begins."""
        return self.task.done() if self.task is not None else self.closed

    @property
    def is_ending(self) -> bool:
        """Whether the run ends soon without help, so that the next one can wait for it."""
        children = self.loop.children
        if self.closed or (self.present is not None and (self.present.is_cancelled or not children.is_open)):
            return True
        return not self._has_reader and self.work.program == children.until_idle and children.are_ending

    @property
    def gives_way(self) -> bool:
        """Whether the run is cancelled for the next one: its reader has left it."""
        return self.begun_by == "reader" and self.is_left and not self.is_read

    @property
    def ends_first(self) -> "Course | None":
        """The run that must end before a child's can begin. None: this run takes the child, or refuses it."""
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
        """Cancel the run. Returns False if it has ended."""
        self.is_used = True
        if self.present is not None:
            return self.present.cancel()
        if self.closed:
            return False
        self.closed = True
        self.channel.finish()
        return True

    async def end(self) -> None:
        """Cancel the run, and read its events to the end, for a reader that was cancelled."""
        self.cancel()
        await carry_out(self._read_to_the_end(), timeout_seconds=END_SECONDS)

    async def aclose(self) -> None:
        """Cancel the run without a reader, and wait until it has ended."""
        self.is_used = True
        check_event_loop(self._home)
        self._leave()
        if self.task is not None:
            await carry_out(self.ended(), timeout_seconds=END_SECONDS)

    def leave(self) -> None:
        """Cancel the run without a reader and without waiting for the end, from any thread."""
        self.closed = True
        if not self.has_ended and self._home is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the run with it
                self._home.call_soon_threadsafe(self._leave)

    async def ended(self) -> None:
        """Wait until the run has ended."""
        if self.task is not None:
            await asyncio.wait({self.task})

    async def outcome(self) -> RunResult[Any]:
        """Wait until the run has ended, and return its result."""
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


class Run(Generic[AnswerT]):
    """A run of the root agent and all its descendants.

    `await` it for the result, as by `result()`; iterate over it for the events; or do both in turn. As a context manager, it
    cancels what is still running on exit. It starts on the first of these uses. `Agent.run` and similar methods make it.

    Whoever begins a run ends it:

    - `await run`, `result()` or a loop over the events: the run belongs to its reader. It is cancelled when the reader is,
      by `task.cancel()`, a timeout or a task group, and when nothing refers to the run any more, as after `break`, or an
      exception, in `async for event in agent.run(prompt)`. A loop that was left while something refers to the run may be
      followed by another one; until then the run gives way to the next run of the agent.
    - `async with`: the run is cancelled when the block is left.
    - `start()`: the run belongs to the agent. It goes on, read or not, until it ends, is cancelled, or the agent is closed.

    A reader that is cancelled while it waits for an event, and a block that is left, wait for the end. Otherwise the agent's
    next call waits for it. The end of a run cancels no task of the program.
    """

    def __init__(self, course: Course) -> None:
        """Make the handle; not called by programs. Args: course: the run's."""
        self._course = course
        self._unsent: list[str] = []
        course.run = weakref.ref(self)

    def __del__(self) -> None:
        course = self._course
        if not course.is_used:
            warnings.warn(
                NOT_USED.format(prompt=one_line(course.work.prompt, 40)), ResourceWarning, stacklevel=2, source=self
            )
        elif course.begun_by != "start" and not course.has_ended:
            course.leave()

    @property
    def status(self) -> AgentStatus:
        """The root agent's activity, or its outcome."""
        return self._course.present.status if self._course.present is not None else "idle"

    @property
    def files_written(self) -> tuple[str, ...]:
        """The files in the workspace that the root has written so far, relative to it."""
        return self._course.present.so_far.files_written if self._course.present is not None else ()

    @property
    def usage(self) -> Usage:
        """The spending of the root and all its descendants so far."""
        return self._course.present.account.usage if self._course.present is not None else Usage()

    @property
    def prompt(self) -> str:
        """The text of the task."""
        return self._course.work.prompt

    def add_note(self, text: str) -> None:
        """Add a text that the model reads after its prompt; a front end does this before the run starts."""
        self._course.work = replace(self._course.work, note=text)

    @property
    def pictures(self) -> PictureUse:
        """The form in which displayed pictures reach the user; a front end sets it before the run starts."""
        return self._course.pictures

    @pictures.setter
    def pictures(self, pictures: PictureUse) -> None:
        if pictures not in get_args(PictureUse):
            raise InvalidRequestError(f"run.pictures is one of {', '.join(get_args(PictureUse))}, not {pictures!r:.60}")
        self._course.pictures = pictures
        if self._course.present is not None:
            self._course.tree.shared.stream.pictures = pictures

    @property
    def is_ending(self) -> bool:
        """Whether the run ends soon without help, so that the next one can wait for it."""
        return self._course.is_ending

    def cancel(self, agent_id: str | None = None) -> bool:
        """Cancel the run, or one child with its descendants. Returns at once; the endings arrive as events.

        Returns:
            False if no such agent is working.
        """
        if agent_id is not None and agent_id != self._course.loop.agent.agent_id:
            agent = self._course.tree.agents.get(agent_id)
            return agent is not None and agent.run.cancel()
        return self._course.cancel()

    def send(self, text: str, agent_id: str | None = None) -> bool:
        """Steer an agent: its model reads the text before its next request.

        Args:
            text: The message.
            agent_id: A working child. None: the root agent, which receives it even if it has not begun yet.

        Returns:
            False if nobody will read it: no such child is working, or it has not made its first request yet; or the root has
            made its last request, has ended, or is a program.
        """
        if not isinstance(text, str):
            raise InvalidRequestError(f"run.send: a message is a text, not {type(text).__name__}")
        if agent_id is not None and agent_id != self._course.loop.agent.agent_id:
            loop = self._course.tree.at_work.get(agent_id)
            return loop is not None and bool(loop.send(text, of_person=True))
        course = self._course
        if course.closed or course.work.program is not None or (course.present is not None and not course.present.is_live):
            return False
        self._unsent.append(text)
        return self._flush()

    def has_read(self, text: str, agent_id: str) -> bool:
        """Return whether an agent's model was given a text sent to it. Once the agent has ended, this does not change.

        Args:
            text: The message.
            agent_id: The agent, which may have ended.
        """
        agent = self._course.tree.agents.get(agent_id)
        history = () if agent is None else agent.run.record.history
        return any(read.startswith(text.strip()) for read in texts_of_people(history))

    @property
    def open_requests(self) -> tuple[ev.ApprovalRequest | ev.QuestionRequest, ...]:
        """The open approval requests and questions, oldest first."""
        found: list[ev.ApprovalRequest | ev.QuestionRequest] = [*self._course.tree.shared.gate.open_requests]
        found += self._course.tree.shared.questions.open_requests
        return tuple(sorted(found, key=lambda request: request.seq))

    def answer(self, request_id: str, answer: ev.Decision | ev.Answer | str) -> bool:
        """Answer an approval request (by a `Decision`) or a question (by a text, or by values) by its id, from any thread.

        A `Notice` reports a rule that cannot be written into the project's file.

        Returns:
            False if no such request is open: it is unknown, already answered or withdrawn.

        Raises:
            ValueError: The decision's pattern is invalid, or it is no answer to the request, which stays open.
        """
        shared, asker = self._course.tree.shared, ASKED.get(request_id)
        gate, questions = shared.gate, shared.questions
        if isinstance(answer, ev.Decision):
            if asker is questions:
                raise ValueError(f"{request_id} is a question: answer it by a text, or by an Answer with values")
            return gate.answer(request_id, answer)
        if asker is gate or not isinstance(answer, str | ev.Answer):
            raise ValueError(f"an approval request is answered by a Decision, a question by a text, not by {answer!r:.60}")
        return questions.answer(request_id, ev.Answer(text=answer) if isinstance(answer, str) else answer)

    def withdraw(self, request_id: str, reason: str = "withdrawn") -> bool:
        """Close an open request that nobody will answer; the asker is told the reason, and the run goes on."""
        denied, absent = ev.Decision(allowed=False, reason=reason, nobody=True), ev.Answer(reason=reason, nobody=True)
        shared = self._course.tree.shared
        return shared.gate.answer(request_id, denied) or shared.questions.answer(request_id, absent)

    def __await__(self) -> Generator[Any, None, RunResult[AnswerT]]:
        return self.result().__await__()

    if not TYPE_CHECKING:  # mistakes that a type checker finds by itself

        def __iter__(self) -> Never:
            raise TypeError(ASYNC_FOR.format(call="run"))

        def __getattr__(self, name: str) -> Never:
            if name in RESULT_FIELDS:
                raise AttributeError(NO_RESULT_YET.format(name=name), name=name, obj=self)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def result(self) -> Coroutine[Any, Any, RunResult[AnswerT]]:
        """Read to the end and return the result. Approval requests get the answer for unattended runs."""
        self._course.is_used = True
        return self._result()

    async def aclose(self) -> None:
        """Cancel what is still running and wait until it has ended. Can be called again.

        Raises:
            FreeactError: The agent was opened in another event loop.
        """
        await self._course.aclose()

    async def ended(self) -> None:
        """Wait until the run has ended."""
        await self._course.ended()

    def start(self) -> None:
        """Start the run for the agent, unless it has started. It waits for the end of a run that is ending.

        Raises:
            AgentBusyError: Another run of the agent is live.
            FreeactError: The agent was opened in another event loop, or is closed.
        """
        self._course.start("start")

    def __aiter__(self) -> AsyncIterator[ev.Event]:
        return self.loop_over(self)

    def loop_over(self, events: AsyncIterator[ev.Event]) -> AsyncIterator[ev.Event]:
        """Return an iterator that notes when a loop over the events is left. Args: events: the run, or its stream."""
        self._course.is_used = True
        return EventLoop(events, self._course)

    async def __anext__(self) -> ev.Event:
        self._course.start("reader")
        if self._course.is_read:
            raise FreeactError(READ_TWICE)
        self._course.is_read, self._course.is_left = True, False
        try:
            event = await self._course.channel.receive()
        except asyncio.CancelledError:
            if self._course.begun_by == "reader":
                await self._course.end()
            raise
        finally:
            self._course.is_read = False
        self._flush()
        if event is None:
            await self._outcome()
            raise StopAsyncIteration
        return event

    async def __aenter__(self) -> Self:
        self._course.start("block")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _result(self) -> RunResult[AnswerT]:
        async for event in self:
            answer_for_nobody(event)
        return await self._outcome()

    async def _outcome(self) -> RunResult[AnswerT]:
        return await self._course.outcome()

    def _flush(self) -> bool:
        """Deliver the messages; return False if nobody will read them."""
        if self._course.present is None:
            return True
        taken: bool | None = True
        while self._unsent and (taken := self._course.loop.send(self._unsent[0], of_person=True)):
            self._unsent.pop(0)
        if taken is False and self.status in ACTIVE:  # otherwise it has not begun
            self._unsent.clear()
            return False
        return True


class EventLoop(AsyncIterator[ev.Event]):
    """One loop over the events of a run."""

    def __init__(self, events: AsyncIterator[ev.Event], course: Course) -> None:
        """Make the loop. Args: events: the run, or its stream."""
        self._events, self._course = events, course
        self._task = None if running_loop() is None else asyncio.current_task()
        self._cancels = 0 if self._task is None else self._task.cancelling()

    async def __anext__(self) -> ev.Event:
        return await self._events.__anext__()

    def __del__(self) -> None:
        self._course.is_left = True
        if self._course.begun_by == "reader" and self._task is not None and self._task.cancelling() > self._cancels:
            self._course.leave()  # the reader was cancelled between two events


class EventStream(AsyncGenerator[ev.Event, None]):
    """An async generator of a run's events.

    A generator that a loop leaves by `break` is closed by a task that runs later. A dropped stream
    drops its run, which is cancelled at once, so that the next run knows that it only has to wait.
    """

    def __init__(self, run: Run) -> None:
        """Make the stream. Args: run: begins when its first event is read."""
        self._run = run

    def __aiter__(self) -> AsyncIterator[ev.Event]:
        return self._run.loop_over(self)

    async def asend(self, value: None) -> ev.Event:
        """Return the next event. Args: value: must be None."""
        del value
        try:
            return await self._run.__anext__()
        except StopAsyncIteration:
            raise
        except BaseException:
            await self._run.aclose()
            raise

    async def athrow(self, typ: Any, val: Any = None, tb: Any = None) -> ev.Event:
        """Close the run and raise the exception."""
        await self._run.aclose()
        return await super().athrow(typ, val, tb)

    async def aclose(self) -> None:
        """Cancel the run and wait for its end. Can be called again."""
        await self._run.aclose()

    if not TYPE_CHECKING:

        def __iter__(self) -> Never:
            raise TypeError(ASYNC_FOR.format(call="stream"))

        def __await__(self) -> Never:
            raise TypeError(STREAM_ONLY)
