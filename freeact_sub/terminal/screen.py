"""`Screen`: the input line at the bottom of the terminal, the changing rows above it, and the scrollback above those.

Finished blocks are printed once and belong to the terminal: its own scrolling, selection and search work on them. Only
rows that still change (text that is being written, the question, the status) are drawn again and again, by prompt_toolkit,
between the scrollback and the input line. A single task prints, so blocks keep their order, and `drained` lets a reader
of events wait while the terminal is behind.

`WipingOutput` erases rows completely, also after the window became narrower. Most terminals then fold the rows on the
screen, so that the picture takes more rows than prompt_toolkit knows, and its upper ones would stay behind, doubled.
Terminals that cut rows instead are known by their variables.

`quiet` keeps the terminal's own reports of focus, late answers and unknown sequences out of the keys: prompt_toolkit takes
a sequence that it does not know for the keys of its characters, and they would stand in the line.
"""

import asyncio
import os
import re
import sys
import termios
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from itertools import zip_longest
from typing import Any, Final, Self

from prompt_toolkit import search
from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.application.current import get_app_session, set_app
from prompt_toolkit.data_structures import Point
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.input.vt100 import Vt100Input
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
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import ConditionalProcessor, PasswordProcessor
from prompt_toolkit.layout.screen import Char
from prompt_toolkit.layout.screen import Screen as Cells
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar
from rich.console import RenderableType

from freeact_sub.terminal.asking import GUARD_SECONDS
from freeact_sub.terminal.drawing.parts import INDENT, SidewaysConsole, make_console
from freeact_sub.terminal.line import InputLine
from freeact_sub.terminal.listing import Listing
from freeact_sub.terminal.pictures import cell_size
from freeact_sub.terminal.surface import Attention, Keyboard, Notify, OtherProgram, Surface

RESIZED_SECONDS: Final = 0.3
"""Seconds after a change of the window with few drawn rows: rows that the next change moves off it are not erased."""
RESIZED_ROWS: Final = 3
WAITING_CHARS: Final = 100_000
"""Characters that may wait to be printed before `drained` waits."""
REFRESH_SECONDS: Final = 0.5
DRAW_SECONDS: Final = 0.05
"""Least seconds between two drawings."""
INPUT_ROWS: Final = 8
MENU_ROWS: Final = 8
ESCAPE_SECONDS: Final = 0.1
"""Seconds after which an Escape is a key and not the beginning of a sequence."""
KEYS_SECONDS: Final = 0.4
"""Seconds within which Escape and another key are one combination, such as Escape and Enter."""
STYLE: Final = Style.from_dict({"prompt": "bold", "status": "ansibrightblack"})


