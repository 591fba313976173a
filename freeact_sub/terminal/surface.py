"""`Surface`: the common part of both kinds of screen; `PlainScreen`: a terminal that prints, and reads whole lines.

A screen draws what it is given, and passes on typed keys and lines to a `Keyboard`; its `Attention` calls the person. The
event loop calls all of it: no method may block.
"""

import asyncio
import io
import os
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TextIO, TypeAlias

from rich.console import RenderableType

from freeact_sub.terminal.asking import TypedLines, forget_typed
from freeact_sub.terminal.attachments import Pastes
from freeact_sub.terminal.drawing.parts import make_console
from freeact_sub.text import fitted, one_line

if TYPE_CHECKING:
    from freeact_sub.terminal.line import InputLine

Purpose: TypeAlias = Literal["reason", "code"]
"""The texts that a person may write for an open question: the reason of a denial, or the code to run."""

Expected: TypeAlias = Literal["", "text", "form", "secret"]
"""The kind of input for an open question: keys, a text, a text or a choice for one field after another, or a hidden text."""

OtherProgram: TypeAlias = Callable[[], AbstractContextManager[None]]
"""A context that is entered while another program has the terminal."""
Notify: TypeAlias = Literal["auto", "bell", "osc9", "off"]
KEEP_TITLE: Final = "\x1b[22;2t"
GIVE_BACK_TITLE: Final = "\x1b[23;2t"
RECENT: Final = 200
"""Drawings that a terminal gets which comes later."""
LONG_SECONDS: Final = 20.0
"""Seconds of a run beyond which its end calls the person."""
TITLE_CHARS: Final = 60
KNOW_OSC9: Final = ("iTerm.app", "WezTerm", "ghostty")
"""Values of `TERM_PROGRAM` for terminals that show OSC 9 as a notification; others would print it, or ring."""


@dataclass(frozen=True)
class KeyAction:
    """A key, or several one after the other, for more than the line itself."""

    keys: Sequence[str]
    do: Callable[[], object]
    counts: Callable[[], bool] = lambda: True
    """Whether the key has this meaning at the moment."""
    at_empty: bool = False
    """Whether the key counts only while the line is empty, and no question is open."""


class Keyboard(Protocol):
    """The person, as a screen knows them, who gets its lines and keys."""

    actions: Sequence[KeyAction]

    def enter(self, text: str) -> None:
        """Handle an entered line."""
        ...

    def answer_key(self, key: str) -> bool:
        """Handle a single key at an open question and an empty line. Return False if it begins a text."""
        ...

    def written(self, purpose: Purpose, text: str) -> None:
        """Handle the text that the person wrote for a question (`InputLine.lend`)."""
        ...

    def offers(self, line: str) -> Iterable[tuple[str, str]]:
        """Return completions of a line with `/`, or of `@word`, each with its meaning. Called in another thread."""
        ...

    def take_back(self) -> str:
        """Take back the last waiting prompt, for the up arrow key at an empty line; empty if none waits."""
        ...

    def next_mode(self) -> None:
        """Handle Shift-Tab."""
        ...

    def escape(self) -> None:
        """Handle Escape if no menu and no text for a question is open."""
        ...

    def ask_to_leave(self) -> None:
        """Handle Ctrl-D at an empty line."""
        ...

    def stop(self) -> bool:
        """Handle Ctrl-Z. Return False if the program itself is to stop."""
        ...

    def leave(self) -> None:
        """Handle the loss of the terminal."""
        ...

    def tell(self, text: str) -> None:
        """Print a note for the person."""
        ...


