"""`Person`: takes a person's prompts, commands, answers and keys."""

import asyncio
import re
from collections.abc import Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from rich.console import RenderableType

from freeact_sub.show.agent_view import AgentView, Views
from freeact_sub.show.questions import Questions
from freeact_sub.terminal.commands.own import OwnCommand
from freeact_sub.terminal.commands.settings import next_mode
from freeact_sub.terminal.commands.shell import TypedCommand
from freeact_sub.terminal.commands.table import Result, offers, run_command
from freeact_sub.terminal.conversation.present import Asked, Present
from freeact_sub.terminal.drawing.agents_table import find_agent
from freeact_sub.terminal.drawing.children import present_children
from freeact_sub.terminal.driver import Purpose
from freeact_sub.terminal.questions.card import drawn_call
from freeact_sub.terminal.questions.keys import AnswerKeys
from freeact_sub.text import shortened

if TYPE_CHECKING:  # slow to import, and what belongs to it
    from freeact_sub.agents import Agent
    from freeact_sub.terminal.conversation.conversation import Conversation
    from freeact_sub.terminal.conversation.display import Display

NOTE_CHARS: Final = 500
LOOKING_SECONDS: Final = 2.0


class Person:
    """The screen's `Keyboard`, and the `Talk` of commands."""

    def __init__(self, conversation: "Conversation") -> None:
        """Args: conversation: what the person takes part in."""
        self._conversation = conversation
        self._present = conversation.present
        self._loop = asyncio.get_running_loop()

    # Of `Keyboard`

    def enter(self, text: str) -> None:
        """Takes in a command, an answer, a message to the agent at work, or the next prompt."""
        text = text.strip()
        self._display.hint("")
        if re.fullmatch(r"(?i)(?:exit|quit)(?:\(\))?|:q", text):
            self.leave()
        elif text.startswith("!") and self.questions.current is None:
            self._run_command(self._display.screen.line.pastes.unfolded(text[1:]).strip())
        elif re.fullmatch(r"/([a-z][a-z0-9_-]*)?(\s(.|\n)*)?", text):
            is_own = text.split()[0] in self.own_commands  # a prompt: what was pasted into it is unfolded in its turn
            run_command(self, text if is_own else self._display.screen.line.pastes.unfolded(text))
        elif text and self.questions.current is None:
            self.say(text)
        elif not text and self._present.waiting.typed and self._present.phase == "running":
            self.send_waiting()
        elif text and not self.questions.answer(text):
            self.note(
                f"not an answer: {text} (a pattern is KIND:GLOB, such as shell:git push *; /2 shows the second question)"
            )
        self._display.refresh()

    def answer_key(self, key: str) -> bool:
        """See `Keyboard`."""
        if self.questions.current is None:
            return False
        taken = AnswerKeys(self.questions, self._display.screen, self.note).press(key)
        self._display.refresh()
        return taken

    def written(self, purpose: Purpose, text: str) -> None:
        """See `Keyboard`."""
        AnswerKeys(self.questions, self._display.screen, self.note).written(purpose, text)
        self._display.refresh()

    def show_all(self) -> None:
        """Shows the open question's call, or all that the agent has done, for Ctrl-O."""
        if (request := self.questions.current) is not None:
            self._display.page_drawn(drawn_call(request, self._present.config.workspace))
        else:
            self._display.page_agent(self.views.root)

    def show_child(self) -> None:
        """Shows the only child, or the child that asks, else the menu of `/show`, for Ctrl-T."""
        request = self.questions.current
        asks = self.views.of(request) if request is not None else None
        if asks is not None and asks.parent_id is not None:
            self._display.page_agent(asks)
        elif len(children := present_children(self.views)) == 1:
            self._display.page_agent(children[0])
        elif children and request is None:
            self._display.screen.line.offer("/show ")
        else:
            self.hint("/show NAME shows a child" if children else "no child has started")
        self._display.refresh()

    def interrupt(self) -> None:
        """Cancels or leaves, for Ctrl-C."""
        self._conversation.interrupts.interrupt()

    def escape(self) -> None:
        """Acts as the first Ctrl-C if there is something to cancel, for Escape. Pressed again, it does no more."""
        if self.questions.asks_back:
            self.questions.answer("n")
            self._display.refresh()
        elif self._present.phase == "running":
            self._conversation.interrupted(must_end=False)

    def leave(self) -> None:
        """Cancels the run and ends: for Ctrl-D, `/exit`, `exit`, or when the terminal is gone."""
        self._conversation.leave()

    def offers(self, line: str) -> Iterable[tuple[str, str]]:
        """See `Keyboard`."""
        return offers(self, line)

    def take_back(self) -> str:
        """See `Keyboard`."""
        last = self._present.waiting.typed[-1:]
        self._present.waiting.take_back(1)
        self._display.refresh()
        return "".join(last)

    @property
    def may_go_back(self) -> bool:
        """See `Keyboard`."""
        return self._present.phase == "idle" and not self._present.waiting.count

    def go_back(self) -> None:
        """See `Keyboard`."""
        if self.agent is not None and self.agent.undoable:
            self._display.screen.line.offer("/rewind ")
        else:
            self.hint("no prompt to go back to")
        self._display.refresh()

    def next_mode(self) -> None:
        """See `Keyboard`."""
        next_mode(self)
        self._display.refresh()

    def _run_command(self, command: str) -> None:
        if not command or self._present.once:
            self.note("type a command after !, such as !git status" if not command else "! works only in a conversation")
            return
        self._present.waiting.put(TypedCommand(command=command))

    def say(self, text: str) -> None:
        """See `Talk`."""
        present = self._present
        if not present.once:
            present.waiting.put(text)
        elif not self._tells(text):
            self.note(f"not sent, the run is about to end: {shortened(text, NOTE_CHARS)}")

    def _tells(self, text: str) -> bool:
        run = self._present.run
        if run is None or not run.send(self._conversation.content_of(text)):
            return False
        self.note(f"sent to the agent: {shortened(text, NOTE_CHARS)}")
        return True

    # Of `Talk`

    @property
    def present(self) -> Present:
        """See `Talk`."""
        return self._present

    @property
    def own_commands(self) -> Mapping[str, OwnCommand]:
        """See `Talk`."""
        return self._present.own_commands

    @property
    def may_change_settings(self) -> bool:
        """See `Talk`."""
        return self._conversation.may_change_settings

    @property
    def agent(self) -> "Agent | None":
        """See `Talk`."""
        return self._present.agent

    @property
    def views(self) -> Views:
        """See `Talk`."""
        return self._display.views

    @property
    def questions(self) -> Questions:
        """See `Talk`."""
        return self._display.questions

    def note(self, text: str) -> None:
        """See `Talk`."""
        self._display.note(text)

    def hint(self, text: str) -> None:
        """See `Talk`."""
        self._display.hint(text)

    def print(self, drawn: RenderableType) -> None:
        """See `Talk`."""
        self._display.print(drawn)

    def result_of(self, work: Coroutine[Any, Any, Result]) -> Result:
        """See `Talk`."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(LOOKING_SECONDS)
        except TimeoutError:
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """See `Talk`."""
        self._display.screen.start(work)

    def page(self, drawn: RenderableType) -> None:
        """See `Talk`."""
        self._display.page_drawn(drawn)

    def write_raw(self, text: str) -> None:
        """See `Talk`."""
        self._display.screen.write_raw(text)

    def queue(self, asked: Asked) -> None:
        """See `Talk`."""
        self._present.waiting.put(asked)

    def send_waiting(self) -> None:
        """See `Talk`."""
        waiting = self._present.waiting
        prompts = waiting.take_back(kinds=str) if self._present.phase == "running" else []
        unread = [prompt for prompt in prompts if not self._tells(prompt)]
        for prompt in unread:
            waiting.put(prompt)
        if unread or not prompts:
            self.note("the agent takes no more messages in this run")

    def control(self, name: str, who: str, text: str) -> None:
        """See `Talk`."""
        present = self._present
        if present.run is None or present.agent is None:
            self.note("no agent is at work")
            return
        try:
            numbered = {f"#{view.number}": view.agent_id for view in self.views.by_id.values()}
            agent = find_agent(present.agent.agents(), numbered.get(who, who) or present.agent.agent_id)
        except LookupError as error:
            self.note(str(error))
            return
        is_root, called = agent.parent_id is None, self._display.name(agent)
        match name:
            case "/cancel" if is_root:
                self._conversation.cancel()
            case "/cancel":
                present.run.cancel(agent.agent_id)
            case "/focus":
                present.focus = None if is_root else agent
                self.note(f"Ctrl-C cancels {'the run' if is_root else f'{called} first, then the run'}")
            case _ if present.run.send(text, agent.agent_id):
                self.note(f"sent to {called}: {text}")
            case _:
                self.note(f"{called} takes no messages now: it has not started, or is about to end")

    def show_agent(self, words: str) -> None:
        """See `Talk`."""
        found = [view for view in self.views.by_id.values() if words and _is_meant(view, words)]
        if not words:
            self._display.page_agent(self.views.root)
        elif len(found) == 1:
            self._display.page_agent(found[0])
        else:
            names = ", ".join(self.views.name(view) for view in found[:8])
            self.note(
                f"{words} matches {names}: type more of the name"
                if found
                else f"no agent is named {words} (/agents lists them)"
            )

    @property
    def _display(self) -> "Display":
        return self._conversation.display


def _is_meant(view: AgentView, words: str) -> bool:
    return words == f"#{view.number}" or words.lower() in view.label.lower() or view.agent_id.endswith(words)
