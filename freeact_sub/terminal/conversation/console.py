"""`Console`: what commands do for a person at a terminal. `Steering`: the conversation, as a person controls it."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from freeact_sub.agent_names import agents_meant, candidates
from freeact_sub.show.typed_commands import find_agent
from freeact_sub.terminal.conversation.present import Present
from freeact_sub.terminal.input.offered import asks_servers
from freeact_sub.terminal.interrupts import Interrupts
from freeact_sub.text import counted, shortened

if TYPE_CHECKING:  # slow to import
    from freeact_sub.terminal.conversation.display import Display

T = TypeVar("T")
NOTE_CHARS: Final = 500
LOOKING_SECONDS: Final = 2.0


class Steering(Protocol):
    """The conversation, as a person steers it."""

    present: Present
    display: "Display"
    interrupts: Interrupts

    @property
    def may_change_settings(self) -> bool:
        """Whether another agent can continue the session."""
        ...

    def content_of(self, typed: str) -> str:
        """The model's text of a line."""
        ...

    def interrupted(self, must_end: bool) -> None:
        """Cancels the agent in focus, or the run; leaves if neither exists."""
        ...

    def cancel(self) -> None:
        """Cancels the run."""
        ...

    def leave(self) -> None:
        """Cancels the run, and ends."""
        ...


class Console:
    """A person at a terminal, as commands act on them."""

    def __init__(self, conversation: Steering) -> None:
        self._conversation = conversation
        self.present: Present = conversation.present
        self._loop = asyncio.get_running_loop()

    @property
    def display(self) -> "Display":
        """What is shown."""
        return self._conversation.display

    def leave(self) -> None:
        """Cancels the run and ends: for `/exit`, `exit`, or when the terminal is gone."""
        self._conversation.leave()

    def ask_to_leave(self) -> None:
        """The same for Ctrl-D, which asks once while something would be lost."""
        present = self.present
        parts = [
            "a run is at work" if present.run is not None else "",
            f"{counted(len(present.waiting.typed), 'entry')} queued" if present.waiting.typed else "",
        ]
        lost = " and ".join(filter(None, parts))
        if not lost or present.asked_to_leave is not None or present.once:
            self.leave()
            return
        present.asked_to_leave = self._loop.time()
        self.display.hint(f"{lost}: Ctrl-D once more quits")
        self.display.refresh()

    def say(self, text: str) -> None:
        """Queues a prompt; in a program with one prompt it goes to the agent."""
        present = self.present
        if not present.once:
            present.waiting.put(text)
        elif not self._tells(text):
            self.display.note(f"not sent, the run is about to end: {shortened(text, NOTE_CHARS)}")

    def _tells(self, text: str) -> bool:
        run, content = self.present.run, self._conversation.content_of(text)
        if run is None or not run.send(content):
            return False
        self.present.sent.append((text, content))
        self.display.note(f"sent to the agent: {shortened(text, NOTE_CHARS)}")
        return True

    @property
    def may_change_settings(self) -> bool:
        """Whether another agent can continue the session."""
        return self._conversation.may_change_settings

    def result_of(self, work: Coroutine[Any, Any, T]) -> T:
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
                if is_root:
                    present.sent.append((text, text))
                else:
                    present.sent_to_children.setdefault(agent.agent_id, []).append(text)
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
