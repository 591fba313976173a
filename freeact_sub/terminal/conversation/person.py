"""`Person`: what a person does in a conversation: types prompts, commands and answers, and presses keys."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import RenderableType

from freeact_sub.show.agent_view import AgentView, Views
from freeact_sub.show.questions import Questions
from freeact_sub.terminal.commands.mentions import with_files
from freeact_sub.terminal.commands.table import run_command
from freeact_sub.terminal.conversation.present import Asked
from freeact_sub.terminal.drawing.agents_table import find_agent
from freeact_sub.terminal.driver import Purpose
from freeact_sub.terminal.questions.keys import AnswerKeys
from freeact_sub.text import shortened

if TYPE_CHECKING:  # slow to import, and what belongs to it
    from freeact_sub.agents import Agent
    from freeact_sub.terminal.conversation.conversation import Conversation
    from freeact_sub.terminal.conversation.display import Display

NOTE_CHARS: Final = 500


class Person:
    """The screen's `Keyboard`, and the `Talk` of commands."""

    def __init__(self, conversation: "Conversation") -> None:
        """Args: conversation: what the person takes part in."""
        self._conversation = conversation
        self._present = conversation.present

    # Of `Keyboard`

    def enter(self, text: str) -> None:
        """A command, an answer, a word to the agent at work, or the next prompt."""
        text = text.strip()
        if re.fullmatch(r"(?i)(?:exit|quit)(?:\(\))?|:q", text):
            self.leave()
        elif re.match(r"![\w./~]", text):
            self.note(f"no command is run from here, and the agent was told nothing: {text}")
        elif re.fullmatch(r"/[a-z]*(\s(.|\n)*)?", text):
            run_command(self, text)
        elif text and self.questions.current is None:
            self._say(text)
        elif text and not self.questions.answer(text):
            self.note(
                f"that is no answer: {text} (a pattern is KIND:GLOB, such as shell:git push *; another question is /2)"
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
        """Ctrl-O: the open question's call, or all that the agent has done."""
        request = self.questions.current
        self._display.page(self.views.of(request) if request else self.views.root, request)

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._conversation.interrupts.interrupt()

    def escape(self) -> None:
        """Escape: as the first Ctrl-C, where there is something to cancel. Pressed again, it does no more."""
        if self._present.phase == "running":
            self._conversation.interrupted(must_end=False)

    def leave(self) -> None:
        """Ctrl-D, `/exit`, `exit`, or the terminal is gone: cancel what runs and end."""
        self._conversation.leave()

    def _say(self, text: str) -> None:
        text = with_files(text, Path.cwd())
        present = self._present
        is_running = present.run is not None and (present.once or present.phase == "running")
        if present.run is not None and is_running and present.run.send(text):
            self.note(f"to the agent: {shortened(text, NOTE_CHARS)}")
        elif present.once:
            self.note(f"the agent reads nothing more: {shortened(text, NOTE_CHARS)}")
        else:
            present.waiting.put(text)
            if present.phase != "idle":
                self.note(f"next prompt: {shortened(text, NOTE_CHARS)}")

    # Of `Talk`

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

    def print(self, drawn: RenderableType) -> None:
        """See `Talk`."""
        self._display.print(drawn)

    def write_raw(self, text: str) -> None:
        """See `Talk`."""
        self._display.screen.write_raw(text)

    def queue(self, asked: Asked) -> None:
        """See `Talk`."""
        self._present.waiting.put(asked)

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
                self.note(f"Ctrl-C cancels {'the run' if is_root else f'{called}, the next one the run'}")
            case _ if present.run.send(text, agent.agent_id):
                self.note(f"to {called}: {text}")
            case _:
                self.note(f"{called} reads nothing now: it has made no request yet, or its last")

    def show_agent(self, words: str) -> None:
        """See `Talk`."""
        found = [view for view in self.views.by_id.values() if words and _is_meant(view, words)]
        if not words:
            self._display.page(self.views.root)
        elif len(found) == 1:
            self._display.page(found[0])
        else:
            names = ", ".join(self.views.name(view) for view in found[:8])
            self.note(f"{words} may be {names}" if found else f"no agent {words}: /agents lists them")

    @property
    def _display(self) -> "Display":
        return self._conversation.display


def _is_meant(view: AgentView, words: str) -> bool:
    return words == f"#{view.number}" or words.lower() in view.label.lower() or view.agent_id.endswith(words)