class Screen(Surface):
    """The terminal of an interactive session; an async context manager."""

    line: InputLine

    def __init__(
        self,
        live: Callable[[int], RenderableType | None],
        status: Callable[[], str],
        keyboard: Keyboard,
        *,
        notify: Notify = "auto",
        other_program: OtherProgram = nullcontext,
        has_vi_keys: bool = False,
    ) -> None:
        """Make the screen.

        Args:
            live: Returns the drawing above the input line, in at most so many rows.
            status: Returns the line below it.
            keyboard: Gets keys and lines.
            notify: The way to call a person who looks elsewhere.
            other_program: See `OtherProgram`.
            has_vi_keys: Whether the line has the keys of vi.
        """
        super().__init__(keyboard, other_program)
        self._editing = EditingMode.VI if has_vi_keys else EditingMode.EMACS
        self._picture, self._status = live, status
        self.console = make_console(self._stdout)
        output = WipingOutput.from_pty(self._stdout, term=os.environ.get("TERM"))
        assert isinstance(output, WipingOutput)
        self._output = output
        # answers of the terminal to position requests would land in the shell if the program is ended at once
        self._output.enable_cpr = False
        self._settings: list[Any] | None = None
        self._printed: list[str] = []
        self._waiting_chars = 0
        self._changed = asyncio.Event()
        self._drained = asyncio.Event()
        self._shown = asyncio.Event()
        self._live = ""
        self._listing: Listing | None = None
        """The list that is shown."""
        self._size = self._output.get_size()
        self._resized_at = -RESIZED_SECONDS
        """The last change of the window, on the event loop's clock."""
        self._narrowed = False
        self.attention = Attention(self._write, notify)
        self.line = InputLine(keyboard)
        self._application = self._make_application()
        self._output.drawn = lambda: self._application.renderer.last_rendered_screen
        self._patch = patch_stdout()  # for what warnings and other libraries print

    async def __aenter__(self) -> Self:
        with suppress(OSError, termios.error):
            self._settings = termios.tcgetattr(sys.stdin.fileno())
        self._patch.__enter__()
        await super().__aenter__()
        self._group.create_task(self._take_input(), name="terminal input")
        self._group.create_task(self._print(), name="terminal output")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._changed.set()
        try:
            await super().__aexit__()
        finally:
            self._patch.__exit__(None, None, None)
            self._write("".join(self._printed))

    async def shown(self) -> None:
        """Wait until the input line is drawn for the first time."""
        await self._shown.wait()

    def post(self, renderable: RenderableType) -> None:
        """Print a finished block, after all earlier ones."""
        if not self._keep(renderable):
            return
        self._fit_console()
        with self.console.capture() as capture:
            self.console.print(renderable)
        self.post_raw(capture.get())

    def post_raw(self, text: str) -> None:
        """Print a text that ends in the first column of a row, as it is; nothing while no terminal is there."""
        if self._back is not None:
            return
        self._printed.append(text)
        self._waiting_chars += len(text)
        self._changed.set()

    def text_of(self, renderable: RenderableType, columns: int) -> str:
        """Return the renderable as coloured text for sideways scrolling: tables and outputs are not folded."""
        console = SidewaysConsole(self._stdout)
        console.width = columns
        with console.capture() as capture:
            console.print(renderable, crop=False)
        return capture.get()

    def rows_of(self, renderable: RenderableType) -> int:
        """Return the number of rows of the drawing."""
        self._fit_console()
        return len(self.console.render_lines(renderable, pad=False))

    @property
    def room(self) -> int:
        """The rows of the terminal."""
        return self._fit_console()

    @property
    def live_rows(self) -> int:
        """The rows that may change, above the input line."""
        screen = self._fit_console()
        return screen - min(3, screen // 8) - min(self.line.buffer.document.line_count + 1, INPUT_ROWS) - 1

    @property
    def columns(self) -> int:
        """The columns of the terminal."""
        return self._output.get_size().columns

    @property
    def is_narrowed(self) -> bool:
        """Whether this drawing has fewer rows than usual for a moment: a menu is open, or the window changes."""
        return self._narrowed

    def hold_keys(self) -> None:
        """Let no key answer the open question until all that was posted can be read."""
        self.line.is_held = True

    @property
    def cell(self) -> tuple[int, int]:
        """The width and height of a character in pixels."""
        return cell_size(self._stdout.fileno())

    def write_raw(self, text: str) -> None:
        """Write a sequence that the terminal obeys and does not draw."""
        self._write(text)

    async def drained(self) -> None:
        """Wait while more than `WAITING_CHARS` are not printed yet."""
        while self._waiting_chars > WAITING_CHARS and not self._closing:
            self._drained.clear()
            await self._drained.wait()

    def refresh(self, question_id: str | None) -> None:
        """Draw the changing rows again. Args: question_id: the question that is open, or None."""
        if self.line.change(question_id) and self._application.layout.is_searching:
            with set_app(self._application):
                search.stop_search()
        self._application.invalidate()

    async def run_outside(self, command: Sequence[str]) -> bool:
        """Give the terminal to another program until it ends; return whether it was started and ended well."""
        async with self._given_away():
            ended_well = not self._closing and await super().run_outside(command)
            self._write("\r\x1b[J")  # the terminal may have echoed a key, and drawing begins in the first column
            return ended_well

    async def show_pages(self, listing: Listing) -> None:
        """Show a list in the alternate screen until the person leaves it."""
        async with self._given_away():
            if self._closing:  # it has waited for another one
                return
            # an input of its own: the line's would take an Escape that follows at once for its own
            application = listing.application(
                quiet(create_input()), Vt100_Output.from_pty(self._stdout, term=os.environ.get("TERM"))
            )
            self._end_other, self._listing = listing.leave, listing
            with suppress(EOFError, OSError):  # the terminal is gone; the input line learns it too
                await application.run_async(handle_sigint=False, set_exception_handler=False)

    @asynccontextmanager
    async def _given_away(self) -> AsyncIterator[None]:
        """Stop drawing meanwhile; posted blocks wait."""
        with set_app(self._application):
            async with in_terminal():
                self._output.is_away = True
                try:
                    yield
                finally:
                    self._output.is_away, self._end_other, self._listing = False, None, None
                    self._changed.set()

    def restore(self) -> None:
        """Restore the terminal's settings at once, for a program that is about to end.

        A signal's handler calls it, maybe in the middle of a write: the stream's buffer must not be used.
        """
        pages = "\x1b[?1049l" if self._output.is_away else ""  # the alternate screen
        end = f"{pages}{self.attention.ending()}\x1b[?2004l\x1b[?25h\x1b[0m\r\n"  # end of bracketed paste; show the cursor
        with suppress(OSError):
            os.write(self._stdout.fileno(), end.encode())
        if self._settings is not None:
            with suppress(OSError, termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._settings)

    async def _be_away(self, then: Callable[[], None], back: asyncio.Event) -> None:
        if self._listing is not None:
            self._listing.leave()
        async with self._given_away():
            if self._closing:
                return
            self.attention.end()
            self._end_other = back.set
            await super()._be_away(then, back)
        if not self._closing:
            self.attention.begin()

    def _print_again(self, printed: RenderableType) -> None:
        self.post(printed)

    async def _take_input(self) -> None:
        if self._closing:
            return
        try:
            await self._application.run_async(handle_sigint=False, set_exception_handler=False)
        except (EOFError, OSError):  # the terminal is gone
            self._keyboard.leave()

    async def _print(self) -> None:
        while self._printed or not self._closing:
            await self._changed.wait()
            self._changed.clear()
            if self._output.is_away and not self._closing:
                continue
            text = "".join(self._printed)
            self._printed.clear()
            if text:
                self._print_above(text)
            self._waiting_chars -= len(text)
            self._drained.set()
            if not self._closing:
                await asyncio.sleep(DRAW_SECONDS)  # what comes meanwhile is printed at once
        self.attention.end()
        if self._application.is_running:
            self._application.exit()

    def _print_above(self, text: str) -> None:
        # not through `in_terminal`: it leaves raw mode for a moment, and a key pressed in that moment is lost or echoed
        if self._application.is_running:
            self._application.renderer.erase()
        self._write(text)
        self._application.invalidate()

    def _make_application(self) -> Application[None]:
        live = ConditionalContainer(
            Window(FormattedTextControl(lambda: ANSI(self._live)), dont_extend_height=True),
            filter=Condition(lambda: bool(self._live)),
        )
        found = SearchToolbar()
        line = Window(
            BufferControl(
                self.line.buffer,
                input_processors=[
                    ConditionalProcessor(PasswordProcessor(), Condition(lambda: self.line.expects == "secret")),
                ],
                search_buffer_control=found.control,
                preview_search=True,
            ),
            wrap_lines=True,
            get_line_prefix=lambda line, row: INDENT * " " if line or row else [("class:prompt", self.line.prompt())],
            dont_extend_height=True,
            height=Dimension(min=1, max=INPUT_ROWS),
        )
        status = Window(FormattedTextControl(self._status), height=1, style="class:status")
        application: Application[None] = Application(
            layout=Layout(
                HSplit([live, line, found, CompletionsMenu(max_height=MENU_ROWS), status], align=VerticalAlign.TOP),
                focused_element=line,
            ),
            key_bindings=self.line.bindings(),
            editing_mode=self._editing,
            style=STYLE,
            color_depth=ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None,
            input=quiet(get_app_session().input),
            output=self._output,
            erase_when_done=True,
            refresh_interval=REFRESH_SECONDS,
            min_redraw_interval=DRAW_SECONDS,
            before_render=lambda _: self._draw_live(),
            after_render=lambda _: self._was_shown(),
        )
        application.ttimeoutlen, application.timeoutlen = ESCAPE_SECONDS, KEYS_SECONDS
        application.key_processor.before_key_press += lambda _: self._before_key(application)
        return application

    def _before_key(self, application: Application[None]) -> None:
        if self.line.takes_keys():  # a key answers, whatever it would mean to vi
            application.vi_state.reset()

    def _was_shown(self) -> None:
        self._output.note_widths()
        if self.line.is_held and not self._printed and not self._is_being_resized():
            self.line.release()
            asyncio.get_running_loop().call_later(GUARD_SECONDS * 1.1, self._application.invalidate)
        if not self._shown.is_set() and not self._closing:
            self.attention.begin()
            self._shown.set()

    def _draw_live(self) -> None:
        has_menu, is_resized = self.line.buffer.complete_state is not None, self._is_being_resized()
        self._narrowed = has_menu or is_resized
        rows = self.live_rows - (MENU_ROWS if has_menu else 0)
        rows = RESIZED_ROWS if is_resized else max(rows, RESIZED_ROWS)
        renderable = self._picture(rows)
        if renderable is None:
            self._live = ""
            return
        with self.console.capture() as capture:
            self.console.print(renderable, end="")
        self._live = "\n".join(capture.get().rstrip("\n").split("\n")[:rows])

    def _is_being_resized(self) -> bool:
        loop, size = asyncio.get_running_loop(), self._output.get_size()
        if size != self._size:
            self._size, self._resized_at = size, loop.time()
            loop.call_later(RESIZED_SECONDS * 1.1, self._application.invalidate)
        return loop.time() - self._resized_at < RESIZED_SECONDS

    def _fit_console(self) -> int:
        """Set the console to the terminal's size; return the number of rows."""
        size = self._output.get_size()
        self.console.size = (size.columns, size.rows)
        return size.rows


class WipingOutput(Vt100_Output):
    """An output that erases the whole drawing, and writes nothing while another program has the terminal."""

    drawn: Callable[[], Cells | None] = staticmethod(lambda: None)
    """A function that returns the last drawing."""
    _widths: Sequence[int] = ()
    """The width at which the terminal folds each row of the drawing."""
    is_away = False
    """Whether another program has the terminal."""

    def write_raw(self, data: str) -> None:
        """Write, unless another program has the terminal."""
        if not self.is_away:
            super().write_raw(data)

    def write(self, data: str) -> None:
        """Write, unless another program has the terminal."""
        if not self.is_away:
            super().write(data)

    def note_widths(self) -> None:
        """Note the widths of the rows, after each drawing.

        tmux folds a row at the greatest width that it has had since all of it was erased, even if its end was erased later.
        """
        drawn = self.drawn()
        if drawn is not None:
            widths = (_width(drawn.data_buffer[row]) for row in range(drawn.height))
            before = self._widths if in_tmux(os.environ) else ()
            self._widths = [max(pair) for pair in zip_longest(widths, before, fillvalue=0)]

    def erase_down(self) -> None:
        """Erase the rest of this row, and then the rows below it, from where folding has moved the first row.

        tmux takes an erasure from the top left corner downwards for a cleared screen, and moves the whole screen into its
        history: the input line, or a question, would stand there once more, each time that it is drawn from the first row.
        """
        drawn = self.drawn()
        cursor = next(iter(drawn.cursor_positions.values()), None) if drawn is not None else None
        if cursor is not None and folds_rows(os.environ):
            self.cursor_up(folded_above(self._widths, cursor, self.get_size().columns))
        self.write_raw("\x1b[K\x1b7\x1b[B\x1b[J\x1b8")
        self._widths = ()


def folds_rows(environment: Mapping[str, str]) -> bool:
    """Return whether the terminal folds rows that no longer fit. xterm, GNU screen and Linux's console cut them."""
    cuts = "XTERM_VERSION" in environment or environment.get("TERM", "").startswith(("linux", "screen", "vt"))
    return in_tmux(environment) or not cuts


def folded_above(widths: Sequence[int], cursor: Point, columns: int) -> int:
    """Return the number of rows that folding rows of these widths at so many columns adds above the cursor."""
    if columns < 1:
        return 0
    return sum(max(0, width - 1) // columns for width in widths[: cursor.y]) + cursor.x // columns


def in_tmux(environment: Mapping[str, str]) -> bool:
    """Return whether the terminal is a pane of tmux."""
    return "TMUX" in environment


def _width(row: Mapping[int, Char]) -> int:
    return max((column + char.width for column, char in row.items() if not char.char.isspace()), default=0)


_SEQUENCE: Final = re.compile(
    r"""
      \x1b\[ [0-?]* [ -/]* [@-~]                          # CSI: keys, focus, positions, the mouse
    | \x1bO [ -~]                                         # SS3: keys
    | \x1b[\]PX^_] [^\x07\x1b]* (?: \x07 | \x1b\\ )       # OSC, DCS, SOS, PM, APC: answers about colours and names
    """,
    re.VERBOSE,
)
_BEGINNING: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O|[\]PX^_][^\x07\x1b]*\x1b?)?\Z")
_ANSWER: Final = re.compile(r"\x1b[\]PX^_][^\x07\x1b]{2}")
"""The beginning of an answer: nobody types that."""
PASTE, PASTE_END = "\x1b[200~", "\x1b[201~"


