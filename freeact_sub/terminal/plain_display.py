"""`PlainDisplay`: a conversation in plain lines, for terminals that cannot move their cursor and for screen readers.

Nothing that is printed changes afterwards. There are no colours, boxes or marks. Agents have names, and you type words to
answer questions. The work of the root is printed in full, and the main steps of its children; `/show` prints the rest.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from rich.console import RenderableType

from freeact_sub import events as ev
from freeact_sub.show import blocks as bl
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.effect_lines import effect_lines
from freeact_sub.terminal.asking import NOTHING, field_lines, question_lines
from freeact_sub.terminal.display import Display
from freeact_sub.terminal.plain_lines import PlainLines
from freeact_sub.terminal.surface import Keyboard, OtherProgram, PlainScreen
from freeact_sub.text import counted, one_line, visible

KEYS: Final = (
    ("Enter", "send the prompt; while the agent works it waits, and Enter at an empty line sends what waits now"),
    ("\\", "at the end of a line: the prompt goes on in the next one"),
    ("@ !", "@ names a file whose content goes along, ! runs a command"),
    ("y n", "answer a question; a: yes, always in this session; p: in this project; any other text is why not"),
    ("e A ?", "at a question: change the code, print all questions and then answer yes to them, ask why it is asked"),
    ("Ctrl-C", "cancel the run; once more quits at once"),
    ("/2", "of several open questions, the second one"),
)


FOLD_LINES: Final = 12
"""Lines of code, of a prompt, or of a tool's result."""
OUTPUT_LINES: Final = 40
"""Lines of one cell's output."""
SLOW_SECONDS: Final = 2.0
TYPE: Final = "type {hint}, then Enter; Ctrl-D gives no answer"


