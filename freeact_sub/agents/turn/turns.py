"""`Turns`: the state that the hooks of one run share, including how the run must end.

`ended` notes the reason of an ending when it is decided, because a user's capability may turn our refusal into a normal
result.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.result import FinalResult

from freeact_sub.agents.budgets.booking import Booking
from freeact_sub.agents.budgets.ledger import Account
from freeact_sub.agents.tree import AgentNode
from freeact_sub.agents.turn.answer_check import AnswerCheck
from freeact_sub.agents.turn.inner_tasks import InnerTasks
from freeact_sub.agents.turn.progress import RequestProgress
from freeact_sub.errors import LimitReachedError


@dataclass(kw_only=True)
class Turns:
    """The turns of one run."""

    node: AgentNode
    answers: AnswerCheck
    account: InitVar[Account | None] = None
    """Pays for the requests. None: the agent's."""
    only_pauses: InitVar[bool] = False
    """See `RequestProgress`."""
    booking: Booking = field(init=False)
    progress: RequestProgress = field(init=False)
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
    _run_ids: set[str | None] = field(default_factory=set, init=False)
    """pydantic-ai's, and that of `PlainTurns`."""
    steering: list[str] = field(default_factory=list)
    """Messages for the model that pydantic-ai does not hold; they come before its next request."""

    def __post_init__(self, account: Account | None, only_pauses: bool) -> None:
        self.booking = Booking(self.node, account or self.node.run.account)
        self.progress = RequestProgress(emitter=self.node.emitter, only_pauses=only_pauses)

    @property
    def may_go_on(self) -> bool:
        """Whether the budget may have room for another request."""
        try:
            self.node.run.account.check_request()
        except LimitReachedError:
            return False
        return True

    @property
    def last_text(self) -> str:
        """The newest text of the model in this run: what a run that did not complete has to show."""
        if self.answers.so_far:
            return self.answers.so_far
        for message in reversed(self.messages):
            if isinstance(message, ModelResponse) and message.run_id in self._run_ids and message.text:
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
        self._run_ids.add(ctx.run_id)

    def taken_steering(self) -> list[str]:
        """Take what the model is to read next."""
        taken, self.steering = self.steering, []
        return taken

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