def quiet(source: Input) -> Input:
    """Return an input of prompt_toolkit that passes on nothing but keys."""
    if isinstance(source, Vt100Input) and not isinstance(source.vt100_parser, QuietParser):
        source.vt100_parser = QuietParser(source.vt100_parser)  # type: ignore[assignment]  # its two methods are used
    return source


class QuietParser:
    """A filter before prompt_toolkit's parser that leaves out sequences that are no keys."""

    def __init__(self, parser: Any) -> None:
        """Args: parser: a `Vt100Parser`."""
        self._parser = parser
        self._held = ""
        """The beginning of a sequence."""
        self._waited = False
        """Whether no more of it has come for a moment."""
        self._pastes = False

    def feed(self, data: str) -> None:
        """Take characters of the terminal."""
        data, self._held = self._held + data, ""
        while data:
            mark = PASTE_END if self._pastes else PASTE
            before, found, data = data.partition(mark)
            self._take(before, is_last=not found)
            if found:
                self._parser.feed(found)
                self._pastes = not self._pastes
        self._waited &= bool(self._held)

    def _take(self, data: str, *, is_last: bool) -> None:
        """Args: is_last: nothing comes behind it yet."""
        if self._pastes:
            counts = range(len(PASTE_END) - 1, 0, -1) if is_last else ()
            begins = len(data) - next((count for count in counts if data.endswith(PASTE_END[:count])), 0)
        else:
            data = _SEQUENCE.sub(lambda match: match[0] if match[0] in ANSI_SEQUENCES else "", data)
            beginning = _BEGINNING.search(data) if is_last else None
            begins = len(data) if beginning is None else beginning.start()
        self._held = data[begins:]
        self._parser.feed(data[:begins])

    def flush(self) -> None:
        """Take held characters for keys, because no more has come; the beginning of an answer is waited for once more."""
        if self._held and not self._pastes:
            if _ANSWER.match(self._held):
                self._held, self._waited = "" if self._waited else self._held, not self._waited
            else:
                held, self._held = self._held, ""
                self._parser.feed(held)
        self._parser.flush()