class PlainDisplay(Display):
    """A display that prints each event, and nothing twice."""

    by_keys = False

    has_pages = draws_pictures = False

    keys = KEYS
    screen: PlainScreen

    def _make_screen(self, keyboard: Keyboard, other_program: OtherProgram) -> PlainScreen:
        return PlainScreen(keyboard, other_program=other_program, is_free=self._is_free)

    def forget(self) -> None:
        """Forget all agents."""
        super().forget()
        self.views.called = self._called
        self._lines = PlainLines(self.views, self._name)
        self._printed: Counter[tuple[str, str | None]] = Counter()
        """Lines of output of each cell, by agent and `tool_call_id`."""
        self._code: str | None = None
        """The call that was printed last, in full, until something else is printed."""
        self._asked: tuple[str | None, int, int] = NOTHING
        self._asked_back = ""
        self._waited: list[str] = []

    def _draw(self, event: ev.AgentEvent, found: Sequence[bl.StoryBlock]) -> None:
        entered, told = self.screen.line.entered, []
        cell = (event.agent_id, event.tool_call_id)
        for block in found:
            if isinstance(block, bl.Decided | bl.Answered) and block.of.request_id == self.questions.current_id:
                self.screen.post_raw("this question is closed\n")
            if isinstance(block, bl.Prompt) and event.parent_id is None and block.of.prompt.strip() in entered:
                entered.remove(block.of.prompt.strip())  # it stands there, as it was typed
            elif not block.title or isinstance(block, bl.Approval | bl.QuestionAsked):
                continue  # those are printed where they are asked
            elif self._verbose:
                told.append(block)
            elif is_told(block, is_root=event.parent_id is None):
                told += self._folded(cell, block)
        if text := self._lines.write(event, told):
            self._code = event.tool_call_id if told == [*found] and isinstance(found[0], bl.CallStep) else None
            self.screen.post_raw(text)
        left = self._printed.pop(cell, 0) - OUTPUT_LINES if any(isinstance(block, bl.CellEnd) for block in found) else 0
        if left > 0:
            name = self._called(event.agent_id)
            self.screen.post_raw(f"{counted(left, 'more line')} of output are not printed here (/show {name} prints them)\n")

    def _folded(self, cell: tuple[str, str | None], block: bl.StoryBlock) -> Iterator[bl.StoryBlock]:
        """Yield the block without texts too long to be read in between; nothing if it is the end of a cell like others."""
        if isinstance(block, bl.Output) and block.goes_on:
            room = max(0, OUTPUT_LINES - self._printed[cell])
            self._printed[cell] += sum(part.text.count("\n") + 1 for part in block.parts)
            block = _cut(block, room)
            yield from [block] if block.parts else []
        elif isinstance(block, bl.Prompt | bl.CallStep | bl.CallEnd):
            yield _cut(block, FOLD_LINES, "and {} (/show prints all)")
        elif isinstance(block, bl.CellEnd) and block.of.status == "ok" and block.of.seconds < SLOW_SECONDS:
            yield from [replace(block, detail="")] if block.parts else []
        else:
            yield block

    def _name(self, view: AgentStory) -> str:
        """Return `agent` for the root; for a child its label, type or short id, whichever says more and fits it alone."""
        view = self.views.by_id.get(view.agent_id, view)
        if view.parent_id is None:
            return "agent"
        for words in (view.label, view.agent_type):
            same = [other for other in self.views.by_id.values() if words in (other.label, other.agent_type)]
            if words and len(same) == 1:
                return one_line(words)
        return self.views.name(view)

    def _called(self, agent_id: str) -> str:
        view = self.views.by_id.get(agent_id)
        return "an agent" if view is None else self._name(view)

    def hint(self, text: str) -> None:
        """Print the note."""
        if text:
            self.note(text)

    def refresh(self) -> None:
        """Print the open question, once, and the prompts that wait."""
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
            self.screen.post_raw(f"{self._asked_back.replace(' · ', ', ')}\n" if self._asked_back else "")
        waiting, entered = self._present.waiting.typed, self.screen.line.entered
        for prompt in [prompt for prompt in waiting if prompt not in self._waited]:
            if prompt in entered and not self._present.waiting.began_at_once:
                entered.remove(prompt)
                self.screen.post_raw(f"waits for its turn: {visible(prompt)}\n")
        self._waited = [*waiting]
        self.screen.refresh(self.questions.shown_id)

    def _ask(self, request: ev.ApprovalRequest | ev.QuestionRequest, *, goes_on: bool) -> None:
        """Print a question. Args: goes_on: whether only its next field is printed, or the same one again."""
        view = self.views.of(request)
        who = self._name(view)
        head, text, *notes = question_lines(self.questions, request, who)
        told = (
            isinstance(request, ev.ApprovalRequest)
            and self._code is not None
            and self._code == request.tool_call_id
            and view.has_shown(request)
        )  # all that it asks about stands right above
        if isinstance(request, ev.QuestionRequest):
            notes = field_lines(self.questions, TYPE) or [f"({TYPE.format(hint='the answer')})"]
        lines = [head, *([] if told else [text])] if not goes_on else []
        self.screen.post_raw("\n".join([*filter(None, [*lines, *notes]), ""]))
        if isinstance(request, ev.ApprovalRequest) and not goes_on:
            self._tried.begin(request)

    def _show_effects(self, request: ev.ApprovalRequest, effects: ev.Effects) -> None:
        if request in self.questions.waiting:
            self.screen.open_question(self.questions.shown_id)
            self.screen.post_raw("\n".join([*(line.text for line in effect_lines(effects)), ""]))
        self.refresh()

    def page_agent(self, view: AgentStory | None) -> None:
        """Print all that an agent has done."""
        if view is None:
            self.note("nothing to show yet")
            return
        views = Stories()
        views.called, told = self._called, PlainLines(views, self._name)
        lost, entries = self._records.since(view.agent_id, 0)
        self.screen.post_raw(f"earlier entries that are not kept: {lost:,}\n" if lost else "")
        for entry in entries:
            if isinstance(entry, ev.AgentEvent):
                views.observe(entry)
                self.screen.post_raw(told.write(entry))

    def page_drawn(self, drawn: RenderableType) -> None:
        """Print a long drawing."""
        self.print(drawn)

    def _is_free(self) -> bool:
        return self._present.waiting.is_awaited and self.questions.current is None


def is_told(block: bl.StoryBlock, *, is_root: bool) -> bool:
    """Return whether a block is printed without `--verbose`."""
    match block:
        case bl.CallStep(tool_name="task"):
            return False  # a child tells that it starts, and its end
        case bl.CallEnd() if block.of.tool_name == "task" and block.of.outcome == "success":
            return False
        case bl.Decided() if block.of.allowed and block.of.code is None and block.of.model is None:
            return False
    return not block.is_repeated and (is_root or bool(block.line) or block.reaches_parents or isinstance(block, bl.Said))


def _cut(block: bl.StoryBlock, most: int, note: str = "") -> bl.StoryBlock:
    """Return the block with the first lines of its text. Args: note: stands for the others."""
    kept = []
    for part in block.parts:
        lines = part.text.split("\n")
        more = [note.format(counted(len(lines) - most, "more line"))] if note else []
        kept += [part] if len(lines) <= most else [replace(part, text="\n".join([*lines[:most], *more]))] if most else []
        most = most if note else max(0, most - len(lines))
    return block if tuple(kept) == block.parts else replace(block, parts=tuple(kept))
