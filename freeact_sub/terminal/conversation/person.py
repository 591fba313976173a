"""`Person`: takes a person's prompts, commands, answers and keys."""

import asyncio
import re
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final

from freeact_sub.agent_names import agents_meant, candidates
from freeact_sub.cells import CELL_TOOL
from freeact_sub.events import QuestionRequest
from freeact_sub.show.agents_at_work import find_agent
from freeact_sub.terminal.commands.orders import TypedCommand
from freeact_sub.terminal.commands.settings import next_mode
from freeact_sub.terminal.commands.table import Result, offers, run_command
from freeact_sub.terminal.conversation.ports import Steering
from freeact_sub.terminal.conversation.present import Present
from freeact_sub.terminal.drawing.children import present_children
from freeact_sub.terminal.driver import Purpose
from freeact_sub.terminal.input.offered import ServerOffers, asks_servers
from freeact_sub.terminal.questions.keys import DecisionKeys
from freeact_sub.text import shortened

if TYPE_CHECKING:  # slow to import, and what belongs to it
    from freeact_sub.mcp import McpServers
    from freeact_sub.terminal.conversation.display import Display

NOTE_CHARS: Final = 500
LOOKING_SECONDS: Final = 2.0
STAYS: Final = (
    "not moved: a cell has its kernel's main thread until it ends, and no other cell runs beside it (Esc cancels it; "
    "a child in the background, or asyncio.create_task in the code, works beside the conversation)"
)
WORDS: Final = {"clear": "/clear", "help": "/help", "?": "/help"}
"""Lines that are commands in other programs, besides those that leave."""


class Person:
    """The screen's `Keyboard`, and the `Console` of commands."""

    def __init__(self, conversation: Steering) -> None:
        """Args: conversation: what the person takes part in."""
        self._conversation = conversation
        self.present: Present = conversation.present
        self._loop = asyncio.get_running_loop()
        self._of_servers = ServerOffers(self._servers, self.result_of)

    @property
    def display(self) -> "Display":
        """What is shown."""
        return self._conversation.display

    # Of `Keyboard`

    def enter(self, text: str) -> None:
        """Handles a command, an answer, a message to the agent at work, or the next prompt."""
        self.display.hint("")
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
        taken = DecisionKeys(self.display.questions, self.display.screen, self.display.note).press(key)
        self.display.refresh()
        return taken

    def written(self, purpose: Purpose, text: str) -> None:
        """Handles the text that the person wrote for a question (`InputLine.lend`)."""
        DecisionKeys(self.display.questions, self.display.screen, self.display.note).written(purpose, text)
        self.display.refresh()

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

    def leave(self) -> None:
        """Cancels the run and ends: for Ctrl-D, `/exit`, `exit`, or when the terminal is gone."""
        self._conversation.leave()

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

    def _run_command(self, command: str) -> None:
        if not command:
            self.display.note("type a command after !, such as !git status")
        elif self.present.once:
            self.display.note("! works only in a conversation")
        else:
            self.present.waiting.put(TypedCommand(command=command))

    def say(self, text: str) -> None:
        """Queues a prompt; in a program with one prompt it goes to the agent."""
        present = self.present
        if not present.once:
            present.waiting.put(text)
        elif not self._tells(text):
            self.display.note(f"not sent, the run is about to end: {shortened(text, NOTE_CHARS)}")

    def _tells(self, text: str) -> bool:
        run = self.present.run
        if run is None or not run.send(self._conversation.content_of(text)):
            return False
        self.display.note(f"sent to the agent: {shortened(text, NOTE_CHARS)}")
        return True

    def _servers(self) -> "McpServers | None":
        agent = self.present.agent
        return agent.servers if agent is not None and agent.is_open else None

    # Of `Console`

    @property
    def may_change_settings(self) -> bool:
        """Whether another agent can continue the session."""
        return self._conversation.may_change_settings

    def result_of(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Calls a function in the conversation's loop. Called in another thread.

        Raises:
            TimeoutError: It takes longer than `LOOKING_SECONDS`.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(LOOKING_SECONDS)
        except TimeoutError:
            future.cancel()
            raise

    def send_waiting(self) -> None:
        """Sends the waiting prompts to the agent at work."""
        waiting = self.present.waiting
        prompts = waiting.take_back(kinds=str) if self.present.phase == "running" else []
        names = self.present.config.mcp_servers
        later = [prompt for prompt in prompts if asks_servers(prompt, names)]
        unread = [prompt for prompt in prompts if prompt not in later and not self._tells(prompt)]
        for prompt in prompts:
            if prompt in later or prompt in unread:
                waiting.put(prompt)
        if later:
            self.display.note(f"stays a prompt of its own, for which a server is asked: {shortened(later[0], NOTE_CHARS)}")
        if unread or not prompts:
            self.display.note("the agent takes no more messages in this run")

    def control(self, name: str, who: str, text: str) -> None:
        """Cancels an agent, puts it into focus, or sends it a message."""
        present = self.present
        run = present.run
        may_be_a_child = name == "/cancel" and who  # it may be at work in the background
        if present.agent is None or (run is None and not may_be_a_child):
            self.display.note("no agent is at work")
            return
        try:
            agent = find_agent(present.agent.agents(), who or present.agent.agent_id, self.display.views.labels)
        except LookupError as error:
            self.display.note(str(error))
            return
        is_root, called = agent.parent_id is None, self.display.name(agent)
        match name:
            case "/cancel" if is_root:
                self._conversation.cancel()
            case "/cancel":
                present.agent.cancel(agent.agent_id)
            case "/focus":
                present.focus = None if is_root else agent
                self.display.note(f"Ctrl-C cancels {'the run' if is_root else f'{called} first, then the run'}")
            case _ if run is not None and run.send(text, agent.agent_id):
                self.display.note(f"sent to {called}: {text}")
            case _:
                self.display.note(f"{called} takes no messages now: it has not started, or is about to end")

    def show_agent(self, words: str) -> None:
        """Shows all that an agent has done, in a pager."""
        views = self.display.views
        found = agents_meant(words, views.labels)
        if not words:
            self.display.page_agent(views.root)
        elif len(found) == 1:
            self.display.page_agent(views.by_id[found[0]])
        elif found:
            self.display.note(f"{words} matches several agents: {candidates(found, views.labels)}; type the id of one")
        else:
            self.display.note(f"no agent is named {words} (/agents lists them)")
