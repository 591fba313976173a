"""Open questions to a person: `OpenQuestion`, with the approval request (`OpenApproval`).

The first answer from any thread counts.

`OpenQuestions`: the questions besides approvals, for all agents of a root: of models, of code, of MCP servers. A question is
a `QuestionRequest` on the root's stream. Like an approval request it is answered by its id, or left without an answer. Rules
and modes have no say in it: an answer allows nothing. Where nobody is to be asked, a question ends at once.
"""

import asyncio
import logging
import secrets
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from freeact_sub import events as ev
from freeact_sub.calls import Call, CodeAction
from freeact_sub.channel import Emitter, running_loop
from freeact_sub.errors import NoAnswerError
from freeact_sub.events.answers import ABSENT, ASKED, CLOSED, Effects
from freeact_sub.events.forms import PersonQuestion, answer_to
from freeact_sub.text import one_line

UNSHOWN_SECONDS: Final = 30.0
"""Seconds after which the log warns about a question that no front end has shown."""
TOO_LATE: Final = "nobody has answered within {seconds:g} s (setting `approval_timeout_seconds`)"
UNSHOWN: Final = (
    "%s waits for an answer since %g s: %s; whoever reads the events must call event.approve(), event.deny() or "
    "event.answer(), or run.answer() (the setting `approval_timeout_seconds` bounds the wait)"
)
DECLINED: Final = "the person does not answer"
NOT_TRIED: Final = Effects(status="refused", reason="only cells of an agent's own kernel are tried")


@dataclass(frozen=True)
class Tried:
    """A trial that has ended."""

    effects: Effects
    outdated_by: Callable[[], Coroutine[None, None, tuple[str, ...]]] | None = None
    """A function that finds the workspace paths changed since the trial began. None: there was no trial."""
    is_outdated: Callable[[], bool] = lambda: False
    """Whether the kernel has run a cell since."""

    @property
    def holds(self) -> bool:
        """Whether the kernel is still as the trial found it. A call that was not tried is tried again."""
        return self.effects.status != "refused" and not self.is_outdated()


class CallTrial(Protocol):
    """A trial of one call."""

    def __call__(self, call: Call) -> Coroutine[None, None, Tried]:
        """Make a call where it changes nothing. Raises only when it is cancelled."""
        ...

    def decided(self, decision: ev.Decision) -> None:
        """Take the decision on the call. Called on the event loop, before the call is made."""
        ...


TryOut: TypeAlias = CallTrial | Effects
"""A trial, or the reason why there is none."""
A = TypeVar("A")

logger = logging.getLogger(__name__)


class OpenQuestion(Generic[A]):
    """A question that waits for an answer or a decision, and announces it at once."""

    def __init__(self, announce: Callable[[A], None]) -> None:
        """Args: announce: called once with the outcome, on the event loop, before the waiting caller continues."""
        self.outcome: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._announce = announce
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._decided = False
        self.shown = False
        """Whether a front end has put it before a person."""
        self.may_be_passed_over = False
        """Whether it is closed for readers of events who do not know it, and for those who answer something else."""

    @property
    def is_decided(self) -> bool:
        """Whether the question is answered or withdrawn."""
        return self._decided

    def decide(self, answer: A) -> bool:
        """Close the question with an answer or a decision; return False if it was already closed."""
        with self._lock:
            if self._decided or self._loop.is_closed():
                return False
            self._decided = True
        if running_loop() is self._loop:
            self._settle(answer)
        else:
            self._loop.call_soon_threadsafe(self._settle, answer)
        return True

    @contextmanager
    def timed(
        self,
        agent_id: str,
        words: str,
        *,
        unshown_seconds: float,
        timeout_seconds: float | None,
        too_late: Callable[[str], A],
    ) -> Iterator[None]:
        """Log the question, in these words, if no front end shows it in time; answer it when the time is up.

        Args:
            agent_id: The agent that asks.
            words: The question, for the log.
            unshown_seconds: The time to show it.
            timeout_seconds: The time to answer it.
            too_late: Makes the answer from a reason.
        """
        loop = asyncio.get_running_loop()

        def warn() -> None:
            if not self.shown:
                logger.warning(UNSHOWN, agent_id, unshown_seconds, one_line(words, 200))

        timers = [loop.call_later(unshown_seconds, warn)]
        if timeout_seconds is not None:
            answer = too_late(TOO_LATE.format(seconds=timeout_seconds))
            timers.append(loop.call_later(timeout_seconds, self.decide, answer))
        try:
            yield
        finally:
            for timer in timers:
                timer.cancel()

    def _settle(self, answer: A) -> None:
        self._announce(answer)
        if not self.outcome.done():
            self.outcome.set_result(answer)


