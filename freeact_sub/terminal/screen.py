"""`Screen`: an input line at the bottom of the terminal, what still changes above it, and the scrollback above that.

What is finished is printed once and belongs to the terminal: its own scrolling, selection and search work on it. Only
what still changes (text that is being written, the question, the status) is drawn again and again, by prompt_toolkit,
between the scrollback and the input line. A single task prints, so blocks keep their order, and `drained` lets a reader
of events wait while the terminal is behind.
"""

import asyncio
import io
import os
import sys
import termios
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Protocol, Self, TextIO

from prompt_toolkit import search
from prompt_toolkit.application import Application
from prompt_toolkit.application.current import set_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    VerticalAlign,
    Window,
)
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar
from rich.console import RenderableType

from freeact_sub.terminal.drawing import make_console
from freeact_sub.terminal.reflow import ReflowingApplication

WAITING_CHARS: Final = 100_000
"""Text that may wait to be printed before `drained` waits."""
REFRESH_SECONDS: Final = 0.5
INPUT_ROWS: Final = 8
STYLE: Final = Style.from_dict({"prompt": "bold", "status": "ansibrightblack"})


class Driver(Protocol):
    """Supplies what a screen draws, and handles what a person types. Called in the event loop: no method may block."""

    def live(self, rows: int) -> RenderableType | None:
        """What is drawn above the input line, in at most so many rows; called at each drawing."""
        ...

    def status(self) -> str:
        """The line below the input line; called at each drawing."""
        ...

    def enter(self, text: str) -> None:
        """A line was entered."""
        ...

    def interrupt(self) -> None:
        """Ctrl-C was pressed."""
        ...

    def leave(self) -> None:
        """Ctrl-D was pressed at an empty line, or the terminal is gone."""
        ...