class Attention:
    """Control sequences that call the person and set the title: the terminal obeys and does not draw them."""

    def __init__(self, write: Callable[[str], None], notify: Notify, environment: Mapping[str, str] = os.environ) -> None:
        """Args: write: writes to the terminal. notify: how a person is called."""
        self._write = write
        self._how = "osc9" if notify == "auto" and knows_osc9(environment) else "bell" if notify == "auto" else notify
        self._title = ""
        self._begun = False

    def begin(self) -> None:
        """Take over the terminal's title."""
        self._begun = True
        self._write(KEEP_TITLE + self._title_text())

    def end(self) -> None:
        """Restore the terminal's title; further calls do nothing."""
        if ending := self.ending():
            self._write(ending)

    def ending(self) -> str:
        """Return the sequence that restores the title, for a caller to write at once; empty if the title is restored."""
        begun, self._begun = self._begun, False
        return GIVE_BACK_TITLE if begun else ""

    def call(self, text: str) -> None:
        """Call the person."""
        if self._begun and self._how != "off":
            self._write("\x07" if self._how == "bell" else f"\x1b]9;{one_line(text)}\x07")

    def title(self, text: str) -> None:
        """Set the window's title."""
        if text != self._title:
            self._title = text
            if self._begun:
                self._write(self._title_text())

    def _title_text(self) -> str:
        return f"\x1b]2;{one_line(self._title, TITLE_CHARS)}\x07" if self._title else ""


def knows_osc9(environment: Mapping[str, str]) -> bool:
    """Return whether the terminal shows OSC 9 as a notification. tmux swallows it."""
    known = environment.get("TERM_PROGRAM") in KNOW_OSC9 or environment.get("TERM") in ("xterm-kitty", "xterm-ghostty")
    return known and "TMUX" not in environment


class Surface:
    """A terminal that shows a conversation, as far as in one way: `Screen` draws, `PlainScreen` prints."""

    attention: Attention
    line: "InputLine | PlainLine"
    """The line that is typed."""

    def __init__(self, keyboard: Keyboard, other_program: OtherProgram) -> None:
        self._keyboard, self._other_program = keyboard, other_program
        self._stdout: TextIO = sys.stdout
        if isinstance(self._stdout, io.TextIOWrapper):
            self._stdout.reconfigure(errors="replace")  # not every terminal knows every character
        self._closing = False
        self._at_work = 0
        """Coroutines that run."""
        self._end_other: Callable[[], None] | None = None
        """A function that ends the program or pager that has the terminal."""
        self.is_lent = False
        """Whether another program has the terminal, such as an editor."""
        self._group = asyncio.TaskGroup()
        self._recent: deque[Any] = deque(maxlen=RECENT)
        """The last drawings, for a terminal that comes later."""
        self._missed = 0
        """How much of it was printed while no terminal was there."""
        self._back: asyncio.Event | None = None
        """Set when a terminal is there again. None: it is there."""
        self._is_left = False

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
        """Run a coroutine, which ends with the screen at the latest."""
        if self._closing:
            work.close()
        else:
            self._at_work += 1
            self._group.create_task(work).add_done_callback(self._ended)

    def _ended(self, _work: "asyncio.Task[None]") -> None:
        """Note the end of a coroutine."""
        self._at_work -= 1

    def leave(self, then: Callable[[], None]) -> None:
        """Leave the terminal, as if there had been no drawing. Args: then: called when it is left."""
        if self._is_left:
            then()
        elif self._back is None:
            self._back, self._missed = asyncio.Event(), 0
            self.start(self._be_away(then, self._back))

    async def _be_away(self, then: Callable[[], None], back: asyncio.Event) -> None:
        self._is_left = True
        then()
        await back.wait()

    def come_back(self, *, is_fresh: bool) -> None:
        """Draw again, in a terminal that has come. Args: is_fresh: it knows nothing of what was printed."""
        if self._back is not None:
            back, self._back, self._is_left = self._back, None, False
            recent = [*self._recent]
            known = 0 if is_fresh else max(0, len(recent) - self._missed)
            self._recent = deque(recent[:known], maxlen=RECENT)
            back.set()
            for printed in recent[known:]:
                self._print_again(printed)

    def _print_again(self, printed: Any) -> None:
        """Print a recent drawing."""

    def _keep(self, printed: Any) -> bool:
        """Note what is printed; return False if no terminal is there."""
        self._recent.append(printed)
        self._missed += self._back is not None
        return self._back is None

    @property
    def columns(self) -> int:
        """The columns of the terminal."""
        with suppress(OSError):
            return os.get_terminal_size(self._stdout.fileno()).columns or 80
        return 80

    async def run_outside(self, command: Sequence[str]) -> bool:
        """Give the terminal to another program until it ends; return whether it was started and ended well."""
        try:
            with self._other_program():
                self.is_lent = True
                process = await asyncio.create_subprocess_exec(*command)
                self._end_other = process.terminate
                return await process.wait() == 0
        except OSError:
            return False
        finally:
            self._end_other, self.is_lent = None, False

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone; the run goes on to its end
            self._stdout.write(text)
            self._stdout.flush()


