"""The two sides of a screen: a `Picture` supplies what is drawn, a `Keyboard` gets what a person types.

The event loop calls all of it: no method may block.
"""

from collections.abc import Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias

from rich.console import RenderableType

from freeact_sub.terminal.attention import Attention
from freeact_sub.terminal.input.pastes import Pastes

Purpose: TypeAlias = Literal["reason", "code"]
"""Texts for which the input line may be lent while a question is open: the reason of a denial, or the code to run."""

Expected: TypeAlias = Literal["", "text", "secret"]
"""What the input line takes in for an open question: keys, a text, or a text that is not shown while it is typed."""


class Picture(Protocol):
    """Supplies what a screen draws, at each drawing."""

    def live(self, rows: int) -> RenderableType | None:
        """The picture above the input line, in at most so many rows."""
        ...

    def status(self) -> str:
        """The line below the input line."""
        ...


class Keyboard(Protocol):
    """Gets what a person types."""

    def enter(self, text: str) -> None:
        """Takes in a line that was entered."""
        ...

    def answer_key(self, key: str) -> bool:
        """Takes in a single key at an open question and an empty line; False: it is the beginning of a text."""
        ...

    def written(self, purpose: Purpose, text: str) -> None:
        """Takes in the text for which the line was lent (`InputLine.lend`)."""
        ...

    def offers(self, line: str) -> Iterable[tuple[str, str]]:
        """Completions of a line that begins with `/`, and what each does. Called in another thread."""
        ...

    def take_back(self) -> str:
        """Takes the last waiting prompt back, for the arrow key up at an empty line; empty if none waits."""
        ...

    @property
    def may_go_back(self) -> bool:
        """Whether Escape, pressed twice, now goes back to an earlier prompt."""
        ...

    def go_back(self) -> None:
        """Takes in Escape, pressed twice."""
        ...

    def next_mode(self) -> None:
        """Takes in Shift-Tab."""
        ...

    def show_all(self) -> None:
        """Takes in Ctrl-O: shows everything that was folded."""
        ...

    def show_child(self) -> None:
        """Takes in Ctrl-T: shows all that a child has done."""
        ...

    def interrupt(self) -> None:
        """Takes in Ctrl-C."""
        ...

    def escape(self) -> None:
        """Takes in Escape where there is neither a menu nor a text for a question that it would close."""
        ...

    def leave(self) -> None:
        """Takes in Ctrl-D at an empty line, or the loss of the terminal."""
        ...


class Line(Protocol):
    """The line that a person types, as others see it."""

    expects: Expected
    pastes: Pastes

    @property
    def text(self) -> str:
        """What is typed and not entered."""
        ...

    @property
    def keys_count(self) -> bool:
        """Whether a single key answers the open question now."""
        ...

    def lend(self, purpose: Purpose, text: str = "") -> None:
        """Lets the person write something for the open question; `Keyboard.written` gets it."""
        ...

    def clear(self) -> bool:
        """Empties the line; returns False if it was empty."""
        ...

    def give(self, text: str) -> None:
        """Gives a text back to the person who typed it."""
        ...

    def offer(self, beginning: str) -> None:
        """Offers the continuations of the beginning of a command."""
        ...


class Surface(Protocol):
    """A terminal that shows a conversation: `Screen` draws, `PlainScreen` prints."""

    attention: Attention

    @property
    def line(self) -> Line:
        """The line that is typed."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    async def shown(self) -> None:
        """Waits until the person can type."""
        ...

    def post(self, renderable: RenderableType) -> None:
        """Prints something finished, after all that was posted before."""
        ...

    def post_raw(self, text: str) -> None:
        """Prints a text that ends in the first column of a row, as it is."""
        ...

    def text_of(self, renderable: RenderableType, columns: int) -> str:
        """The renderable as text for a pager."""
        ...

    def rows_of(self, renderable: RenderableType) -> int:
        """The number of rows that it takes."""
        ...

    @property
    def room(self) -> int:
        """The rows of the terminal."""
        ...

    @property
    def columns(self) -> int:
        """The columns of the terminal."""
        ...

    @property
    def cell(self) -> tuple[int, int]:
        """The width and height of a character in pixels."""
        ...

    def write_raw(self, text: str) -> None:
        """Writes a sequence that the terminal obeys and does not draw."""
        ...

    async def drained(self) -> None:
        """Waits while too much is not printed yet."""
        ...

    def refresh(self, question_id: str | None) -> None:
        """Takes in that something has changed. Args: question_id: the question that is open, or None."""
        ...

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs something, which ends with the screen at the latest."""
        ...

    async def run_outside(self, command: Sequence[str]) -> bool:
        """Gives the terminal to another program until it ends; returns False if it cannot be started."""
        ...

    async def show_pages(self, pager: Any) -> None:
        """Shows something long until the person leaves it. Args: pager: a `Pager`."""
        ...

    def restore(self) -> None:
        """Restores the terminal's settings at once; for a program that is about to end."""
        ...
