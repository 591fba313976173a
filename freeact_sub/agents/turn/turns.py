"""`Turns`: what the hooks of one run share, and how the run must end.

The reason of an ending is noted here (`ended`) when it is decided, because a user's capability may turn our refusal into a
normal result.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage
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
    """Why the run must end. None: nothing is decided."""
    reporting: bool = False
    """At its limit the run makes one last request, without tools, for a report."""
    kept_answer: FinalResult[Any] | None = None
    """With which the run would have ended, while the model is asked about children that are still at work."""
    messages: Sequence[ModelMessage] = ()
    """The history, live: also after an error and a cancel."""
    context: RunContext[Any] | None = None
    """Of the latest step; steering goes through it."""

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

    @contextmanager
    def open(self) -> Iterator[None]:
        """Requests are made inside."""
        with self.progress.watched(), self.booking.open():
            yield

    def step(self, ctx: RunContext[Any]) -> None:
        """Note where the run is."""
        self.context, self.messages = ctx, ctx.messages

    def end(self, error: Exception) -> None:
        """Decide that the run must end; the first reason counts."""
        self.ended = self.ended or error

    def whole_answer(self, output: Any) -> Any:
        """The answer of a run that has come to its end, with all its parts.

        Raises:
            FreeactError: It is none: the run had to end.
        """
        if self.ended is not None:
            raise self.ended
        return self.answers.whole(output)
