"""Approvals in a notebook: by buttons, or by `input()`; asked beside the reading loop, never in it.

Which of the two cannot be seen from the protocol, so `auto` goes by what is known, from best to worst:

1. nobody answers input requests (nbclient, papermill): every question is denied, with that reason;
2. a notebook runs the cell and ipywidgets is installed: buttons. A front end that knows no widgets says so, by closing the
   widget's connection: then the open questions, and all later ones, are asked as text;
3. else, text: consoles, and notebooks without ipywidgets.

Buttons stand above the blocks, where they do not move while the blocks grow. Several may be open; any may be answered at
any time. Text questions are asked one after another (see `shell.py` for their limits).
"""

import asyncio
import contextlib
import importlib.util
import logging
import uuid
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from freeact_sub.answers import always_means, read_answer
from freeact_sub.cells import MimeBundle
from freeact_sub.closing import end_task
from freeact_sub.errors import FreeactError
from freeact_sub.events import ApprovalRequest, Decision, Remember
from freeact_sub.notebook.markup import escaped
from freeact_sub.notebook.render import question_html, question_text
from freeact_sub.notebook.screen import Screen
from freeact_sub.notebook.shell import NobodyToAskError, ask_line, from_notebook, running_kernel, stdin_allowed
from freeact_sub.text import visible

logger = logging.getLogger(__name__)

Questions: TypeAlias = Literal["auto", "buttons", "input"]
"""How approvals are asked. `auto`: buttons where there can be some, else `input()`."""

_NOTHING: MimeBundle = {"text/html": "", "text/plain": ""}

_PANEL = {"border": "1px solid #e08e00", "padding": "4px 8px", "margin": "2px 0 10px 0"}

_CHOICE = "Approve? yes / no / always (in this session) / project (always in it), or a reason for no: "


class Asking:
    """Asks in the way that was chosen, and takes all questions away at its exit."""

    def __init__(self, questions: Questions, screen: Screen) -> None:
        """Args: questions: the way. screen: where buttons are shown.

        Raises:
            FreeactError: Buttons are asked for, and cannot be had.
        """
        self._text = TextAsking()
        self._buttons = ButtonAsking(screen, on_refused=self._use_text) if _wants_buttons(questions) else None

    def ask(self, request: ApprovalRequest) -> None:
        """Put a question up, and return at once; the answer goes to the request."""
        (self._buttons or self._text).ask(request)

    def withdraw(self, request_id: str) -> None:
        """Take a question away: it was answered, here or elsewhere, or its run was cancelled."""
        (self._buttons or self._text).withdraw(request_id)

    async def __aenter__(self) -> Self:
        self._text.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._buttons is not None:
            self._buttons.close()
        await self._text.aclose()

    def _use_text(self) -> None:
        if self._buttons is not None:
            still_open = self._buttons.close()
            self._buttons = None
            for request in still_open:
                self._text.ask(request)


