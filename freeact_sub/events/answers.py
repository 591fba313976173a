"""The answers to approval requests (`Decision`) and questions (`Answer`), and their way from a front end to who waits."""

from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeAlias

Remember: TypeAlias = Literal["session", "project"]
"""For how long an answer holds beyond its call."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """An answer to an approval request."""

    allowed: bool
    reason: str = ""
    """The reason of a denial, for the model."""
    remember: Remember | None = None
    """Allow later calls like it too: in this session, or always in this project. None: this call alone."""
    pattern: str | None = None
    """The pattern of calls like it. None: the request's suggestion."""
    code: str | None = None
    """Code to run instead of the cell that is asked about. None: as it is."""
    nobody: bool = field(default=False, compare=False)
    """True: nobody answered, and this decision counts instead."""


NOBODY: Final = Decision(allowed=False, nobody=True)
"""The answer that counts if nobody gives one."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to a question."""

    text: str | None
    """None: there is none; whoever asks is told so."""
    reason: str = ""
    """Why there is none."""
    nobody: bool = field(default=False, compare=False)
    """True: nobody was there to answer."""


ABSENT: Final = Answer(text=None, reason="nobody is there to answer", nobody=True)
"""The end of a question that nobody is asked."""


class AnswerReceiver(Protocol):
    """Takes the answer to a question: the gate for an approval request, `Questions` for any other."""

    def answer(self, request_id: str, answer: Any) -> bool:
        """Takes an answer, from any thread. Returns False if the question is already answered or withdrawn."""
        ...

    def shown(self, request_id: str) -> None:
        """A front end has put the question before a person."""
        ...


ASKED: Final[dict[str, AnswerReceiver]] = {}
"""Receivers of open questions by request id; an event is a value, and holds only the id."""


class _Asked:
    request_id: str

    def shown(self) -> None:
        """Notes that a front end shows the question, so that the log does not report it as unanswered."""
        if receiver := ASKED.get(self.request_id):
            receiver.shown(self.request_id)

    def _answer(self, answer: Any) -> bool:
        receiver = ASKED.get(self.request_id)
        return receiver is not None and receiver.answer(self.request_id, answer)


class AnswerableByText(_Asked):
    """The answers to a question."""

    def answer(self, text: str) -> bool:
        """Answers it. Returns False if it is already answered or withdrawn."""
        return self._answer(Answer(text=text))

    def decline(self, reason: str = "") -> bool:
        """Leaves it without an answer; whoever asks gets the reason. Returns False if it is answered or withdrawn."""
        return self._answer(Answer(text=None, reason=reason))

    def skip(self) -> bool:
        """Ends it, because nobody is there to answer. Returns False if it is already answered or withdrawn."""
        return self._answer(ABSENT)


class Answerable(_Asked):
    """The answers to an approval request."""

    def approve(self, *, remember: Remember | None = None, pattern: str | None = None, code: str | None = None) -> bool:
        """Lets the call run. Returns False if it was answered already.

        A rule for the project is written once the answer counts. If it cannot be, a `Notice` says so, and it holds for this
        session.

        Args:
            remember: Allow calls like it too, in this session or in this project. None: this call alone.
            pattern: The pattern of calls like it, such as `shell:git push *`. None: the suggestion.
            code: What runs instead of a cell's code; the model reads that it was changed, and into what. None: the cell.

        Raises:
            ValueError: The pattern is invalid, or there is code although the call is not a cell; the question stays open.
        """
        return self.decide(Decision(allowed=True, remember=remember, pattern=pattern, code=code))

    def deny(self, reason: str = "") -> bool:
        """Denies the call; the model reads the reason and continues. Returns False if it was answered already."""
        return self.decide(Decision(allowed=False, reason=reason))

    def decide(self, decision: Decision) -> bool:
        """Gives any answer. Returns False if the request is already answered or withdrawn.

        Raises:
            ValueError: The pattern is invalid, or there is code although the call is not a cell; the question stays open.
        """
        return self._answer(decision)