PROMPT: Final = "> "
MARKS: Final = {" · ": ", ", **dict.fromkeys("│├└─", " "), "● ": "", "± ": "changed: ", "\N{MINUS SIGN}": "-", "→": "to"}
"""Substitutes for marks that say nothing when they are read aloud."""
END_OF_CODE: Final = "."
MAX_ENTERED: Final = 100
ASKS: Final[dict[Purpose, str]] = {
    "reason": "why not?",
    "code": f"type the code that runs instead, and after it a line with nothing but {END_OF_CODE}",
}
KEYS: Final = ("?", "A", "e", "r")
"""Answers of one letter that a typed line can give as well; all others are words."""


class PlainLine:
    """The typed line, with the names of `InputLine`."""

    def __init__(self, keyboard: Keyboard, say: Callable[[str], None]) -> None:
        self._keyboard = keyboard
        self._say = say
        self._lent: Purpose | None = None
        self._parts: list[str] = []
        """The lines so far of a text of several lines."""
        self.expects: Expected = ""
        self.question_id: str | None = None
        self.pastes = Pastes()
        self.keys_count = True
        self.entered: list[str] = []
        """Entered texts about which nothing was told since."""

    @property
    def text(self) -> str:
        """The text that is typed and not entered."""
        return "\n".join(self._parts)

    @property
    def waits(self) -> bool:
        """Whether the rest of a text is awaited."""
        return bool(self._parts) or self._lent is not None

    def lend(self, purpose: Purpose, text: str = "") -> None:
        """Let the person write a text for the open question."""
        del text  # it stands in the question
        self._lent = purpose
        self._say(ASKS[purpose])

    def clear(self) -> bool:
        """Drop the text that was not entered; return False if there was none."""
        had, self._lent = self.waits, None
        self._parts.clear()
        return had

    def give(self, text: str) -> None:
        """Say a prompt that was not sent: it cannot be put into the line."""
        if text:
            self._say(f"not sent: {text}")

    def offer(self, beginning: str) -> None:
        """Say how a command goes on."""
        self._say(f"type what follows {beginning}, such as a name or a number")

    def put_back(self, text: str) -> None:
        """Do nothing: the terminal's line is gone, and stands above."""

    def take(self, line: str) -> None:
        """Handle an entered line."""
        if self._lent == "code":
            self._parts.append(line)
            if self._parts[-1:] == [END_OF_CODE]:
                self._end_loan("\n".join(self._parts[:-1]))
        elif self._lent is not None:
            self._end_loan(line)
        elif line.endswith("\\") and self.question_id is None:
            self._parts.append(line[:-1])
        else:
            text = "\n".join([*self._parts, line])
            self._parts.clear()
            word = text.strip()
            is_key = self.question_id is not None and not self.expects and word in KEYS
            if not is_key or not self._keyboard.answer_key(word):
                self.entered = [*self.entered[-MAX_ENTERED:], word]
                self._keyboard.enter(text)

    def _end_loan(self, text: str) -> None:
        purpose, self._lent = self._lent, None
        self._parts.clear()
        if purpose is not None:
            self._keyboard.written(purpose, text)


