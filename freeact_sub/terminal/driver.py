"""What stands behind a screen: a `Picture` supplies what is drawn, a `Keyboard` gets what a person types.

All is called in the event loop: no method may block.
"""

from collections.abc import Iterable
from typing import Literal, Protocol, TypeAlias

from rich.console import RenderableType

Purpose: TypeAlias = Literal["reason", "code"]
"""What the input line may be lent for while a question is open: the reason of a denial, or the code that is to run."""


class Picture(Protocol):
    """Supplies what a screen draws; called at each drawing."""

    def live(self, rows: int) -> RenderableType | None:
        """What is drawn above the input line, in at most so many rows."""
        ...

    def status(self) -> str:
        """The line below the input line."""
        ...


class Keyboard(Protocol):
    """Gets what a person types."""

    def enter(self, text: str) -> None:
        """A line was entered."""
        ...

    def answer_key(self, key: str) -> bool:
        """A single key was pressed at an open question and an empty line; False: it is the beginning of a text."""
        ...

    def written(self, purpose: Purpose, text: str) -> None:
        """What the line was lent for (`InputLine.lend`) is written."""
        ...

    def offers(self, line: str) -> Iterable[tuple[str, str]]:
        """Lines that go on from one that begins with `/`, and what each does. Called in another thread."""
        ...

    def take_back(self) -> str:
        """The arrow key up was pressed at an empty line; the last prompt that waits, which does so no longer, or nothing."""
        ...

    @property
    def may_go_back(self) -> bool:
        """Whether Escape, pressed twice, goes back a prompt now."""
        ...

    def go_back(self) -> None:
        """Escape was pressed twice."""
        ...

    def next_mode(self) -> None:
        """Shift-Tab was pressed."""
        ...

    def show_all(self) -> None:
        """Ctrl-O: everything that was folded is wanted."""
        ...

    def show_child(self) -> None:
        """Ctrl-T: all that a child has done is wanted."""
        ...

    def interrupt(self) -> None:
        """Ctrl-C was pressed."""
        ...

    def escape(self) -> None:
        """Escape was pressed, and there is neither a menu nor a text for a question that it would close."""
        ...

    def leave(self) -> None:
        """Ctrl-D was pressed at an empty line, or the terminal is gone."""
        ...
