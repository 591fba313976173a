"""`Turns`: the state that the hooks of one run share, including how the run must end.

`ended` notes the reason of an ending when it is decided, because a user's capability may turn our refusal into a normal
result. `PersonMessages` holds what a person sends to a working agent until features have read it; then the model reads it.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field
from typing import Any, Final

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelRetry, UnexpectedModelBehavior, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, RetryFeedbackPart, TextContent, ToolReturnPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.result import FinalResult

from freeact_sub.agents.budgets.booking import Booking
from freeact_sub.agents.budgets.ledger import Account
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.agents.turn.answer_check import AnswerCheck
from freeact_sub.channel import Emitter
from freeact_sub.errors import ApprovalDeniedError, LimitReachedError
from freeact_sub.events import ModelProgress, Notice
from freeact_sub.models.arguments import Schemas
from freeact_sub.models.observers import Meter, watch
from freeact_sub.text import whole_text, wrong_fields

RETRIES: Final = 5
"""Unusable replies in a row that a model may send; the bound on turns applies as well."""
COUNTED_HERE: Final = 1_000_000_000
"""What pydantic-ai is told instead: it counts those of the whole run, not those in a row."""
INNER_TASKS_SECONDS: Final = 0.5
"""Seconds that a cancelled run waits for tasks that pydantic-ai has left."""
FIRST_SECONDS: Final = 2.0
"""Quicker requests show nothing."""
STEP_SECONDS: Final = 1.0


@dataclass(kw_only=True, eq=False)
class PersonMessages:
    """The messages of one run."""

    agent: TreeAgent
    ends: bool = False
    """The run is about to end: no more is taken."""
    _waiting: list[str] = field(default_factory=list)

    def put(self, ctx: RunContext[Any], text: str) -> bool:
        """Take a message. Returns False if nobody will read it."""
        if self.ends:
            return False
        try:
            queued = ctx.enqueue(whole_text(text))
        except UserError:  # the run has made its last request
            return False
        if queued is not None:
            ctx.dequeue(queued)  # the queue is open, and the model reads nothing before features do
            self._waiting.append(text)
        return True

    async def judge(self, ctx: RunContext[Any], *, at_end: bool) -> None:
        """Let features read the messages that have come, and hand on those that the model may read.

        Args:
            ctx: The context of the present step.
            at_end: The run ends unless there is something to read.

        Raises:
            ApprovalDeniedError: A feature ends the run.
        """
        goes_on = False
        while self._waiting:
            text = self._waiting.pop(0)
            try:
                told = await self.agent.run.features.opening(text, is_prompt=False)
            except ApprovalDeniedError as error:
                if error.ends_run:
                    raise
                self.agent.emitter.put(Notice(content=error.reason))
                continue
            ctx.enqueue(whole_text("\n\n".join(filter(None, (text, told)))))
            goes_on = True
        self.ends = at_end and not goes_on


@dataclass(kw_only=True)
class RequestProgress:
    """Emits ModelProgress for the requests of one run, which are made one after another: a slow model must not look dead."""

    emitter: Emitter
    _meter: Meter | None = field(default=None, init=False)
    """Of the latest request whose state has changed."""
    _paused: bool = field(default=False, init=False)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the run inside the block: pydantic-ai opens requests in the run's task, wherever it calls the hooks."""
        with watch(self._note):
            yield

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the progress of the request that is made inside the block, if it takes long."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._meter, self._paused = None, False
        timers: list[asyncio.TimerHandle] = []

        def emit() -> None:
            if self.emitter.channel.is_idle and not self._paused:  # a slow reader has more important events to read
                self.emitter.put(self._event(loop.time() - began))
            timers[:] = [loop.call_later(STEP_SECONDS, emit)]

        timers.append(loop.call_later(FIRST_SECONDS, emit))
        try:
            yield
        finally:
            timers[0].cancel()

    def _note(self, meter: Meter) -> None:
        self._meter, before, self._paused = meter, self._paused, meter.is_paused
        if self._paused or before:
            self.emitter.put(self._event(meter.state.seconds))

    def _event(self, seconds: float) -> ModelProgress:
        if self._meter is None:
            return ModelProgress(seconds=seconds, tokens=0)
        known = self._meter.state
        return ModelProgress(
            seconds=seconds,
            tokens=known.pieces,
            tokens_per_second=known.pieces_per_second,
            paused_seconds=known.paused_seconds,
            paused_because=known.paused_because,
        )


class InnerTasks:
    """The asyncio tasks that pydantic-ai makes for a run, so that a cancelled run leaves none behind.

    pydantic-ai 2.68 loses its inner tasks (of the run, and of a streamed request) if the run is cancelled at the very moment
    of their hand-over; they would wait for ever.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Allow the task to be cancelled while it is inside the block."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("there is no asyncio task")
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    async def end(self) -> None:
        """End the tasks that a cancelled run has left."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=INNER_TASKS_SECONDS)


