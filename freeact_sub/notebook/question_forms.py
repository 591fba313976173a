"""Approvals in a notebook: by buttons, or by `input()`; asked beside the reading loop, never in it.

Which of the two cannot be seen from the protocol, so `auto` goes by what is known, from best to worst:

1. nobody answers input requests (nbclient, papermill): every question is denied, with that reason;
2. a notebook runs the cell and ipywidgets is installed: buttons. A front end that knows no widgets says so, by closing the
   widget's connection: then the open questions, and all later ones, are asked as text;
3. else, text: consoles, and notebooks without ipywidgets.

Buttons stand above the blocks, where they do not move while the blocks grow. Several may be open; any may be answered at
any time. When one is closed, those below it move up, perhaps under a mouse that is about to click: for a moment
(`SETTLE_SECONDS`) they, and any that come in it, take no click. Text questions are asked one after another (see
`ipython_shell.py` for their limits).
"""

import asyncio
import importlib.util
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Literal, Self, TypeAlias

from freeact_sub.errors import FreeactError
from freeact_sub.events import ApprovalRequest, Decision, Effects, QuestionRequest
from freeact_sub.extras import require_extra
from freeact_sub.notebook.buttons import ButtonQuestions
from freeact_sub.notebook.ipython_shell import (
    AskLine,
    CellDisplay,
    NobodyToAskError,
    ask_line,
    from_notebook,
    running_kernel,
    stdin_allowed,
)
from freeact_sub.notebook.render import own_question_text, question_text
from freeact_sub.show.effect_lines import effect_lines, seen_otherwise
from freeact_sub.show.questions import Questions, leave_unasked, refuse
from freeact_sub.show.typed_decisions import always_means
from freeact_sub.system.closing import end_task

logger = logging.getLogger(__name__)

Asked: TypeAlias = ApprovalRequest | QuestionRequest
QuestionForm: TypeAlias = Literal["auto", "buttons", "input"]
"""The way to ask for approvals. `auto`: buttons if possible, otherwise `input()`."""

EFFECTS_SECONDS: Final = 3.0
"""A line is asked for when the effects of a cell are known, or after this time without them."""
_CHOICE = "Approve? yes / no / always (in this session) / project (always in it), or a reason for no: "


class QuestionForms:
    """Asks by buttons or text, and removes all questions at its exit."""

    def __init__(self, questions: QuestionForm, screen: CellDisplay, ask: AskLine = ask_line) -> None:
        """Args: questions: buttons or text. screen: where buttons are shown. ask: see `TextQuestions`.

        Raises:
            FreeactError: Buttons were chosen, and this front end has none.
        """
        self._text = TextQuestions(ask)
        self._buttons = ButtonQuestions(screen, on_refused=self._use_text) if _wants_buttons(questions) else None

    def ask(self, request: Asked) -> None:
        """Shows a question and returns at once; the answer goes to the request."""
        (self._buttons or self._text).ask(request)

    def withdraw(self, request_id: str) -> None:
        """Removes a question that was answered or decided, here or elsewhere, or whose run was cancelled."""
        (self._buttons or self._text).withdraw(request_id)

    def show_here(self) -> None:
        """Shows the buttons in the output of this cell as well. Text is asked in whichever cell waits."""
        if self._buttons is not None:
            self._buttons.show_here()

    async def __aenter__(self) -> Self:
        self._text.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        still_open = [] if self._buttons is None else self._buttons.close()
        try:
            await self._text.aclose()
        finally:  # an interrupt may come meanwhile
            for request in [*still_open, *self._text.waiting]:  # of children that live on
                leave_unasked(request)

    def _use_text(self) -> None:
        if self._buttons is not None:
            still_open = self._buttons.close()
            self._buttons = None
            for request in still_open:
                self._text.ask(request)


