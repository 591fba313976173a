"""`Person`: takes a person's prompts, commands, answers and keys."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from freeact_sub.cells import CELL_TOOL
from freeact_sub.events import QuestionRequest
from freeact_sub.terminal.commands.orders import TypedCommand
from freeact_sub.terminal.commands.settings import next_mode
from freeact_sub.terminal.commands.table import offers, run_command
from freeact_sub.terminal.conversation.console import Console, Steering
from freeact_sub.terminal.drawing.children import present_children
from freeact_sub.terminal.driver import Purpose
from freeact_sub.terminal.input.offered import ServerOffers
from freeact_sub.terminal.questions.keys import DecisionKeys

if TYPE_CHECKING:  # slow to import
    from freeact_sub.mcp import McpServers

STAYS: Final = (
    "not moved: a cell has its kernel's main thread until it ends, and no other cell runs beside it (Esc cancels it; "
    "a child in the background, or asyncio.create_task in the code, works beside the conversation)"
)
WORDS: Final = {"clear": "/clear", "help": "/help", "?": "/help"}
"""Lines that are commands in other programs, besides those that leave."""


class Person(Console):
    """The screen's `Keyboard`."""

    def __init__(self, conversation: Steering) -> None:
        super().__init__(conversation)
        self._of_servers = ServerOffers(self._servers, self.result_of)

    def enter(self, text: str) -> None:
        """Handles a command, an answer, a message to the agent at work, or the next prompt."""
        self.display.hint("")
        self.present.asked_to_leave = None
        if isinstance(self.display.questions.current, QuestionRequest):
            typed = self.display.screen.line.pastes.unfolded(text)
            self.display.questions.answer(typed, takes_highlighted=self.display.highlights)
            self.display.refresh()
            return
        text = text.strip()
        if re.fullmatch(r"(?i)(?:exit|quit)(?:\(\))?|:q", text):
            self.leave()
        elif self.display.questions.current is None and (command := WORDS.get(text.lower())):
            run_command(self, command)
        elif text.startswith("!") and self.display.questions.current is None:
            self._run_command(self.display.screen.line.pastes.unfolded(text[1:]).strip())
        elif re.fullmatch(r"/([a-z][a-z0-9_-]*)?(\s(.|\n)*)?", text):
            # one's own command is a prompt: what was pasted into it is unfolded in its turn
            is_own = text.split()[0] in self.present.own_commands
            run_command(self, text if is_own else self.display.screen.line.pastes.unfolded(text))
        elif text and self.display.questions.current is None:
            self.say(text)
        elif not text and self.present.waiting.typed and self.present.phase == "running":
            self.send_waiting()
        elif text and not self.display.questions.answer(text):
            self.display.note(
                f"not an answer: {text} (a pattern is KIND:GLOB, such as shell:git push *; /2 shows the second question)"
            )
        self.display.refresh()

    def answer_key(self, key: str) -> bool:
        """Handles a single key at an open question and an empty line. Returns False if it begins a text."""
        if self.display.questions.current is None:
            return False
        taken = self._decisions().press(key)
        self.display.refresh()
        return taken

    def written(self, purpose: Purpose, text: str) -> None:
        """Handles the text that the person wrote for a question (`InputLine.lend`)."""
        self._decisions().written(purpose, text)
        self.display.refresh()

    def tell(self, text: str) -> None:
        """Prints a note for the person."""
        self.display.note(text)

    def show_all(self) -> None:
        """Shows the open question's call, or all that the agent has done, for Ctrl-O."""
        if (request := self.display.questions.current) is not None:
            self.display.page_drawn(self.display.drawn_question(request))
        else:
            self.display.page_agent(self.display.views.root)

    def show_child(self) -> None:
        """Shows the only child, or the child that asks, else the menu of `/show`, for Ctrl-T."""
        request = self.display.questions.current
        asks = self.display.views.of(request) if request is not None else None
        if asks is not None and asks.parent_id is not None:
            self.display.page_agent(asks)
        elif len(children := present_children(self.display.views)) == 1:
            self.display.page_agent(children[0])
        elif children and request is None:
            self.display.screen.line.offer("/show ")
        else:
            self.display.hint("/show NAME shows a child" if children else "no child has started")
        self.display.refresh()

    @property
    def runs_cell(self) -> bool:
        """Whether a cell of the root runs now."""
        root = self.display.views.root
        return root is not None and any(call.tool_name == CELL_TOOL for call in root.calls)

    def to_background(self) -> None:
        """Says why a running cell stays where it is, for Ctrl-B."""
        self.display.hint(STAYS)
        self.display.refresh()

    @property
    def waits(self) -> bool:
        """Whether a model request waits until it is made again."""
        return any(story.pause for story in self.display.views.in_order())

    def try_now(self) -> None:
        """Makes the requests that wait, for Ctrl-N."""
        if self.present.agent is not None:
            self.present.agent.try_now()

    def interrupt(self) -> None:
        """Cancels or leaves, for Ctrl-C."""
        self._conversation.interrupts.interrupt()

    def escape(self) -> None:
        """Acts like the first Ctrl-C if there is something to cancel, for Escape. A second Escape does nothing."""
        current = self.display.questions.current
        if self.display.questions.asks_back:
            self.display.questions.answer("n")
            self.display.refresh()
        elif isinstance(current, QuestionRequest):
            current.decline()
            self.display.questions.withdraw(current.request_id)
            self.display.refresh()
        elif self.present.phase == "running":
            self._conversation.interrupted(must_end=False)

    def offers(self, line: str) -> Iterable[tuple[str, str]]:
        """Return completions of a line with `/`, or of `@word`, each with its meaning. Called in another thread."""
        return [*(offers(self, line) if line.startswith("/") else ()), *self._of_servers.of(line)]

    def take_back(self) -> str:
        """Takes back the last waiting prompt, for the up arrow key at an empty line; empty if none waits."""
        last = self.present.waiting.typed[-1:]
        self.present.waiting.take_back(1)
        self.display.refresh()
        return "".join(last)

    @property
    def may_go_back(self) -> bool:
        """Whether Escape, pressed twice, now goes back to an earlier prompt."""
        return self.present.phase == "idle" and not self.present.waiting.count

    def go_back(self) -> None:
        """Handles Escape, pressed twice."""
        if self.present.agent is not None and self.present.agent.undoable:
            self.display.screen.line.offer("/rewind ")
        else:
            self.display.hint("no prompt to go back to")
        self.display.refresh()

    def next_mode(self) -> None:
        """Handles Shift-Tab."""
        next_mode(self)
        self.display.refresh()

    def _decisions(self) -> DecisionKeys:
        display = self.display
        return DecisionKeys(display.questions, display.screen, display.note, display.list_whole)

    def _run_command(self, command: str) -> None:
        if not command:
            self.display.note("type a command after !, such as !git status")
        elif self.present.once:
            self.display.note("! works only in a conversation")
        else:
            self.present.waiting.put(TypedCommand(command=command))

    def _servers(self) -> "McpServers | None":
        agent = self.present.agent
        return agent.servers if agent is not None and agent.is_open else None
