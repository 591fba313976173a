"""The two sides of a screen: a `Picture` supplies what is drawn, a `Keyboard` gets what a person types.

The event loop calls all of it: no method may block.
"""

from collections.abc import Iterable
from typing import Literal, Protocol, TypeAlias

from rich.console import RenderableType

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
