"""Approvers answer approval requests where there is no input line: for nobody, or for a person, line by line."""

import asyncio
import os
import sys
import termios
from contextlib import suppress
from typing import Final, Protocol, Self, TextIO

from freeact_sub.events import ApprovalRequest, Decision, Event, QuestionRequest
from freeact_sub.show.questions import Questions
from freeact_sub.show.typed_decisions import HINT, always_means
from freeact_sub.show.wording import asked_text, asked_title, who_asks

GONE: Final = Decision(allowed=False, reason="nobody can be asked: standard input was closed", nobody=True)


class Approver(Protocol):
    """Sees every event of a run and answers the approval requests among them, now or later."""

    def observe(self, event: Event) -> None:
        """Handles an event without waiting."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class NoApprover:
    """Answers for a run in which nobody is asked: each request gets the answer that counts where nobody is there."""

    def observe(self, event: Event) -> None:
        """See `Approver`."""
        if isinstance(event, ApprovalRequest):
            event.decide(event.if_nobody)
        elif isinstance(event, QuestionRequest):
            event.skip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class LineApprover:
    """Asks on a terminal that is left as it is: a question is printed, a line is read."""

    def __init__(self, terminal: TextIO) -> None:
        """Args: terminal: where questions are printed; answers are read from standard input."""
        self._terminal = terminal
        self._input = sys.stdin.fileno()
        self._questions = Questions()
        self._asked: str | None = None
        self._gone = False
        self._echoes = True

    def observe(self, event: Event) -> None:
        """See `Approver`."""
        self._questions.observe(event)
        self._ask()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._input)
        self._echo(True)

    def _ask(self) -> None:
        """Prints the current question, once."""
        if self._gone:
            self._questions.decide_all(GONE)
        request = self._questions.current
        if self._asked == self._questions.current_id:
            return
        if self._asked:
            self._print("(this question is closed)")
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._input)
        self._asked = self._questions.current_id
        self._echo(not (isinstance(request, QuestionRequest) and request.secret))
        if request is not None:
            with suppress(termios.error):
                termios.tcflush(self._input, termios.TCIFLUSH)  # typed before it was asked: no answer to it
            self._print_question(request)
            loop.add_reader(self._input, self._read)

    def _echo(self, on: bool) -> None:  # a state
        """Whether the terminal shows what is typed."""
        if on is self._echoes:
            return
        self._echoes = on
        with suppress(termios.error):
            modes = termios.tcgetattr(self._input)
            modes[3] = modes[3] | termios.ECHO if on else modes[3] & ~termios.ECHO
            termios.tcsetattr(self._input, termios.TCSANOW, modes)

    def _print_question(self, request: ApprovalRequest | QuestionRequest) -> None:
        if isinstance(request, QuestionRequest):
            number = f"Question 1 of {len(self._questions.waiting)}"
            hidden = " (what you type is not shown)" if request.secret else ""
            self._print(f"{number}: {who_asks(request)} {asked_title(request)}{hidden}\n{asked_text(request)}")
            return
        notes = filter(None, [always_means(request), HINT, *self._questions.others()])
        number = f"Approval 1 of {len(self._questions.waiting)}"
        asks = f"{number}: {who_asks(request)} {request.call.question}\n{request.call.text}"
        self._print("\n".join([asks, *(f"({note})" for note in notes)]))

    def _read(self) -> None:
        text = os.read(self._input, 8192).decode(errors="replace")
        if not text:
            self._gone = True
        elif self._questions.answer(text.removesuffix("\n")) and self._questions.current_id != self._asked:
            self._asked = ""  # closed by its answer: nothing to say about it
        else:
            self._print(f"({self._questions.asks_back or HINT})")
        self._ask()

    def _print(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone: the end of its input tells as well
            self._terminal.write(f"{text}\n")  # at once: what is typed as soon as it is read stands in the next line
            self._terminal.flush()
