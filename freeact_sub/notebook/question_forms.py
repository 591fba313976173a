"""Approvals and questions in a notebook: by buttons, or by `input()`; asked beside the reading loop, never in it.

The protocol does not tell which of the two works, so `auto` goes by other signs:

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
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self, TypeAlias

from freeact_sub import events as ev
from freeact_sub.calls import HARMLESS, CodeAction, FanOut
from freeact_sub.cells import MimeBundle
from freeact_sub.errors import FreeactError
from freeact_sub.extras import require_extra
from freeact_sub.notebook.ipython_shell import (
    NOTHING,
    AskLine,
    CellDisplay,
    NobodyToAskError,
    ask_line,
    from_notebook,
    running_kernel,
    stdin_allowed,
)
from freeact_sub.notebook.render import effects_html, own_question_text, question_html, question_text
from freeact_sub.show.effect_lines import effect_lines, seen_otherwise
from freeact_sub.show.forms import heading, numbered, shown_default
from freeact_sub.show.questions import Questions, always_allows, always_means, leave_unasked, refuse
from freeact_sub.show.safe_html import escaped
from freeact_sub.system.closing import end_task
from freeact_sub.text import dollars_spread, visible

logger = logging.getLogger(__name__)

Asked: TypeAlias = ev.ApprovalRequest | ev.QuestionRequest
QuestionForm: TypeAlias = Literal["auto", "buttons", "input"]
"""The way to ask for approvals. `auto`: buttons if possible, otherwise `input()`."""

EFFECTS_SECONDS: Final = 3.0
"""Seconds to wait for the effects of a cell before the question for a line."""
_CHOICE = "Approve? yes / no / always (in this session) / project (always in it), or a reason for no: "
RELOAD_SECONDS = 60.0
"""Seconds after which a question is closed whose page was loaded again: the new page cannot show the cell's buttons."""
_RELOADED = "the page was loaded again while this question was open, and the new page does not show its buttons"

SETTLE_SECONDS = 0.5
"""Seconds in which a question that has moved takes no clicks."""

_SAVED = "Agents had questions here: their buttons are there while the cell runs."
"""The text instead of buttons where no kernel runs: in a saved file or an export."""

_FIELD = {"width": "auto", "max_width": "28em", "flex": "1 1 14em"}
_ROW = {"flex_flow": "row wrap"}
_PANEL = {"border": "1px solid #e08e00", "padding": "4px 8px", "margin": "2px 0 10px 0"}
WIDE: Final = {"width": "40em"}
AUTO: Final = {"width": "auto", "flex": "0 0 auto"}
"""The layout of a widget that is as wide as its words, in a narrow notebook too."""


class QuestionForms:
    """Questions by buttons or text; at the exit all are removed."""

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
        """Shows the buttons in the output of this cell as well. Text is asked in the cell that waits."""
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
            for request in [*still_open, *self._text.waiting]:  # questions of children that live on
                leave_unasked(request)

    def _use_text(self) -> None:
        if self._buttons is not None:
            still_open = self._buttons.close()
            self._buttons = None
            for request in still_open:
                self._text.ask(request)


