"""`Console`: the object that commands act on. `Steering`: the conversation, as a person controls it."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from freeact_sub.terminal.conversation.present import Present
from freeact_sub.terminal.interrupts import Interrupts

if TYPE_CHECKING:  # slow to import
    from freeact_sub.terminal.conversation.display import Display

T = TypeVar("T")


class Console(Protocol):
    """A person at a terminal, as commands act on them."""

    @property
    def present(self) -> Present:
        """The state of the conversation."""
        ...

    @property
    def display(self) -> "Display":
        """What is shown."""
        ...

    @property
    def may_change_settings(self) -> bool:
        """Whether another agent can continue the session."""
        ...

    def result_of(self, work: Coroutine[Any, Any, T]) -> T:
        """Calls a function in the conversation's loop. Called in another thread.

        Raises:
            TimeoutError: It takes too long.
        """
        ...

    def say(self, text: str) -> None:
        """Queues a prompt; in a program with one prompt it goes to the agent."""
        ...

    def send_waiting(self) -> None:
        """Sends the waiting prompts to the agent at work."""
        ...

    def control(self, name: str, who: str, text: str) -> None:
        """Cancels an agent, puts it into focus, or sends it a message."""
        ...

    def show_agent(self, words: str) -> None:
        """Shows all that an agent has done, in a pager."""
        ...

    def leave(self) -> None:
        """Cancels the run and ends."""
        ...


class Steering(Protocol):
    """The conversation, as a person steers it."""

    @property
    def present(self) -> Present:
        """Its state."""
        ...

    @property
    def display(self) -> "Display":
        """What is shown."""
        ...

    @property
    def interrupts(self) -> Interrupts:
        """Handles Ctrl-C."""
        ...

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
