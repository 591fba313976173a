"""The two sides of a screen: a `Picture` supplies the drawing, a `Keyboard` receives the typed keys and lines.

`Surface` is what screens have in common; its `Attention` calls the person.

The event loop calls all of it: no method may block.
"""

import asyncio
import io
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TextIO, TypeAlias

from rich.console import RenderableType

from freeact_sub.text import one_line

if TYPE_CHECKING:
    from freeact_sub.terminal.input.line import InputLine
    from freeact_sub.terminal.plain_screen import PlainLine

Purpose: TypeAlias = Literal["reason", "code"]
"""The texts that a person may write for an open question: the reason of a denial, or the code to run."""

Expected: TypeAlias = Literal["", "text", "form", "secret"]
"""The kind of input for an open question: keys, a text, a text or a choice for one field after another, or a hidden text."""

OtherProgram: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Entered while another program has the terminal."""
Notify: TypeAlias = Literal["auto", "bell", "osc9", "off"]
KEEP_TITLE: Final = "\x1b[22;2t"
GIVE_BACK_TITLE: Final = "\x1b[23;2t"
LONG_SECONDS: Final = 20.0
"""A run that takes more seconds calls the person when it ends."""
TITLE_CHARS: Final = 60
KNOW_OSC9: Final = ("iTerm.app", "WezTerm", "ghostty")
"""Values of `TERM_PROGRAM` for terminals that show OSC 9 as a notification; others would print it, or ring."""


class Picture(Protocol):
    """Supplies the drawing of a screen."""

    def live(self, rows: int) -> RenderableType | None:
        """Return the drawing above the input line, in at most `rows` rows."""
        ...

    def status(self) -> str:
        """The line below the input line."""
        ...


class Keyboard(Protocol):
    """Receives the keys and lines that a person types."""

    def enter(self, text: str) -> None:
        """Handles an entered line."""
        ...

    def answer_key(self, key: str) -> bool:
        """Handles a single key at an open question and an empty line. Returns False if it begins a text."""
        ...

    def written(self, purpose: Purpose, text: str) -> None:
        """Handles the text that the person wrote for a question (`InputLine.lend`)."""
        ...

    def offers(self, line: str) -> Iterable[tuple[str, str]]:
        """Return completions of a line with `/`, or of `@word`, each with its meaning. Called in another thread."""
        ...

    def take_back(self) -> str:
        """Takes back the last waiting prompt, for the up arrow key at an empty line; empty if none waits."""
        ...

    @property
    def may_go_back(self) -> bool:
        """Whether Escape, pressed twice, now goes back to an earlier prompt."""
        ...

    def go_back(self) -> None:
        """Handles Escape, pressed twice."""
        ...

    def next_mode(self) -> None:
        """Handles Shift-Tab."""
        ...

    def show_all(self) -> None:
        """Handles Ctrl-O: shows the conversation with everything that was folded."""
        ...

    def show_child(self) -> None:
        """Handles Ctrl-T: shows a child's whole work."""
        ...

    @property
    def runs_cell(self) -> bool:
        """Whether a cell of the root runs now."""
        ...

    def to_background(self) -> None:
        """Handles Ctrl-B at an empty line while a cell runs."""
        ...

    @property
    def waits(self) -> bool:
        """Whether a model request waits until it is made again."""
        ...

    def try_now(self) -> None:
        """Handles Ctrl-N at an empty line while a request waits: it is made now."""
        ...

    def interrupt(self) -> None:
        """Handles Ctrl-C."""
        ...

    def escape(self) -> None:
        """Handles Escape if no menu and no text for a question is open."""
        ...

    def ask_to_leave(self) -> None:
        """Handles Ctrl-D at an empty line."""
        ...

    def leave(self) -> None:
        """Handles the loss of the terminal."""
        ...

    def tell(self, text: str) -> None:
        """Prints a note for the person."""
        ...


