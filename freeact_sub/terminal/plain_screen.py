"""`PlainScreen`: a terminal that prints, and reads whole lines; nothing on it changes afterwards."""

from collections.abc import Callable, Sequence
from typing import Final, Self

from rich.console import RenderableType

from freeact_sub.terminal.approver import TypedLines
from freeact_sub.terminal.drawing.parts import make_console
from freeact_sub.terminal.driver import Attention, Expected, Keyboard, OtherProgram, Purpose, Surface
from freeact_sub.terminal.input.attachments import Pastes
from freeact_sub.text import fitted

PROMPT: Final = "> "
MARKS: Final = {" · ": ", ", **dict.fromkeys("│├└─", " "), "● ": "", "± ": "changed: ", "\N{MINUS SIGN}": "-", "→": "to"}
"""What stands for marks that say nothing when they are read aloud."""
END_OF_CODE: Final = "."
MAX_ENTERED: Final = 100
ASKS: Final[dict[Purpose, str]] = {
    "reason": "why not?",
    "code": f"type the code that runs instead, and after it a line with nothing but {END_OF_CODE}",
}
KEYS: Final = ("?", "A", "e", "r")
"""Answers of one letter that a typed line can give as well; all others are words."""


class PlainLine:
    """What is typed. It has the names of `InputLine`."""

    def __init__(self, keyboard: Keyboard, say: Callable[[str], None]) -> None:
        self._keyboard = keyboard
        self._say = say
        self._lent: Purpose | None = None
        self._parts: list[str] = []
        """Of a text of several lines, those that are there."""
        self.expects: Expected = ""
        self.question_id: str | None = None
        self.pastes = Pastes()
        self.keys_count = True
        self.entered: list[str] = []
        """Texts that were entered, and of which nothing was told since."""

    @property
    def text(self) -> str:
        """What is typed and not entered."""
        return "\n".join(self._parts)

    @property
    def waits(self) -> bool:
        """Whether it waits for the rest of a text."""
        return bool(self._parts) or self._lent is not None

    def lend(self, purpose: Purpose, text: str = "") -> None:
        """Lets the person write something for the open question."""
        del text  # it stands in the question
        self._lent = purpose
        self._say(ASKS[purpose])

    def clear(self) -> bool:
        """Drops what was not entered; returns False if there was nothing."""
        had, self._lent = self.waits, None
        self._parts.clear()
        return had

    def give(self, text: str) -> None:
        """Says a prompt that was not sent: it cannot be put into the line."""
        if text:
            self._say(f"not sent: {text}")

    def offer(self, beginning: str) -> None:
        """Says how a command goes on."""
        self._say(f"type what follows {beginning}, such as a name or a number")

    def take(self, line: str) -> None:
        """Handles an entered line."""
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
    """Prints; an async context manager."""

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
        """The invitation to type stands at the end of what is printed."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._typed.listen(self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._typed.close()
        await super().__aexit__()

    def post(self, renderable: RenderableType) -> None:
        """Prints something, without colours."""
        text = self.text_of(renderable, self.columns)
        for mark, words in MARKS.items():
            text = text.replace(mark, words)
        self.post_raw(text)

    def post_raw(self, text: str) -> None:
        """Prints a text that ends with a line."""
        if text:
            self._write(("\n" if self._invites and text != "\n" else "") + fitted(text, self._stdout))
            self._invites = False

    def text_of(self, renderable: RenderableType, columns: int) -> str:
        """The renderable as text."""
        self.console.width = columns
        with self.console.capture() as capture:
            self.console.print(renderable)
        return capture.get()

    def open_question(self, question_id: str | None) -> None:
        """Notes which question is open, before it is printed: from then on what is typed answers it."""
        if question_id != self.line.question_id:
            self.line.clear()
            self.line.question_id = question_id
            if question_id is not None:
                self._typed.drop_typed()

    def refresh(self, question_id: str | None) -> None:
        """Invites a prompt where one would begin at once."""
        self.open_question(question_id)
        self._typed.echo(self.line.expects != "secret")
        self._invite()

    async def run_outside(self, command: Sequence[str]) -> bool:
        """Gives the terminal to another program until it ends; returns False if it cannot be started."""
        self._typed.stop()
        try:
            return await super().run_outside(command)
        finally:
            if not self._closing:
                self._typed.listen(self._read)

    def restore(self) -> None:
        """Restores the terminal's settings at once."""
        self._typed.echo(True)

    def _read(self, text: str) -> None:
        if not text and self.line.expects:  # Ctrl-D; if the terminal is gone, the next text is empty too
            self._keyboard.escape()
            self._typed.listen(self._read)
            return
        if not text:
            self.post_raw("\n" if self._invites else "")
            self._keyboard.ask_to_leave()
            self._typed.listen(self._read)
            return
        self._invites = False  # the terminal has begun a new row
        for line in text.removesuffix("\n").split("\n"):
            self.line.take(line)
        self._invite()

    def _invite(self) -> None:
        if not self._closing and not self._invites and self._is_free() and not self.line.waits:
            self._write(PROMPT)
            self._invites = True