class TextQuestions:
    """Questions as lines of text, one after another."""

    def __init__(self, ask: AskLine = ask_line) -> None:
        """Args: ask: shows a prompt and returns the line that is typed; see `ask_line`."""
        self._ask_line = ask
        self._questions = Questions(take_yes=self._take_yes)
        self._yes: ev.Decision | None = None
        """A yes to the current question, before it counts."""
        self._changed = asyncio.Event()
        self._asked: tuple[str, asyncio.Task[str]] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the task that asks."""
        self._task = asyncio.create_task(self._ask_all(), name="notebook questions")

    async def aclose(self) -> None:
        """Stops the task."""
        if self._task is not None:
            await end_task(self._task)

    @property
    def waiting(self) -> Sequence[Asked]:
        """The open questions."""
        return self._questions.waiting

    def ask(self, request: Asked) -> None:
        """Queues a question, to be asked as a line of text."""
        self._questions.waiting.append(request)
        self._changed.set()

    def withdraw(self, request_id: str) -> None:
        """Removes a question that was answered elsewhere."""
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
        seen = await _effects_soon(request) if isinstance(request, ev.ApprovalRequest) else None
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
            if self._yes is not None and isinstance(request, ev.ApprovalRequest):
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

    def _take_yes(self, _request: ev.ApprovalRequest, decision: ev.Decision) -> bool:
        self._yes = decision
        return True

    def _line_for(self, request: Asked, seen: ev.Effects | None) -> Coroutine[Any, Any, str]:
        if isinstance(request, ev.QuestionRequest):
            return self._ask_line(f"{self._question_now(request)}\n> ", secret=request.secret)
        means = always_means(request)
        effects = "" if seen is None or seen.off else "\n".join(["", *(line.text for line in effect_lines(seen))])
        prompt = f"{question_text(request)}{effects}\n{f'({means})' if means else ''}\n{_CHOICE}"
        back = f"{self._questions.asks_back} " if self._questions.asks_back else ""
        return self._ask_line(back or prompt)

    def _question_now(self, request: ev.QuestionRequest) -> str:
        """Returns the question; from its second field on, and after a line that was no answer, only the field."""
        filling = self._questions.filling
        if filling is None:
            return question_text(request)
        said = [] if filling.at or filling.refusals else [own_question_text(request)]
        rows = [f"    {row}" for row in filling.rows]
        return "\n".join(filter(None, [*said, filling.refused, filling.title, *rows, f"({filling.hint})"]))


async def _effects_soon(request: ev.ApprovalRequest) -> ev.Effects | None:
    """Returns the effects of a cell. None: they take longer than `EFFECTS_SECONDS`."""
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


class ButtonQuestions:
    """Questions with buttons, all open ones at once."""

    def __init__(self, screen: CellDisplay, *, on_refused: Callable[[], None]) -> None:
        """Args: screen: where they are shown. on_refused: called when the front end proves to know no widgets."""
        import ipywidgets  # noqa: PLC0415  # an extra: whoever has none is asked as text

        self._widgets: Any = ipywidgets
        self._screen = screen
        self._loop = asyncio.get_running_loop()
        self._on_refused = on_refused
        self._open: dict[str, _ButtonQuestion] = {}
        self._panel: Any = None
        self._settled_at = 0.0
        """The time on the event loop's clock before which a new question may appear under a clicking mouse."""
        self._reloaded_at: float | None = None
        """The time at which a page asked for the widgets. None: never, or somebody has clicked since."""
        self._watching: asyncio.TimerHandle | None = None
        self._working: set[asyncio.Task[None]] = set()
        """Tasks that try cells, and decide."""
        self._display_id = f"freeact-questions-{uuid.uuid4().hex[:12]}"
        self._screen.publish(self._display_id, NOTHING, update=False)

    def ask(self, request: ev.ApprovalRequest | ev.QuestionRequest) -> None:
        """Shows a question with its buttons."""
        if self._panel is None:
            self._panel = _panel_class(self._widgets, self._page_asks)(layout=_PANEL)
            self._panel.comm.on_close(lambda _: self._loop.call_soon_threadsafe(self._on_refused))
        first = not self._open
        self._open[request.request_id] = question = (
            self._question(request)
            if isinstance(request, ev.ApprovalRequest)
            else self._fields(request)
            if request.fields
            else self._text_field(request)
        )
        question.since = self._loop.time()
        if self._loop.time() < self._settled_at:
            self._settle(question)
        self._show(changed=first)
        self._watch()

    def withdraw(self, request_id: str) -> None:
        """Removes a question that was answered or withdrawn."""
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
        for other in self._open.values():  # cells that had to wait for this decision can be tried now
            if isinstance(other.request, ev.ApprovalRequest) and any(
                seen.status == "refused" for seen in other.seen.values()
            ):
                self._begin(self._try(other, next(iter(other.seen))))

    def show_here(self) -> None:
        """Shows the buttons in the output of this cell as well."""
        self._screen.publish(self._display_id, self._bundle(), update=False)
        self._loop.call_soon_threadsafe(self._clicked)  # whoever has run this cell sees them

    def close(self) -> list[ev.ApprovalRequest | ev.QuestionRequest]:
        """Removes all questions and returns the open ones."""
        still_open = [question.request for question in self._open.values()]
        for request in still_open:
            self.withdraw(request.request_id)
        if self._watching is not None:
            self._watching.cancel()
        for task in self._working:
            task.cancel()
        if self._panel is not None:
            _close(self._panel)
        return still_open

    def _page_asks(self) -> None:
        """Notes that a page has asked for all widgets: it was loaded again, or its connection was."""
        self._loop.call_soon_threadsafe(self._reloaded)  # widgets may be served by another thread

    def _reloaded(self) -> None:
        self._reloaded_at = self._loop.time()
        self._watch()

    def _clicked(self) -> None:
        self._reloaded_at = None

    def _watch(self) -> None:
        if self._reloaded_at is None or not self._open:
            return
        if self._watching is not None:
            self._watching.cancel()
        left = self._reloaded_at + RELOAD_SECONDS - self._loop.time()
        self._watching = self._loop.call_later(max(left, 0.0), self._give_up)

    def _give_up(self) -> None:
        """Closes the questions of a page that was loaded again, unless somebody has clicked since."""
        if self._reloaded_at is None:
            return
        for question in [*self._open.values()]:
            refuse(question.request, _RELOADED, nobody=True)

    def _approve_all(self) -> None:
        """Approves the questions that have stood on the page for a moment."""
        for question in [*self._open.values()]:
            if question.approve is not None and self._loop.time() - question.since >= SETTLE_SECONDS:
                question.approve()

    def _settle(self, question: "_ButtonQuestion") -> None:
        """Disables the buttons for a moment, on the page too, before they appear at their new place."""
        question.set_disabled(True)
        if question.timer is not None:
            question.timer.cancel()
        question.timer = self._loop.call_later(SETTLE_SECONDS, question.set_disabled, False)

    def _show(self, *, changed: bool) -> None:
        """Shows the questions. Without any the panel is empty: a saved notebook keeps no dead buttons."""
        approvals = [question for question in self._open.values() if question.approve is not None]
        for question in approvals:
            self._offer_all(question, len(approvals) if question is approvals[0] else 0)
        self._panel.children = tuple(question.box for question in self._open.values())
        if changed:
            self._screen.publish(self._display_id, self._bundle(), update=True)

    def _bundle(self) -> MimeBundle:
        # IPython's protocol; its own text is the panel's repr
        return {**self._panel._repr_mimebundle_(), "text/plain": _SAVED} if self._open else NOTHING

    def _text_field(self, request: ev.QuestionRequest) -> "_ButtonQuestion":
        widgets = self._widgets
        kind = widgets.Password if request.secret else widgets.Textarea
        field = kind(layout={"width": "40em"})

        def answer() -> None:
            text, field.value = field.value, ""
            self._end(question, lambda: request.answer(text))

        question = self._answerable(request, answer)
        question.box = widgets.VBox([widgets.HTML(question_html(request)), widgets.HBox([field, *question.buttons])])
        return question

    def _fields(self, request: ev.QuestionRequest) -> "_ButtonQuestion":
        """Makes a question with fields: one choice that is all of the answer gives it, else a button does."""
        widgets = self._widgets
        told = widgets.HTML("")

        def settle(values: dict[str, Any]) -> None:
            try:
                request.answer(values)
            except ValueError as error:  # it is no answer: the question stays open
                told.value = f'<small style="color:#c00">{escaped(visible(str(error)))}</small>'
                question.set_disabled(False)

        def answer() -> None:
            values = fields.values()
            self._end(question, lambda: settle(values))

        fields = FieldWidgets(widgets, request, on_pick=answer)
        question = self._answerable(request, answer)
        head, ends = widgets.HTML(question_html(request)), widgets.HBox([*question.buttons])
        question.buttons += fields.buttons
        question.box = widgets.VBox([head, *fields.rows, ends, told])
        return question

    def _answerable(self, request: ev.QuestionRequest, answer: Callable[[], None]) -> "_ButtonQuestion":
        """Makes a question with two buttons: to give the answer, and to give none."""
        give = self._widgets.Button(description="Answer", button_style="success", layout=AUTO)
        decline = self._widgets.Button(description="No answer", layout=AUTO)
        question = _ButtonQuestion(request=request, buttons=[give, decline])
        give.on_click(lambda _: answer())
        decline.on_click(lambda _: self._end(question, request.decline))
        return question

    def _end(self, question: "_ButtonQuestion", answer: Callable[[], object]) -> None:
        """Gives an answer, once."""
        if not question.buttons[0].disabled:
            self._clicked()
            question.set_disabled(True)
            self._loop.call_soon_threadsafe(answer)  # widgets may be served by another thread

    def _question(self, request: ev.ApprovalRequest) -> "_ButtonQuestion":
        widgets, auto = self._widgets, AUTO
        approve = widgets.Button(description="Approve", button_style="success", layout=auto)
        deny = widgets.Button(description="Deny", button_style="danger", layout=auto)
        reason = widgets.Text(placeholder="reason for a denial (optional)", layout=_FIELD)
        question = _ButtonQuestion(
            request=request, buttons=[approve, deny], row=widgets.HBox([approve, deny, reason], layout=_ROW)
        )
        rows = [widgets.HTML(question_html(request)), question.row]

        def decide(decision: ev.Decision) -> None:
            if approve.disabled:
                return
            self._clicked()
            question.set_disabled(True)
            self._begin(self._decide(question, request, decision, rows[-1]))

        question.approve = lambda: decide(ev.Decision(allowed=True))
        approve.on_click(lambda _: decide(ev.Decision(allowed=True)))
        if isinstance(request.call, CodeAction):
            question.row.children = (approve, deny, self._edit_button(question, request.call.code, decide), reason)
        if isinstance(request.call, FanOut):
            choices = [self._model_button(name, dollars_spread(cost), decide) for name, cost in request.call.cheaper.items()]
            question.buttons += choices
            question.row.children = (approve, *choices, deny, reason)
        deny.on_click(lambda _: decide(ev.Decision(allowed=False, reason=reason.value.strip())))
        if request.suggested:
            suggested = ", ".join(request.suggested)
            pattern = question.pattern = widgets.Text(
                value=suggested, tooltip="what is allowed from now on: KIND:GLOB", layout=_FIELD
            )

            def always(remember: ev.Remember) -> None:
                own = pattern.value.strip()
                decide(ev.Decision(allowed=True, remember=remember, pattern=None if own in ("", suggested) else own))

            in_session = widgets.Button(description="Always in this session", layout=auto)
            in_project = widgets.Button(description="Always in this project", layout=auto)
            in_session.on_click(lambda _: always("session"))
            in_project.on_click(lambda _: always("project"))
            question.buttons += [in_session, in_project]
            rows += [widgets.HBox([in_session, in_project, pattern], layout=_ROW), widgets.HTML("")]
        question.box, question.rows = widgets.VBox(rows), len(rows)
        if isinstance(request.call, CodeAction):
            self._begin(self._try(question, None))
        return question

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Begins work on the event loop: widgets may be served by another thread."""

        def begin() -> None:
            task = self._loop.create_task(work, name="question in a notebook")
            self._working.add(task)
            task.add_done_callback(self._working.discard)

        self._loop.call_soon_threadsafe(begin)

    async def _decide(
        self, question: "_ButtonQuestion", request: ev.ApprovalRequest, decision: ev.Decision, told: Any
    ) -> None:
        if (now := await seen_otherwise(request, decision, question.seen.get(decision.code))) is not None:
            self._show_effects(question, now, decision.code)
            return
        try:
            request.decide(decision)
        except ValueError as error:  # the pattern is invalid: the question stays open
            told.value = f"<small>{escaped(visible(str(error)))}</small>"
            question.set_disabled(False)

    async def _try(self, question: "_ButtonQuestion", code: str | None) -> None:
        """Shows the effects of a cell. Args: code: a person's replacement for it."""
        assert isinstance(question.request, ev.ApprovalRequest)
        effects = await question.request.effects_ready(code)
        if not effects.off:
            self._show_effects(question, effects, code)

    def _show_effects(self, question: "_ButtonQuestion", effects: ev.Effects, code: str | None) -> None:
        """Shows effects below the code: buttons that move take no click for a moment."""
        if question.request.request_id not in self._open:
            return
        question.seen = {code: effects}
        changed = "" if code is None else '<div class="fsub-note">the code as you have changed it:</div>'
        question.box.children[0].value = question_html(question.request, changed + effects_html(effects))
        if isinstance(question.request, ev.ApprovalRequest) and getattr(question.pattern, "value", "") in ("code", HARMLESS):
            question.pattern.value = always_allows(question.request)[0]
        names = list(self._open)
        for name in names[names.index(question.request.request_id) :]:
            self._settle(self._open[name])

    def _offer_all(self, question: "_ButtonQuestion", number: int) -> None:
        """Shows the button that approves so many at once in a question's row, or takes it away."""
        every = question.approve_all
        if number > 1 and every is None:
            every = self._widgets.Button(button_style="success", layout=AUTO)
            every.on_click(lambda _: None if every.disabled else self._loop.call_soon_threadsafe(self._approve_all))
            question.approve_all = every
            question.buttons.append(every)
            question.row.children = (*question.row.children[:-1], every, question.row.children[-1])
        elif number <= 1 and every is not None:
            question.approve_all = None
            question.buttons.remove(every)
            question.row.children = tuple(part for part in question.row.children if part is not every)
            _close(every)
        if question.approve_all is not None:
            every.description = f"Approve all {number}"

    def _model_button(self, name: str, cost: str, decide: Callable[[ev.Decision], None]) -> Any:
        button = self._widgets.Button(description=f"Approve with {visible(name)}: {cost}", layout=AUTO)
        button.on_click(lambda _: decide(ev.Decision(allowed=True, model=name)))
        return button

    def _edit_button(self, question: "_ButtonQuestion", code: str, decide: Callable[[ev.Decision], None]) -> Any:
        """Makes a button that opens the code, to be changed and run; the model reads that it was changed."""
        widgets, auto = self._widgets, AUTO
        edit = widgets.Button(description="Edit", layout=auto)

        def opened(_: object) -> None:
            if edit.disabled or len(question.box.children) > question.rows:
                return
            rows = min(24, max(3, code.count("\n") + 2))
            area = widgets.Textarea(value=code, rows=rows, layout={"width": "auto", "flex": "1 1 auto"})
            run = widgets.Button(description="Run this", button_style="success", layout=auto)
            run.on_click(
                lambda _: decide(ev.Decision(allowed=True, code=area.value.strip("\n"))) if area.value.strip() else None
            )
            more = [run]
            if question.seen:
                more.append(widgets.Button(description="Try this", layout=auto))
                more[-1].on_click(lambda _: self._begin(self._try(question, area.value.strip("\n"))))
            question.buttons += more
            question.box.children = (*question.box.children, widgets.HBox([area, *more]))

        edit.on_click(opened)
        question.buttons.append(edit)
        return edit