class OpenApproval(OpenQuestion[ev.Decision]):
    """A call that waits for a decision."""

    def __init__(self, call: Call, announce: Callable[[ev.Decision], None], try_out: TryOut | None = None) -> None:
        """Args: announce: see `OpenQuestion`. try_out: tries the call. None: only cells are tried."""
        super().__init__(announce)
        self.call = call
        self._try_out = NOT_TRIED if try_out is None else try_out
        self._trial: asyncio.Task[Tried] | None = None
        self._tried_code: str | None = None
        self._looking = asyncio.Lock()

    @property
    def effects(self) -> Effects | None:
        """The effects of the call in its last trial, or why it is not tried."""
        if isinstance(self._try_out, Effects):
            return self._try_out
        trial = self._trial
        return trial.result().effects if trial is not None and trial.done() and not trial.cancelled() else None

    async def effects_ready(self, code: str | None = None) -> Effects:
        """Try the call, and wait for the effects or for the decision. From any event loop.

        An earlier result holds while the workspace is as that trial found it, and the kernel has run no cell since. A call
        that could not be tried is tried again.

        Args:
            code: Try this instead of a cell's own code.
        """
        if running_loop() is not self._loop:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.effects_ready(code), self._loop))
        if self._decided:
            return self.effects or CLOSED
        if isinstance(self._try_out, Effects):
            return self._try_out
        async with self._looking:
            if self._trial is None or code != self._tried_code:
                self._begin(self._try_out, code, ())
            elif self.effects is not None:
                changed = await self._changed_since()
                if changed or not self._trial.result().holds:
                    self._begin(self._try_out, code, changed)
        while (trial := self._trial) is not None and not self._decided:
            either: set[asyncio.Future[Any]] = {trial, self.outcome}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if trial is self._trial and not self._decided and not trial.cancelled() and trial.result().is_outdated():
                self._begin(self._try_out, code, ())  # the kernel has run a cell meanwhile
            elif trial is self._trial or self._decided:
                return trial.result().effects if trial.done() and not trial.cancelled() else CLOSED
        return self.effects or CLOSED

    def _begin(self, try_out: CallTrial, code: str | None, changed: tuple[str, ...]) -> None:
        self.end_trial()
        call = replace(self.call, code=code) if code is not None and isinstance(self.call, CodeAction) else self.call
        self._trial = asyncio.create_task(_tried(try_out(call), changed), name="trial of a call")
        self._tried_code = code

    async def _changed_since(self) -> tuple[str, ...]:
        assert self._trial is not None
        outdated_by = self._trial.result().outdated_by
        return () if outdated_by is None else await outdated_by()

    def _settle(self, decision: ev.Decision) -> None:
        if not isinstance(self._try_out, Effects):
            self._try_out.decided(decision)
        super()._settle(decision)

    def end_trial(self) -> None:
        """End the trial: nobody needs its result any more."""
        if self._trial is not None:
            self._trial.cancel()


async def _tried(trying: Coroutine[None, None, Tried], changed: tuple[str, ...]) -> Tried:
    tried = await trying
    return replace(tried, effects=replace(tried.effects, outdated_by=changed))


