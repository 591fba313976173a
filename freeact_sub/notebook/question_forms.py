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
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from freeact_sub.cells import MimeBundle
from freeact_sub.errors import FreeactError
from freeact_sub.events import ApprovalRequest, Decision, QuestionRequest, Remember
from freeact_sub.extras import require_extra
from freeact_sub.notebook.display_area import DisplayArea
from freeact_sub.notebook.ipython_shell import NobodyToAskError, ask_line, from_notebook, running_kernel, stdin_allowed
from freeact_sub.notebook.render import question_html, question_text
from freeact_sub.show.questions import Questions
from freeact_sub.show.safe_html import escaped
from freeact_sub.show.typed_decisions import always_means
from freeact_sub.system.closing import end_task
from freeact_sub.text import visible

logger = logging.getLogger(__name__)

Asked: TypeAlias = ApprovalRequest | QuestionRequest
QuestionForm: TypeAlias = Literal["auto", "buttons", "input"]
"""The way to ask for approvals. `auto`: buttons if possible, otherwise `input()`."""

_NOTHING: MimeBundle = {"text/html": "", "text/plain": ""}

SETTLE_SECONDS = 0.5
"""Seconds in which a question that has moved takes no clicks."""

_SAVED = "Agents had questions here: their buttons are there while the cell runs."
"""Shown instead of buttons where no kernel runs: in a saved file or an export."""

_PANEL = {"border": "1px solid #e08e00", "padding": "4px 8px", "margin": "2px 0 10px 0"}

_CHOICE = "Approve? yes / no / always (in this session) / project (always in it), or a reason for no: "


class QuestionForms:
    """Asks by buttons or text, and removes all questions at its exit."""

    def __init__(self, questions: QuestionForm, screen: DisplayArea) -> None:
        """Args: questions: buttons or text. screen: where buttons are shown.

        Raises:
            FreeactError: Buttons were chosen, and this front end has none.
        """
        self._text = TextQuestions()
        self._buttons = ButtonQuestions(screen, on_refused=self._use_text) if _wants_buttons(questions) else None

    def ask(self, request: Asked) -> None:
        """Shows a question and returns at once; the answer goes to the request."""
        (self._buttons or self._text).ask(request)

    def withdraw(self, request_id: str) -> None:
        """Removes a question that was answered or decided, here or elsewhere, or whose run was cancelled."""
        (self._buttons or self._text).withdraw(request_id)

    async def __aenter__(self) -> Self:
        self._text.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._buttons is not None:
            self._buttons.close()
        await self._text.aclose()

    def _use_text(self) -> None:
        if self._buttons is not None:
            still_open = self._buttons.close()
            self._buttons = None
            for request in still_open:
                self._text.ask(request)


class TextQuestions:
    """Asks one question after another, as lines of text."""

    def __init__(self, ask: Callable[..., Coroutine[Any, Any, str]] = ask_line) -> None:
        """Args: ask: shows a prompt and returns the line that is typed; see `ask_line`."""
        self._ask_line = ask
        self._questions = Questions()
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
        line = asyncio.create_task(self._line_for(request))
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
            return
        reason = str(error)
        if not isinstance(error, NobodyToAskError):
            logger.error("a question could not be asked", exc_info=error)
            reason = f"the question could not be asked: {error}"
        self._questions.withdraw(request.request_id)
        if isinstance(request, ApprovalRequest):
            request.decide(Decision(allowed=False, reason=reason, nobody=True))
        else:
            request.decline(reason)

    def _line_for(self, request: Asked) -> Coroutine[Any, Any, str]:
        if isinstance(request, QuestionRequest):
            return self._ask_line(f"{question_text(request)}\n> ", secret=request.secret)
        means = always_means(request)
        prompt = f"{question_text(request)}\n{f'({means})' if means else ''}\n{_CHOICE}"
        back = f"{self._questions.asks_back} " if self._questions.asks_back else ""
        return self._ask_line(back or prompt)