class PlainScreen(Surface):
    """A screen that prints; an async context manager."""

    line: PlainLine

    def __init__(self, keyboard: Keyboard, *, other_program: OtherProgram, is_free: Callable[[], bool]) -> None:
        """Args: is_free: whether a prompt would begin at once."""
        super().__init__(keyboard, other_program)
        self._is_free = is_free
        self.console = make_console(self._stdout, colours=False)
        self.attention = Attention(lambda _: None, "off")
        self.line = PlainLine(keyboard, lambda text: self.post_raw(f"{text}\n"))
        self._typed = TypedLines()
        self._invites = False
        """Whether the invitation to type is the last printed text."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._typed.listen(self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._typed.close()
        await super().__aexit__()

    def post(self, renderable: RenderableType) -> None:
        """Print a drawing, without colours."""
        text = self.text_of(renderable, self.columns)
        for mark, words in MARKS.items():
            text = text.replace(mark, words)
        self.post_raw(text)

    def post_raw(self, text: str) -> None:
        """Print a text that ends with a line."""
        if text and self._keep(text):
            self._write(("\n" if self._invites and text != "\n" else "") + fitted(text, self._stdout))
            self._invites = False

    def text_of(self, renderable: RenderableType, columns: int) -> str:
        """Return the renderable as text."""
        self.console.width = columns
        with self.console.capture() as capture:
            self.console.print(renderable)
        return capture.get()

    def _print_again(self, printed: str) -> None:
        self.post_raw(printed)

    async def shown(self) -> None:
        """Wait until the person can type."""

    def rows_of(self, _renderable: RenderableType) -> int:
        """Return the rows of a drawing; 0: it is printed whole, whatever its height."""
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
        """Let no key answer the open question until all that was posted can be read."""

    @property
    def cell(self) -> tuple[int, int]:
        """The width and height of a character in pixels; 0: no pictures are drawn."""
        return (0, 0)

    def write_raw(self, text: str) -> None:
        """Write a sequence that the terminal obeys and does not draw, if it obeys any."""

    async def drained(self) -> None:
        """Wait while too much is not printed yet."""

    async def show_pages(self, listing: Any) -> None:
        """Show a `Listing` until the person leaves it."""

    def open_question(self, question_id: str | None) -> None:
        """Note the open question, before it is printed: from then on typed text answers it."""
        if question_id != self.line.question_id:
            self.line.clear()
            self.line.question_id = question_id
            if question_id is not None:
                forget_typed()

    def refresh(self, question_id: str | None) -> None:
        """Invite a prompt where one would begin at once."""
        self.open_question(question_id)
        self._typed.echo(self.line.expects != "secret")
        self._invite()

    async def run_outside(self, command: Sequence[str]) -> bool:
        """Give the terminal to another program until it ends; return whether it was started and ended well."""
        self._typed.stop()
        try:
            return await super().run_outside(command)
        finally:
            if not self._closing:
                self._typed.listen(self._read)

    def restore(self) -> None:
        """Restore the terminal's settings at once."""
        self._typed.echo(True)

    def _read(self, text: str) -> None:
        if not text:  # Ctrl-D; if the terminal is gone, the next text is empty too
            self.post_raw("\n" if self._invites else "")
            self._keyboard.ask_to_leave()
            self._typed.listen(self._read)
            return
        self._invites = False  # the terminal has begun a new row
        for line in text.removesuffix("\n").split("\n"):
            self.line.take(line)
        self._invite()

    def _ended(self, work: "asyncio.Task[None]") -> None:
        super()._ended(work)
        self._invite()

    def _invite(self) -> None:
        """Invite a prompt, after the output of what is at work."""
        if not (self._closing or self._invites or self._at_work or self.line.waits) and self._is_free():
            self._write(PROMPT)
            self._invites = True