class TextAsking:
    """Asks one question after another, as lines of text."""

    def __init__(self, ask: Callable[[str], Coroutine[Any, Any, str]] = ask_line) -> None:
        """Args: ask: shows a prompt and returns the line that is typed; see `ask_line`."""
        self._ask_line = ask
        self._waiting: dict[str, ApprovalRequest] = {}
        self._changed = asyncio.Event()
        self._asked: tuple[str, asyncio.Task[str]] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to ask."""
        self._task = asyncio.create_task(self._ask_all(), name="notebook questions")

    async def aclose(self) -> None:
        """Stop asking."""
        if self._task is not None:
            await end_task(self._task)

    def ask(self, request: ApprovalRequest) -> None:
        """See `Asking.ask`."""
        self._waiting[request.request_id] = request
        self._changed.set()

    def withdraw(self, request_id: str) -> None:
        """See `Asking.withdraw`."""
        self._waiting.pop(request_id, None)
        if self._asked is not None and self._asked[0] == request_id:
            self._asked[1].cancel()

    async def _ask_all(self) -> None:
        while True:
            while not self._waiting:
                self._changed.clear()
                await self._changed.wait()
            request_id = next(iter(self._waiting))
            await self._ask(self._waiting.pop(request_id))

    async def _ask(self, request: ApprovalRequest) -> None:
        """Ask until there is an answer, or the question is withdrawn."""
        means = always_means(request)
        prompt = f"{question_text(request)}\n{f'({means})' if means else ''}\n{_CHOICE}"
        while True:
            line = asyncio.create_task(self._ask_line(prompt))
            self._asked = (request.request_id, line)
            try:
                await asyncio.wait({line})
            finally:
                self._asked = None
                line.cancel()
            if line.cancelled():
                return
            error = line.exception()
            if error is None:
                decision = read_answer(line.result())
            elif isinstance(error, NobodyToAskError):
                decision = Decision(allowed=False, reason=str(error))
            else:
                logger.error("a question could not be asked", exc_info=error)
                decision = Decision(allowed=False, reason=f"the question could not be asked: {error}")
            with contextlib.suppress(ValueError):  # the pattern is none: it is asked again
                if decision is not None:
                    request.decide(decision)
                    return


class ButtonAsking:
    """Asks with buttons, all open questions at once."""

    def __init__(self, screen: Screen, *, on_refused: Callable[[], None]) -> None:
        """Args: screen: where they are shown. on_refused: called when the front end turns out to know no widgets."""
        import ipywidgets  # noqa: PLC0415  # an extra: whoever has none is asked as text

        self._widgets: Any = ipywidgets
        self._screen = screen
        self._loop = asyncio.get_running_loop()
        self._on_refused = on_refused
        self._open: dict[str, tuple[ApprovalRequest, Any]] = {}
        self._panel: Any = None
        self._display_id = f"freeact-questions-{uuid.uuid4().hex[:12]}"
        self._screen.publish(self._display_id, _NOTHING, update=False)

    def ask(self, request: ApprovalRequest) -> None:
        """See `Asking.ask`."""
        if self._panel is None:
            self._panel = self._widgets.VBox(layout=_PANEL)
            self._panel.comm.on_close(lambda _: self._loop.call_soon_threadsafe(self._on_refused))
        first = not self._open
        self._open[request.request_id] = (request, self._question(request))
        self._show(changed=first)

    def withdraw(self, request_id: str) -> None:
        """See `Asking.withdraw`."""
        _, box = self._open.pop(request_id, (None, None))
        if box is not None:
            self._show(changed=not self._open)
            _close(box)

    def close(self) -> list[ApprovalRequest]:
        """Take all questions away; returns those that were open."""
        still_open = [request for request, _ in self._open.values()]
        for request in still_open:
            self.withdraw(request.request_id)
        if self._panel is not None:
            _close(self._panel)
        return still_open

    def _show(self, *, changed: bool) -> None:
        """Without questions nothing is shown: a saved notebook keeps no buttons that answer to nobody."""
        self._panel.children = tuple(box for _, box in self._open.values())
        if changed:
            bundle = self._panel._repr_mimebundle_() if self._open else _NOTHING  # IPython's protocol
            self._screen.publish(self._display_id, bundle, update=True)

    def _question(self, request: ApprovalRequest) -> Any:
        widgets, auto = self._widgets, {"width": "auto"}
        approve = widgets.Button(description="Approve", button_style="success", layout=auto)
        deny = widgets.Button(description="Deny", button_style="danger", layout=auto)
        reason = widgets.Text(placeholder="reason for a denial (optional)", layout={"width": "22em"})
        buttons = [approve, deny]
        rows = [widgets.HTML(question_html(request)), widgets.HBox([approve, deny, reason])]

        def settle(decision: Decision) -> None:
            try:
                request.decide(decision)
            except ValueError as error:  # the pattern is none: the question stays
                rows[-1].value = f"<small>{escaped(visible(str(error)))}</small>"
                for button in buttons:
                    button.disabled = False

        def decide(decision: Decision) -> None:
            for button in buttons:
                button.disabled = True
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
            buttons += [in_session, in_project]
            rows += [widgets.HBox([in_session, in_project, pattern]), widgets.HTML("")]
        return widgets.VBox(rows)


def _wants_buttons(questions: Questions) -> bool:
    installed = importlib.util.find_spec("ipywidgets") is not None
    if questions == "buttons":
        if running_kernel() is None:
            raise FreeactError("buttons need a notebook: use questions='input' here")
        if not installed:
            raise FreeactError("buttons need ipywidgets: pip install 'freeact-sub[notebook]', or use questions='input'")
        return True
    return questions == "auto" and installed and from_notebook() and stdin_allowed()


def _close(widget: Any) -> None:
    """Close a widget and all that belongs to it: widgets, and their layouts and styles, live until they are closed."""
    for part in (*getattr(widget, "children", ()), widget.layout, getattr(widget, "style", None)):
        if hasattr(part, "layout"):
            _close(part)
        elif part is not None:
            part.close()
    widget.close()
