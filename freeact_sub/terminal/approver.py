"""Approvers decide approval requests where there is no input line: without a person, or by asking one line by line."""

from contextlib import suppress
from typing import Final, Self, TextIO

from freeact_sub.events import ApprovalRequest, Event, QuestionRequest
from freeact_sub.show.questions import Questions, leave_unasked
from freeact_sub.show.typed_decisions import always_means, hint
from freeact_sub.show.wording import asked_title, own_words, who_asks
from freeact_sub.terminal.input.typed_lines import TypedLines

GONE: Final = "nobody can be asked: standard input was closed"


NOTHING: Final = (None, 0, 0)
"""The place of `Questions` where none is open."""
CLOSED: Final = ("", 0, 0)
"""The same after an answer, when there is nothing to say about the question."""


class Approver:
    """Reads every event of a run and decides the approval requests among them. This one decides as where nobody is there."""

    def observe(self, event: Event) -> None:
        """Handles an event without waiting."""
        if isinstance(event, ApprovalRequest | QuestionRequest):
            leave_unasked(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Asks nothing more."""


class LineApprover(Approver):
    """Asks on a plain terminal: it prints a question and reads a line."""

    def __init__(self, terminal: TextIO) -> None:
        """Args: terminal: where questions are printed; answers are read from standard input."""
        self._terminal = terminal
        self._typed = TypedLines()
        self._questions = Questions()
        self._asked: tuple[str | None, int, int] = NOTHING
        self._gone = False

    def observe(self, event: Event) -> None:
        """Handles an event without waiting."""
        self._questions.observe(event)
        self._ask()

    def __exit__(self, *_: object) -> None:
        self._typed.close()

    def _ask(self) -> None:
        """Prints the current question, once."""
        if self._gone:
            self._questions.refuse_all(GONE)
        request = self._questions.current
        if self._asked == self._questions.place:
            return
        goes_on = self._asked[0] == self._questions.current_id
        if self._asked[0] and not goes_on:
            self._print("(this question is closed)")
        self._typed.stop()
        self._asked = self._questions.place
        self._typed.echo(not (isinstance(request, QuestionRequest) and request.secret))
        if request is not None:
            if not goes_on:
                self._typed.drop_typed()
            lines = question_lines(self._questions, request, who_asks(request))
            self._print("\n".join(field_lines(self._questions) if goes_on else lines))
            self._typed.listen(self._read)

    def _read(self, text: str) -> None:
        if not text:
            self._gone = True
        else:
            self._questions.answer(text.removesuffix("\n"))
            if self._questions.place == self._asked:
                request = self._questions.current
                can_type = hint(request) if isinstance(request, ApprovalRequest) else "type the answer"
                self._print(f"({self._questions.asks_back or can_type})")
            elif self._questions.current_id != self._asked[0]:
                self._asked = CLOSED
        self._ask()

    def _print(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone: the end of its input tells as well
            self._terminal.write(f"{text}\n")  # at once: what is typed as soon as it is read stands in the next line
            self._terminal.flush()


def question_lines(questions: Questions, request: ApprovalRequest | QuestionRequest, who: str) -> list[str]:
    """A question in plain lines, in full, and what can be typed.

    Args:
        questions: All open questions.
        request: The current one.
        who: The name of the agent that asks.
    """
    of = f"{questions.number_of(request)} of {len(questions.waiting)}"
    if isinstance(request, QuestionRequest):
        hidden = " (what you type is not shown)" if request.secret else ""
        return [f"Question {of}: {who} {asked_title(request)}{hidden}", own_words(request), *field_lines(questions)]
    notes = filter(None, [always_means(request), hint(request), *questions.others()])
    return [f"Approval {of}: {who} {request.call.question}", request.call.text, *(f"({note})" for note in notes)]


def field_lines(questions: Questions, how: str = "type {hint}") -> list[str]:
    """The present field of the current question, in plain lines; none if it has no fields.

    Args:
        questions: All open questions.
        how: What can be typed.
    """
    if (filling := questions.filling) is None:
        return []
    rows = [f"  {row}" for row in filling.rows]
    return [*filter(None, (filling.refused, filling.title)), *rows, f"({how.format(hint=filling.hint)})"]