class Screen:
    """The terminal of an interactive session; an async context manager."""

    def __init__(self, driver: Driver) -> None:
        """Args: driver: see there."""
        self._driver = driver
        self._stdout: TextIO = sys.stdout
        if isinstance(self._stdout, io.TextIOWrapper):
            self._stdout.reconfigure(errors="replace")  # not every terminal knows every character
        self.console = make_console(self._stdout)
        self._output = Vt100_Output.from_pty(self._stdout, term=os.environ.get("TERM"))
        # answers of the terminal to position requests would land in the shell if the program is ended at once
        self._output.enable_cpr = False
        self._settings: list[Any] | None = None
        self._printed: list[str] = []
        self._waiting_chars = 0
        self._changed = asyncio.Event()
        self._drained = asyncio.Event()
        self._shown = asyncio.Event()
        self._closing = False
        self._question: str | None = None
        self._draft = Document()
        self._live = ""
        self._buffer = Buffer(multiline=True)
        self._application = self._make_application()
        self._patch = patch_stdout()  # for what warnings and other libraries print
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        with suppress(OSError, termios.error):
            self._settings = termios.tcgetattr(sys.stdin.fileno())
        self._patch.__enter__()
        await self._group.__aenter__()
        self._group.create_task(self._take_input(), name="terminal input")
        self._group.create_task(self._print(), name="terminal output")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        del kind, error, traceback
        self._closing = True
        self._changed.set()
        try:
            await self._group.__aexit__(None, None, None)  # an error of the body is none of the screen's
        finally:
            self._patch.__exit__(None, None, None)
            self._write("".join(self._printed))

    async def shown(self) -> None:
        """Wait until the input line is drawn for the first time."""
        await self._shown.wait()

    def post(self, renderable: RenderableType) -> None:
        """Print something finished, after all that was posted before."""
        self._fit_console()
        with self.console.capture() as capture:
            self.console.print(renderable)
        text = capture.get()
        self._printed.append(text)
        self._waiting_chars += len(text)
        self._changed.set()

    async def drained(self) -> None:
        """Wait while much has been posted that is not printed yet."""
        while self._waiting_chars > WAITING_CHARS and not self._closing:
            self._drained.clear()
            await self._drained.wait()

    def refresh(self, question_id: str | None) -> None:
        """Draw again what changes.

        Args:
            question_id: The question that an entered line answers, or None. When it changes, what was typed so far is
                taken off the input line, for it was no answer to this question; what was typed before the first
                question comes back after the last.
        """
        if question_id != self._question:
            if self._question is None:
                self._draft = self._buffer.document
            if self._application.layout.is_searching:
                with set_app(self._application):
                    search.stop_search()
            self._question = question_id
            self._buffer.reset(self._draft if question_id is None else Document())
        self._application.invalidate()

    def clear_input(self) -> bool:
        """Empty the input line; False if it was empty."""
        had_text = bool(self._buffer.text)
        self._buffer.reset()
        return had_text

    def restore(self) -> None:
        """Undo at once what was changed of the terminal's settings; for a program that is about to end."""
        with suppress(OSError):
            os.write(self._stdout.fileno(), b"\x1b[?2004l\x1b[?25h\x1b[0m\r\n")  # end of bracketed paste; show the cursor
        if self._settings is not None:
            with suppress(OSError, termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._settings)

    async def _take_input(self) -> None:
        if self._closing:
            return
        try:
            await self._application.run_async(handle_sigint=False, set_exception_handler=False)
        except (EOFError, OSError):  # the terminal is gone
            self._driver.leave()

    async def _print(self) -> None:
        while self._printed or not self._closing:
            await self._changed.wait()
            self._changed.clear()
            text = "".join(self._printed)
            self._printed.clear()
            if text:
                self._print_above(text)
            self._waiting_chars -= len(text)
            self._drained.set()
        if self._application.is_running:
            self._application.exit()

    def _print_above(self, text: str) -> None:
        # not through `in_terminal`: it leaves raw mode for a moment, and a key pressed in that moment is lost or echoed
        if self._application.is_running:
            self._application.renderer.erase()
        self._write(text)
        self._application.invalidate()

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone; the run goes on to its end
            self._stdout.write(text)
            self._stdout.flush()

    def _make_application(self) -> Application[None]:
        live = ConditionalContainer(
            Window(FormattedTextControl(lambda: ANSI(self._live)), dont_extend_height=True),
            filter=Condition(lambda: bool(self._live)),
        )
        found = SearchToolbar()
        line = Window(
            BufferControl(
                self._buffer,
                input_processors=[BeforeInput(self._prompt, style="class:prompt")],
                search_buffer_control=found.control,
                preview_search=True,
            ),
            wrap_lines=True,
            dont_extend_height=True,
            height=Dimension(min=1, max=INPUT_ROWS),
        )
        status = Window(FormattedTextControl(self._driver.status), height=1, style="class:status")
        return ReflowingApplication(
            layout=Layout(HSplit([live, line, found, status], align=VerticalAlign.TOP), focused_element=line),
            key_bindings=self._key_bindings(),
            style=STYLE,
            output=self._output,
            erase_when_done=True,
            refresh_interval=REFRESH_SECONDS,
            before_render=lambda _: self._draw_live(),
            after_render=lambda _: self._shown.set(),
        )

    def _prompt(self) -> str:
        return "> " if self._question is None else "? "

    def _key_bindings(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter", filter=~is_searching)
        def _(event: KeyPressEvent) -> None:
            del event
            text = self._buffer.text
            self._buffer.reset(append_to_history=self._question is None and bool(text.strip()))
            self._driver.enter(text)

        @keys.add("enter", filter=is_searching)
        def _(event: KeyPressEvent) -> None:
            del event
            search.accept_search()  # the line can be changed before it is entered
            self._buffer.cursor_position = len(self._buffer.text)

        @keys.add("escape", "enter", filter=~is_searching)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c", filter=~is_searching)
        def _(event: KeyPressEvent) -> None:
            del event
            self._driver.interrupt()

        @keys.add("c-d", filter=~is_searching & Condition(lambda: not self._buffer.text))
        def _(event: KeyPressEvent) -> None:
            del event
            self._driver.leave()

        return keys

    def _draw_live(self) -> None:
        rows = self._fit_console() - INPUT_ROWS - 1
        renderable = self._driver.live(max(rows, 3))
        if renderable is None:
            self._live = ""
            return
        with self.console.capture() as capture:
            self.console.print(renderable, end="")
        self._live = "\n".join(capture.get().rstrip("\n").split("\n")[: max(rows, 3)])

    def _fit_console(self) -> int:
        """Give the console the terminal's size; returns the number of rows."""
        size = self._output.get_size()
        self.console.size = (size.columns, size.rows)
        return size.rows
