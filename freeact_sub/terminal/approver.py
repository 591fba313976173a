"""Approvers decide approval requests where there is no input line: without a person, or by asking one line by line.

`TypedLines` are lines from a terminal that is left as it is, with the terminal's own editing.
"""

import asyncio
import os
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self, TextIO

from freeact_sub import events as ev
from freeact_sub.show.questions import Questions, always_means, hint, leave_unasked
from freeact_sub.show.wording import asked_title, own_words, who_asks

GONE: Final = "nobody can be asked: standard input was closed"


NOTHING: Final = (None, 0, 0)
"""The place of `Questions` where none is open."""
CLOSED: Final = ("", 0, 0)
"""The same after an answer, when there is nothing to say about the question."""


class Approver:
    """Reads every event of a run and decides the approval requests among them. This one decides as where nobody is there."""

    def observe(self, event: ev.Event) -> None:
        """Handles an event without waiting."""
        if isinstance(event, ev.ApprovalRequest | ev.QuestionRequest):
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

    def observe(self, event: ev.Event) -> None:
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
        self._typed.echo(not (isinstance(request, ev.QuestionRequest) and request.secret))
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
                can_type = hint(request) if isinstance(request, ev.ApprovalRequest) else "type the answer"
                self._print(f"({self._questions.asks_back or can_type})")
            elif self._questions.current_id != self._asked[0]:
                self._asked = CLOSED
        self._ask()

    def _print(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone: the end of its input tells as well
            self._terminal.write(f"{text}\n")  # at once: what is typed as soon as it is read stands in the next line
            self._terminal.flush()


def question_lines(questions: Questions, request: ev.ApprovalRequest | ev.QuestionRequest, who: str) -> list[str]:
    """A question in plain lines, in full, and what can be typed.

    Args:
        questions: All open questions.
        request: The current one.
        who: The name of the agent that asks.
    """
    of = f"{questions.number_of(request)} of {len(questions.waiting)}"
    if isinstance(request, ev.QuestionRequest):
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


class TypedLines:
    """Reads standard input, a terminal, while somebody listens."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._echoes = True

    def listen(self, on_text: Callable[[str], None]) -> None:
        """Passes on what is entered from now on. Args: on_text: gets lines; an empty text: the input has ended."""
        asyncio.get_running_loop().add_reader(self._input, self._read, on_text)

    def stop(self) -> None:
        """Passes on nothing more."""
        asyncio.get_running_loop().remove_reader(self._input)

    def close(self) -> None:
        """Stops, and leaves the terminal as it was."""
        self.stop()
        self.echo(True)

    def drop_typed(self) -> None:
        """Drops what has been typed and not been read: it was typed before a question stood there."""
        with suppress(termios.error):
            termios.tcflush(self._input, termios.TCIFLUSH)

    def echo(self, on: bool) -> None:  # a state
        """Whether the terminal shows what is typed."""
        if on is self._echoes:
            return
        self._echoes = on
        with suppress(termios.error):
            modes = termios.tcgetattr(self._input)
            modes[3] = modes[3] | termios.ECHO if on else modes[3] & ~termios.ECHO
            termios.tcsetattr(self._input, termios.TCSANOW, modes)

    def _read(self, on_text: Callable[[str], None]) -> None:
        try:
            content = os.read(self._input, 65536)
        except OSError:  # the terminal is gone
            content = b""
        if not content:
            self.stop()
        on_text(content.decode(errors="replace"))