@dataclass(kw_only=True)
class Turns:
    """The turns of one run."""

    agent: TreeAgent
    answers: AnswerCheck
    account: InitVar[Account | None] = None
    """Pays for the requests. None: the agent's."""
    is_question: InitVar[bool] = False
    """They are a question beside the agent's conversation."""
    booking: Booking = field(init=False)
    progress: RequestProgress = field(init=False)
    person_messages: PersonMessages = field(init=False)
    inner_tasks: InnerTasks = field(default_factory=InnerTasks)
    ended: Exception | None = None
    """Why the run must end. None: undecided."""
    reporting: bool = False
    """The run is making its last request, a report without tools at a limit."""
    kept_answer: FinalResult[Any] | None = None
    """The answer to which the run returns after the model was asked about working children."""
    messages: Sequence[ModelMessage] = ()
    """The live history, valid also after an error or a cancel."""
    context: RunContext[Any] | None = None
    """The context of the latest step; steering goes through it."""
    unusable: int = 0
    """The number of successive replies that the model was asked to correct."""

    def __post_init__(self, account: Account | None, is_question: bool) -> None:
        self.booking = Booking(self.agent, account or self.agent.run.account, of_conversation=not is_question)
        self.person_messages = PersonMessages(agent=self.agent)
        self.progress = RequestProgress(emitter=self.agent.emitter)

    @property
    def expected(self) -> Sequence[ModelMessage]:
        """The live history, and what waits for the next request."""
        waiting = (self.context and self.context.pending_messages) or ()
        return [*self.messages, *(message for pending in waiting for message in pending.messages)]

    @property
    def may_go_on(self) -> bool:
        """Whether the budget may have room for another request."""
        try:
            self.agent.run.account.check_request()
        except LimitReachedError:
            return False
        return True

    @property
    def last_text(self) -> str:
        """The newest text of the model in this run, the result of a run that did not complete."""
        if self.answers.so_far:
            return self.answers.so_far
        run_id = self.context and self.context.run_id
        for message in reversed(self.messages):
            if isinstance(message, ModelResponse) and message.run_id == run_id and message.text:
                return message.text
        return ""

    @contextmanager
    def open(self) -> Iterator[None]:
        """Requests are made inside."""
        with self.progress.watched(), self.booking.open():
            yield

    def step(self, ctx: RunContext[Any]) -> None:
        """Note the latest step."""
        self.context, self.messages = ctx, ctx.messages
        self.person_messages.ends = False

    def send(self, text: str | TextContent, *, of_person: bool) -> bool | None:
        """Send what the model reads before its next request. Returns None before its first request, False after its last.

        Args:
            text: The message.
            of_person: A person sends it, so that features read it first.
        """
        if self.context is None:
            return None
        if of_person and isinstance(text, str):
            return self.person_messages.put(self.context, text)
        try:
            self.context.enqueue(whole_text(text) if isinstance(text, str) else text)
        except UserError:  # the run has made its last request
            return False
        return True

    def count_unusable(self, request: ModelRequestContext) -> None:
        """Count the reply before a request, if the request tells the model what was wrong with it.

        Raises:
            UnexpectedModelBehavior: There were too many in a row.
        """
        problem = _problem_told(request)
        self.unusable = 0 if problem is None else self.unusable + 1
        if self.unusable > RETRIES:
            raise UnexpectedModelBehavior(f"Exceeded maximum output retries ({RETRIES})") from ModelRetry(problem or "")

    def check(self, response: ModelResponse, tools: Schemas | None = None) -> None:
        """Check whether a response is a complete answer. Args: tools: see `AnswerCheck.check`.

        Raises:
            ModelRetry: The model must be asked once more.
            FreeactError: The run must end with this response, which has no text to return.
        """
        if self.reporting:
            self.answers.check_report(response)
        elif self.ended is None:
            self.ended = self.answers.check(response, tools, self.messages)
            if self.ended is not None and (response.tool_calls or not (self.answers.texts and response.text)):
                raise self.ended  # otherwise the run ends by itself, with the text

    def end(self, error: Exception) -> None:
        """Decide that the run must end; the first reason counts."""
        self.ended = self.ended or error

    def whole_answer(self, output: Any) -> Any:
        """Return the complete answer of a run that has ended.

        Raises:
            FreeactError: The run had to end without one.
        """
        if self.ended is not None:
            raise self.ended
        return self.answers.whole(output)


def _problem_told(request: ModelRequestContext) -> str | None:
    """The text of a request that tells the model about an unusable reply. None: it has no such text."""
    outputs = {tool.name for tool in request.model_request_parameters.output_tools}
    for part in request.messages[-1].parts if request.messages else ():
        is_retried = isinstance(part, ToolReturnPart) and part.outcome == "retried" and part.tool_name in outputs
        if isinstance(part, RetryFeedbackPart) or is_retried:
            told: Any = getattr(part, "content", "")
            return wrong_fields(told) if isinstance(told, list) else str(told)
    return None
