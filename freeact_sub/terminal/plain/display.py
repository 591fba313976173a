"""`PlainDisplay`: a conversation in plain lines."""

from typing import Final

from rich.console import RenderableType

from freeact_sub.events import (
    AgentEvent,
    AgentStarted,
    ApprovalDecided,
    ApprovalRequest,
    Effects,
    Event,
    QuestionAnswered,
    QuestionRequest,
)
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.effect_lines import effect_lines
from freeact_sub.show.rows import Row
from freeact_sub.terminal.approver import NOTHING, field_lines, question_lines
from freeact_sub.terminal.conversation.display import Display
from freeact_sub.terminal.driver import Keyboard, OtherProgram
from freeact_sub.terminal.plain.screen import PlainScreen
from freeact_sub.terminal.plain.spoken import SpokenStory
from freeact_sub.text import visible

KEYS: Final = (
    ("Enter", "send the prompt; while the agent works it waits, and Enter at an empty line sends what waits now"),
    ("\\", "at the end of a line: the prompt goes on in the next one"),
    ("@ !", "@ names a file whose content goes along, ! runs a command"),
    ("y n", "answer a question; a: yes, always in this session; p: in this project; any other text is why not"),
    ("e A ?", "at a question: change the code, print all questions and then answer yes to them, ask why it is asked"),
    ("Ctrl-C", "cancel the run; once more quits at once"),
    ("/2", "of several open questions, the second one"),
)


TYPE: Final = "type {hint}, then Enter; Ctrl-D gives no answer"


class PlainDisplay(Display):
    """Prints what happens, and nothing twice."""

    highlights = False

    has_pages = False

    keys = KEYS
    screen: PlainScreen

    def _make_screen(self, keyboard: Keyboard, other_program: OtherProgram) -> PlainScreen:
        return PlainScreen(keyboard, other_program=other_program, is_free=self._is_free)

    def forget(self) -> None:
        """Forgets all agents."""
        super().forget()
        self._spoken = SpokenStory(self.views, everyone=self._verbose)
        self._asked: tuple[str | None, int, int] = NOTHING
        self._asked_back = ""
        self._waited: list[str] = []

    def _draw(self, event: Event, found: list[Row]) -> None:
        if isinstance(event, ApprovalDecided | QuestionAnswered) and event.request_id == self.questions.current_id:
            self.screen.post_raw("this question is closed\n")
        entered = self.screen.line.entered
        if isinstance(event, AgentStarted) and event.parent_id is None and event.prompt.strip() in entered:
            entered.remove(event.prompt.strip())  # it stands there, as it was typed
            return
        self.screen.post_raw(self._spoken.tell(event, found))

    async def draw_files(self, event: Event) -> None:
        """Names the files that a cell has written."""
        if (changes := await self._written.after(event)) is not None:
            self.print(changes)

    def hint(self, text: str) -> None:
        """Prints the note."""
        if text:
            self.note(text)

    def refresh(self) -> None:
        """Prints the open question, once, and the prompts that wait."""
        request = self.questions.current
        self.screen.line.expects = self._expected()
        if (place := self.questions.place) != self._asked:
            goes_on, self._asked = place[0] == self._asked[0], place
            if not goes_on:
                self.screen.open_question(self.questions.shown_id)
            if request is not None:
                self._ask(request, goes_on=goes_on)
        if self.questions.asks_back != self._asked_back:
            self._asked_back = self.questions.asks_back
            self.screen.post_raw(f"{self._asked_back}\n" if self._asked_back else "")
        waiting, entered = self._present.waiting.typed, self.screen.line.entered
        for prompt in [prompt for prompt in waiting if prompt not in self._waited]:
            if prompt in entered and not self._present.waiting.began_at_once:
                entered.remove(prompt)
                self.screen.post_raw(f"waits for its turn: {visible(prompt)}\n")
        self._waited = [*waiting]
        self.screen.refresh(self.questions.shown_id)

    def _ask(self, request: ApprovalRequest | QuestionRequest, *, goes_on: bool) -> None:
        """Prints a question. Args: goes_on: only its next field, or the same one again."""
        who = self._spoken.name(self.views.of(request))
        head, text, *notes = question_lines(self.questions, request, who)
        told = isinstance(request, ApprovalRequest) and self._spoken.has_just_told(request)
        if isinstance(request, QuestionRequest):
            notes = field_lines(self.questions, TYPE) or [f"({TYPE.format(hint='the answer')})"]
        lines = [head, *([] if told else [text])] if not goes_on else []
        self.screen.post_raw("\n".join([*filter(None, [*lines, *notes]), ""]))
        if isinstance(request, ApprovalRequest) and not goes_on:
            self._tried.begin(request)

    def _show_effects(self, request: ApprovalRequest, effects: Effects) -> None:
        if request in self.questions.waiting:
            self.screen.open_question(self.questions.shown_id)
            self.screen.post_raw("\n".join([*(line.text for line in effect_lines(effects)), ""]))
        self.refresh()

    def page_agent(self, view: AgentStory | None) -> None:
        """Prints all that an agent has done."""
        if view is None:
            self.note("nothing to show yet")
            return
        views = Stories()
        told = SpokenStory(views, everyone=True)
        lost, entries = self._records.since(view.agent_id, 0)
        self.screen.post_raw(f"earlier entries that are not kept: {lost:,}\n" if lost else "")
        for entry in entries:
            if isinstance(entry, AgentEvent):
                views.observe(entry)
                self.screen.post_raw(told.tell(entry))

    def page_drawn(self, drawn: RenderableType) -> None:
        """Prints something long."""
        self.print(drawn)

    def _is_free(self) -> bool:
        return self._present.waiting.is_awaited and self.questions.current is None