class Attention:
    """Writes a control sequence, which the terminal obeys and does not draw."""

    def __init__(self, write: Callable[[str], None], notify: Notify, environment: Mapping[str, str] = os.environ) -> None:
        """Args: write: writes to the terminal. notify: how a person is called."""
        self._write = write
        self._how = "osc9" if notify == "auto" and knows_osc9(environment) else "bell" if notify == "auto" else notify
        self._title = ""
        self._begun = False

    def begin(self) -> None:
        """Takes over the terminal's title."""
        self._begun = True
        self._write(KEEP_TITLE + self._title_text())

    def end(self) -> None:
        """Restores the terminal's title; further calls do nothing."""
        if ending := self.ending():
            self._write(ending)

    def ending(self) -> str:
        """The sequence that restores the title, for a caller that writes it at once; empty if the title is restored."""
        begun, self._begun = self._begun, False
        return GIVE_BACK_TITLE if begun else ""

    def call(self, text: str) -> None:
        """Calls the person."""
        if self._begun and self._how != "off":
            self._write("\x07" if self._how == "bell" else f"\x1b]9;{one_line(text)}\x07")

    def title(self, text: str) -> None:
        """Sets the window's title."""
        if text != self._title:
            self._title = text
            if self._begun:
                self._write(self._title_text())

    def _title_text(self) -> str:
        return f"\x1b]2;{one_line(self._title, TITLE_CHARS)}\x07" if self._title else ""


def knows_osc9(environment: Mapping[str, str]) -> bool:
    """Whether the terminal shows OSC 9 as a notification. tmux swallows it."""
    known = environment.get("TERM_PROGRAM") in KNOW_OSC9 or environment.get("TERM") in ("xterm-kitty", "xterm-ghostty")
    return known and "TMUX" not in environment


class Surface:
    """A terminal that shows a conversation: `Screen` draws. `PlainScreen` prints, and has the rest as it stands here."""

    attention: Attention
    line: "InputLine | PlainLine"
    """The line that is typed."""

    def __init__(self, keyboard: Keyboard, other_program: OtherProgram) -> None:
        self._keyboard, self._other_program = keyboard, other_program
        self._stdout: TextIO = sys.stdout
        if isinstance(self._stdout, io.TextIOWrapper):
            self._stdout.reconfigure(errors="replace")  # not every terminal knows every character
        self._closing = False
        self._end_other: Callable[[], None] | None = None
        """Ends the program or pager that has the terminal."""
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        if self._end_other is not None:
            with suppress(ProcessLookupError):
                self._end_other()
        await self._group.__aexit__(None, None, None)  # an error of the body is none of the screen's

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine, which ends with the screen at the latest."""
        if self._closing:
            work.close()
        else:
            self._group.create_task(work)

    async def shown(self) -> None:
        """Waits until the person can type."""

    def post(self, renderable: RenderableType) -> None:
        """Prints a finished block, after all earlier ones."""
        raise NotImplementedError

    def post_raw(self, text: str) -> None:
        """Prints a text that ends in the first column of a row, as it is."""
        raise NotImplementedError

    def text_of(self, renderable: RenderableType, columns: int) -> str:
        """The renderable as text, such as for a pager."""
        raise NotImplementedError

    def rows_of(self, _renderable: RenderableType) -> int:
        """The rows of a drawing; 0: it is printed whole, whatever its height."""
        return 0

    @property
    def room(self) -> int:
        """The rows of the terminal."""
        return 24

    @property
    def live_rows(self) -> int:
        """The rows that may change, above the input line."""
        return self.room

    @property
    def is_narrowed(self) -> bool:
        """Whether the changing rows are fewer than usual for a moment."""
        return False

    def hold_keys(self) -> None:
        """Lets no key answer the open question until all that was posted can be read."""

    @property
    def columns(self) -> int:
        """The columns of the terminal."""
        with suppress(OSError):
            return os.get_terminal_size(self._stdout.fileno()).columns or 80
        return 80

    @property
    def cell(self) -> tuple[int, int]:
        """The width and height of a character in pixels; 0: no pictures are drawn."""
        return (0, 0)

    def write_raw(self, text: str) -> None:
        """Writes a sequence that the terminal obeys and does not draw, if it obeys any."""

    async def drained(self) -> None:
        """Waits while too much is not printed yet."""

    def refresh(self, question_id: str | None) -> None:
        """Notes a change. Args: question_id: the question that is open, or None."""
        raise NotImplementedError

    async def run_outside(self, command: Sequence[str]) -> bool:
        """Gives the terminal to another program until it ends; returns False if it cannot be started."""
        try:
            with self._other_program():
                process = await asyncio.create_subprocess_exec(*command)
                self._end_other = process.terminate
                await process.wait()
        except OSError:
            return False
        finally:
            self._end_other = None
        return True

    async def show_pages(self, pager: Any) -> None:
        """Shows something long until the person leaves it. Args: pager: a `Pager`."""

    def restore(self) -> None:
        """Restores the terminal's settings at once, for a program that is about to end."""
        raise NotImplementedError

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone; the run goes on to its end
            self._stdout.write(text)
            self._stdout.flush()