class OpenQuestions:
    """The open questions of a root, and their answers."""

    def __init__(
        self, *, headless: bool = False, timeout_seconds: float | None = None, unshown_seconds: float = UNSHOWN_SECONDS
    ) -> None:
        """Args: headless: nobody is asked. timeout_seconds, unshown_seconds: see `Gate`."""
        self._headless = headless
        self._timeout_seconds = timeout_seconds
        self._unshown_seconds = unshown_seconds
        self._open: dict[str, tuple[OpenQuestion[ev.Answer], ev.QuestionRequest]] = {}

    @property
    def open_requests(self) -> tuple[ev.QuestionRequest, ...]:
        """The open questions, oldest first."""
        return tuple(request for question, request in tuple(self._open.values()) if not question.is_decided)

    async def ask(
        self,
        asked: PersonQuestion,
        emitter: Emitter,
        *,
        path: tuple[str, ...],
        tool_call_id: str | None,
        ended: Callable[[], str],
        may_be_passed_over: bool = False,
    ) -> ev.Answer:
        """Ask a person, and return the answer; its text is None if there is none.

        Args:
            asked: The question.
            emitter: Emits events for the agent.
            path: The agents from the root to this one, as people should see them.
            tool_call_id: The model's tool call that the question belongs to.
            ended: Returns the reason if nobody has answered when the caller is cancelled.
            may_be_passed_over: Nobody is there if the reader of the stream comes for the next event, and has neither shown
                nor answered the question: a program that knows of no questions does not wait for ever.
        """
        request_id = f"question-{secrets.token_hex(4)}"

        def announce(answer: ev.Answer) -> None:
            """Emit the answer before the caller continues."""
            event = ev.QuestionAnswered(
                request_id=request_id,
                prompt=asked.prompt,
                answered=answer.text is not None,
                text="" if asked.secret else answer.text or "",
                values=None if asked.secret or answer.values is None else dict(answer.values),
                reason=answer.reason,
            )
            emitter.put(event, tool_call_id=tool_call_id)

        question = OpenQuestion(announce)
        question.may_be_passed_over = may_be_passed_over
        request = ev.QuestionRequest(request_id=request_id, path=path, headless=self._headless, **vars(asked))
        self._open[request_id] = question, request
        ASKED[request_id] = self
        timed = question.timed(
            emitter.agent_id,
            asked.prompt,
            unshown_seconds=self._unshown_seconds,
            timeout_seconds=self._timeout_seconds,
            too_late=lambda reason: ev.Answer(reason=reason, nobody=True),
        )
        try:
            with timed:
                sent = await emitter.emit(request, tool_call_id=tool_call_id)
                if isinstance(sent, ev.QuestionRequest):
                    self._open[request_id] = question, sent
                if self._headless or emitter.channel.closed:
                    question.decide(ABSENT)
                if may_be_passed_over:
                    emitter.channel.when_read(lambda: question.shown or question.decide(ABSENT))
                return await question.outcome
        finally:
            del self._open[request_id], ASKED[request_id]
            question.decide(ev.Answer(reason=ended(), nobody=True))  # unless it was answered

    def answer(self, request_id: str, answer: ev.Answer) -> bool:
        """Answer a question, from any thread. Return False if no open question has this id.

        Raises:
            ValueError: It is no answer to the question; the question stays open. One that may be passed over is closed.
        """
        if (found := self._open.get(request_id)) is None:
            return False
        question, request = found
        try:
            return question.decide(answer_to(request.fields, answer))
        except ValueError as error:
            if not question.may_be_passed_over:
                raise
            return question.decide(ev.Answer(reason=f"the answer is none: {error}", nobody=True))

    def shown(self, request_id: str) -> None:
        """Note that a front end shows the question."""
        if found := self._open.get(request_id):
            found[0].shown = True

    def abandon(self) -> None:
        """End all open questions: the reader is gone."""
        for question, _ in tuple(self._open.values()):
            question.decide(ABSENT)


def required(answer: ev.Answer) -> ev.Answer:
    """Return the answer, if there is one.

    Raises:
        NoAnswerError: There is none; the message is the reason.
    """
    if answer.text is None:
        raise NoAnswerError(": ".join(filter(None, ["" if answer.nobody else DECLINED, answer.reason])))
    return answer