def _panel_class(widgets: Any, asked_for: Callable[[], None]) -> Any:
    """Makes a class of panels that hear when a page asks for their state."""

    class Panel(widgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
        def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:
            if self.comm is not None and key is None:
                asked_for()
            return super().get_state(key=key, drop_defaults=drop_defaults)

    return Panel


@dataclass(kw_only=True, eq=False)
class _ButtonQuestion:
    """An open question and its widgets."""

    request: ev.ApprovalRequest | ev.QuestionRequest
    buttons: list[Any]
    box: Any = None
    timer: asyncio.TimerHandle | None = None
    """The timer that enables the buttons again."""
    since: float = 0.0
    """The time at which it was shown, on the event loop's clock."""
    approve: Callable[[], None] | None = None
    approve_all: Any = None
    pattern: Any = None
    """The field with the pattern of an "always"."""
    seen: dict[str | None, ev.Effects] = field(default_factory=dict)
    """The shown effects, by the code that a person wants to run instead; None: the cell's own."""
    row: Any = None
    """The action of an approval's button, the button that approves all if there is one, and the row of both."""
    rows: int = 0
    """Rows of the box, without code that is being changed."""

    def set_disabled(self, disabled: bool) -> None:
        for button in self.buttons:
            button.disabled = disabled

    def close(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        _close(self.box)


def _close(widget: Any) -> None:
    """Closes a widget with its children, layouts and styles, all of which live until they are closed."""
    for part in (*getattr(widget, "children", ()), widget.layout, getattr(widget, "style", None)):
        if hasattr(part, "layout"):
            _close(part)
        elif part is not None:
            part.close()
    widget.close()


class FieldWidgets:
    """The widgets that a person fills in for one question."""

    def __init__(self, widgets: Any, request: ev.QuestionRequest, on_pick: Callable[[], None]) -> None:
        """Args: widgets: the package ipywidgets. on_pick: called when a choice alone is the whole answer."""
        self._fields = request.fields
        self._picks: dict[str, list[Any]] = {}
        self._texts: dict[str, Any] = {}
        self._widgets = widgets
        self._on_pick = on_pick if len(request.fields) == 1 else lambda: None
        self.rows: list[Any] = []
        """Rows from top to bottom."""
        self.buttons: list[Any] = []
        for asked in request.fields:
            self._add(request, asked)

    def values(self) -> dict[str, Any]:
        """Returns the filled-in values by field; a text counts more than a choice beside it."""
        found: dict[str, Any] = {}
        for asked in self._fields:
            typed = self._texts[asked.name].value if asked.name in self._texts else ""
            found[asked.name] = typed if typed.strip() else self._picked(asked)
        return found

    def _picked(self, field: ev.QuestionField) -> Any:
        values: Sequence[Any] = field.choices or ("yes", "no")
        picks = self._picks.get(field.name, [])
        picked = [value for value, button in zip(values, picks, strict=False) if button.value]
        if field.kind == "choices":
            return picked or None
        return picked[0] if picked else None

    def _add(self, request: ev.QuestionRequest, field: ev.QuestionField) -> None:
        words = heading(request, field)
        if field.default is not None:
            words = f"{words} (nothing means {shown_default(field)})".strip()
        elif not field.required:
            words = f"{words} (may be left out)".strip()
        if words:
            self.rows.append(self._widgets.HTML(f"<b>{escaped(words)}</b>"))
        if field.rows:
            picks = [self._widgets.ToggleButton(description=row, tooltip=row, layout=AUTO) for row in numbered(field)]
            for pick in picks:
                pick.observe(lambda change, pick=pick: self._toggled(field, pick, change["new"]), names="value")
            self._picks[field.name] = picks
            self.buttons += picks
            self.rows.append(self._widgets.VBox(picks))
        if not field.rows or field.other:
            text = self._widgets.Textarea(placeholder="or your own answer" if field.other else "", rows=1, layout=WIDE)
            self._texts[field.name] = text
            self.rows.append(text)

    def _toggled(self, field: ev.QuestionField, picked: Any, is_on: bool) -> None:
        """Turns all other choices off, except where several may be on."""
        if not is_on or field.kind == "choices":
            return
        for other in self._picks[field.name]:
            if other is not picked:
                other.value = False
        if field.name in self._texts:
            self._texts[field.name].value = ""
        self._on_pick()