class TextQuestions:
    """Asks one question after another, as lines of text."""

    def __init__(self, ask: AskLine = ask_line) -> None:
        """Args: ask: shows a prompt and returns the line that is typed; see `ask_line`."""
        self._ask_line = ask
        self._questions = Questions(take_yes=self._take_yes)
        self._yes: Decision | None = None
        """To the current question, before it counts."""
        self._changed = asyncio.Event()
        self._asked: tuple[str, asyncio.Task[str]] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the task that asks."""
        self._task = asyncio.create_task(self._ask_all(), name="notebook questions")

    async def aclose(self) -> None:
        """Stops it."""
        if self._task is not None:
            await end_task(self._task)

    @property
    def waiting(self) -> Sequence[Asked]:
        """The questions that are open."""
        return self._questions.waiting

    def ask(self, request: Asked) -> None:
        """See `QuestionForms.ask`."""
        self._questions.waiting.append(request)
        self._changed.set()

    def withdraw(self, request_id: str) -> None:
        """See `QuestionForms.withdraw`."""
        self._questions.withdraw(request_id)
        if self._asked is not None and self._asked[0] == request_id:
            self._asked[1].cancel()

    async def _ask_all(self) -> None:
        while True:
            request = self._questions.current
            if request is not None:
                await self._ask(request)
            else:
                self._changed.clear()
                await self._changed.wait()

    async def _ask(self, request: Asked) -> None:
        """Asks for one line; the question stays open if the line is no answer."""
        seen = await _effects_soon(request) if isinstance(request, ApprovalRequest) else None
        if self._questions.current is not request:
            return
        line = asyncio.create_task(self._line_for(request, seen))
        self._asked = (request.request_id, line)
        try:
            await asyncio.wait({line})
        finally:
            self._asked = None
            line.cancel()
        if line.cancelled() or self._questions.current is not request:  # the typed line must not answer another question
            return
        error = line.exception()
        if error is None:
            self._questions.answer(line.result())
            if self._yes is not None and isinstance(request, ApprovalRequest):
                decision, self._yes = self._yes, None
                if await seen_otherwise(request, decision, seen) is None:
                    request.decide(decision)
                    self._questions.withdraw(request.request_id)
            return
        reason = str(error)
        if not isinstance(error, NobodyToAskError):
            logger.error("a question could not be asked", exc_info=error)
            reason = f"the question could not be asked: {error}"
        self._questions.withdraw(request.request_id)
        refuse(request, reason, nobody=True)

    def _take_yes(self, _request: ApprovalRequest, decision: Decision) -> bool:
        self._yes = decision
        return True

    def _line_for(self, request: Asked, seen: Effects | None) -> Coroutine[Any, Any, str]:
        if isinstance(request, QuestionRequest):
            return self._ask_line(f"{self._question_now(request)}\n> ", secret=request.secret)
        means = always_means(request)
        effects = "" if seen is None or seen.off else "\n".join(["", *(line.text for line in effect_lines(seen))])
        prompt = f"{question_text(request)}{effects}\n{f'({means})' if means else ''}\n{_CHOICE}"
        back = f"{self._questions.asks_back} " if self._questions.asks_back else ""
        return self._ask_line(back or prompt)

    def _question_now(self, request: QuestionRequest) -> str:
        """The question; from its second field on, and after a line that was no answer, only the field."""
        filling = self._questions.filling
        if filling is None:
            return question_text(request)
        said = [] if filling.at or filling.refusals else [own_question_text(request)]
        rows = [f"    {row}" for row in filling.rows]
        return "\n".join(filter(None, [*said, filling.refused, filling.title, *rows, f"({filling.hint})"]))


async def _effects_soon(request: ApprovalRequest) -> Effects | None:
    """What a cell would do. None: that takes long, and nobody is to wait for it."""
    try:
        async with asyncio.timeout(EFFECTS_SECONDS):
            return await request.effects_ready()
    except TimeoutError:
        return None


def _wants_buttons(questions: QuestionForm) -> bool:
    installed = importlib.util.find_spec("ipywidgets") is not None
    if questions == "buttons":
        if running_kernel() is None:
            raise FreeactError("buttons need a notebook: use questions='input' here")
        require_extra("ipywidgets", extra="notebook", needed_by="questions='buttons'")
        return True
    return questions == "auto" and installed and from_notebook() and stdin_allowed()