class ButtonQuestions:
    """Asks with buttons, all open questions at once."""

    def __init__(self, screen: DisplayArea, *, on_refused: Callable[[], None]) -> None:
        """Args: screen: where they are shown. on_refused: called when the front end proves to know no widgets."""
        import ipywidgets  # noqa: PLC0415  # an extra: whoever has none is asked as text

        self._widgets: Any = ipywidgets
        self._screen = screen
        self._loop = asyncio.get_running_loop()
        self._on_refused = on_refused
        self._open: dict[str, _ButtonQuestion] = {}
        self._panel: Any = None
        self._settled_at = 0.0
        """On the event loop's clock; a question that appears earlier may appear under a clicking mouse."""
        self._display_id = f"freeact-questions-{uuid.uuid4().hex[:12]}"
        self._screen.publish(self._display_id, _NOTHING, update=False)

    def ask(self, request: Asked) -> None:
        """See `QuestionForms.ask`."""
        if self._panel is None:
            self._panel = self._widgets.VBox(layout=_PANEL)
            self._panel.comm.on_close(lambda _: self._loop.call_soon_threadsafe(self._on_refused))
        first = not self._open
        self._open[request.request_id] = question = (
            self._text_field(request) if isinstance(request, QuestionRequest) else self._question(request)
        )
        if self._loop.time() < self._settled_at:
            self._settle(question)
        self._show(changed=first)

    def withdraw(self, request_id: str) -> None:
        """See `QuestionForms.withdraw`."""
        question = self._open.get(request_id)
        if question is None:
            return
        self._settled_at = self._loop.time() + SETTLE_SECONDS
        names = list(self._open)
        for name in names[names.index(request_id) + 1 :]:
            self._settle(self._open[name])
        del self._open[request_id]
        self._show(changed=not self._open)
        question.close()

    def close(self) -> list[Asked]:
        """Removes all questions and returns those that were open."""
        still_open = [question.request for question in self._open.values()]
        for request in still_open:
            self.withdraw(request.request_id)
        if self._panel is not None:
            _close(self._panel)
        return still_open

    def _settle(self, question: "_ButtonQuestion") -> None:
        """Disables the buttons for a moment, on the page too, before they appear at their new place."""
        question.set_disabled(True)
        if question.timer is not None:
            question.timer.cancel()
        question.timer = self._loop.call_later(SETTLE_SECONDS, question.set_disabled, False)

    def _show(self, *, changed: bool) -> None:
        """Without questions the panel is empty: a saved notebook keeps no dead buttons."""
        self._panel.children = tuple(question.box for question in self._open.values())
        if changed:
            # IPython's protocol; its own text is the panel's repr
            bundle = {**self._panel._repr_mimebundle_(), "text/plain": _SAVED} if self._open else _NOTHING
            self._screen.publish(self._display_id, bundle, update=True)

    def _text_field(self, request: QuestionRequest) -> "_ButtonQuestion":
        widgets, auto = self._widgets, {"width": "auto"}
        kind = widgets.Password if request.secret else widgets.Textarea
        field = kind(layout={"width": "40em"})
        give = widgets.Button(description="Answer", button_style="success", layout=auto)
        decline = widgets.Button(description="No answer", layout=auto)
        question = _ButtonQuestion(request=request, buttons=[give, decline])

        def end(answer: Callable[[], object]) -> None:
            if not give.disabled:
                question.set_disabled(True)
                self._loop.call_soon_threadsafe(answer)  # widgets may be served by another thread

        def answered(_: object) -> None:
            text, field.value = field.value, ""
            end(lambda: request.answer(text))

        give.on_click(answered)
        decline.on_click(lambda _: end(request.decline))
        question.box = widgets.VBox([widgets.HTML(question_html(request)), widgets.HBox([field, give, decline])])
        return question

    def _question(self, request: ApprovalRequest) -> "_ButtonQuestion":
        widgets, auto = self._widgets, {"width": "auto"}
        approve = widgets.Button(description="Approve", button_style="success", layout=auto)
        deny = widgets.Button(description="Deny", button_style="danger", layout=auto)
        reason = widgets.Text(placeholder="reason for a denial (optional)", layout={"width": "22em"})
        question = _ButtonQuestion(request=request, buttons=[approve, deny])
        rows = [widgets.HTML(question_html(request)), widgets.HBox([approve, deny, reason])]

        def settle(decision: Decision) -> None:
            try:
                request.decide(decision)
            except ValueError as error:  # the pattern is invalid: the question stays open
                rows[-1].value = f"<small>{escaped(visible(str(error)))}</small>"
                question.set_disabled(False)

        def decide(decision: Decision) -> None:
            if approve.disabled:
                return
            question.set_disabled(True)
            self._loop.call_soon_threadsafe(settle, decision)  # widgets may be served by another thread

        approve.on_click(lambda _: decide(Decision(allowed=True)))
        deny.on_click(lambda _: decide(Decision(allowed=False, reason=reason.value.strip())))
        if request.suggested:
            suggested = ", ".join(request.suggested)
            pattern = widgets.Text(
                value=suggested, tooltip="what is allowed from now on: KIND:GLOB", layout={"width": "28em"}
            )

            def always(remember: Remember) -> None:
                own = pattern.value.strip()
                decide(Decision(allowed=True, remember=remember, pattern=None if own in ("", suggested) else own))

            in_session = widgets.Button(description="Always in this session", layout=auto)
            in_project = widgets.Button(description="Always in this project", layout=auto)
            in_session.on_click(lambda _: always("session"))
            in_project.on_click(lambda _: always("project"))
            question.buttons += [in_session, in_project]
            rows += [widgets.HBox([in_session, in_project, pattern]), widgets.HTML("")]
        question.box = widgets.VBox(rows)
        return question


@dataclass(kw_only=True, eq=False)
class _ButtonQuestion:
    """An open question and its widgets."""

    request: Asked
    buttons: list[Any]
    box: Any = None
    timer: asyncio.TimerHandle | None = None
    """Enables the buttons again."""

    def set_disabled(self, disabled: bool) -> None:
        for button in self.buttons:
            button.disabled = disabled

    def close(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        _close(self.box)


def _wants_buttons(questions: QuestionForm) -> bool:
    installed = importlib.util.find_spec("ipywidgets") is not None
    if questions == "buttons":
        if running_kernel() is None:
            raise FreeactError("buttons need a notebook: use questions='input' here")
        require_extra("ipywidgets", extra="notebook", needed_by="questions='buttons'")
        return True
    return questions == "auto" and installed and from_notebook() and stdin_allowed()


def _close(widget: Any) -> None:
    """Closes a widget with its children, layouts and styles, all of which live until they are closed."""
    for part in (*getattr(widget, "children", ()), widget.layout, getattr(widget, "style", None)):
        if hasattr(part, "layout"):
            _close(part)
        elif part is not None:
            part.close()
    widget.close()
