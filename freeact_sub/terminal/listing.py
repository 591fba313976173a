"""`Listing`: one list for all that a person scrolls, filters, or selects in the terminal.

The rows of a `Chooser` can be selected: typing filters them, and Enter takes one. A `Pager` is the list with lines that
cannot be: its letters are keys, those of `less`. It shows something long, and draws it anew as it grows, as no other program
would. `choose` shows a list where no conversation has the terminal; where that cannot move its cursor, the rows are
numbered lines.
"""

import asyncio
import math
import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import Any, Final, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.formatted_text.utils import fragment_list_width
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import BufferControl, ConditionalContainer, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.containers import Container
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.layout.utils import explode_text_fragments
from prompt_toolkit.output import Output
from prompt_toolkit.output.vt100 import Vt100_Output
from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType

from freeact_sub.errors import FreeactError
from freeact_sub.terminal.asking import forget_typed
from freeact_sub.terminal.drawing.transcript import Block, Paged
from freeact_sub.text import visible

REFRESH_SECONDS: Final = 0.5
ESCAPE_SECONDS: Final = 0.1
MOVES: Final = (
    *((key, 0, -1) for key in ("up", "c-p", "k")),
    *((key, 0, 1) for key in ("down", "c-n", "j")),
    *((key, -1, 0) for key in ("pageup", "b")),
    *((key, 1, 0) for key in ("pagedown", "space", "f")),
    *((key, 0, -math.inf) for key in ("home", "g")),
    *((key, 0, math.inf) for key in ("end", "G")),
)
"""Keys, each with the pages and rows that it moves by."""
WRITTEN: Final = ("home", "end", "space")
"""Keys that belong to a text while one is written, as letters do."""


def matching(texts: Sequence[str], words: Sequence[str]) -> Sequence[int]:
    """Return the places of the texts that have all words, in any case."""
    wanted = [word.lower() for word in words]
    if not wanted:
        return range(len(texts))
    return [at for at, text in enumerate(map(str.lower, texts)) if all(word in text for word in wanted)]


class Listing(ABC):
    """A list: its window, its keys, and the line of its state. It is shown once."""

    hints: Sequence[str]
    """The keys, most useful first. The line of the state names as many as fit."""
    other_rows = 1
    """Rows of the window outside the list."""
    _application: Application[None]

    def __init__(self, prompt: str = "") -> None:
        """Args: prompt: stands before the text that a person writes; empty: none is written now."""
        self._prompt = prompt
        self._top = 0
        self._height = 0
        self._is_reading = False
        """Whether another thread reads or draws the content."""
        self._query = Buffer(multiline=False, on_text_changed=lambda _: self._change())
        self._writes = Condition(lambda: bool(self._prompt))

    def leave(self) -> None:
        """End the list; do nothing if it has ended."""
        if self._application.is_running and not self._application.is_done:
            self._application.exit()

    def application(self, source: Input, output: Output, *, height: int = 0) -> Application[None]:
        """Return the application of the list. Args: source, output: the terminal. height: the list's; 0: all rows."""
        self._height = height
        self._input = Window(BufferControl(self._query, input_processors=[BeforeInput(lambda: self._prompt)]), height=1)
        control = FormattedTextControl(self._shown, focusable=True, show_cursor=False)
        self._body = Window(control, wrap_lines=False, height=lambda: self._rows if height else None)
        status = Window(FormattedTextControl(self._status), height=1, style="reverse")
        self._application = Application(
            layout=Layout(
                HSplit(self._laid_out(self._body, ConditionalContainer(self._input, self._writes), status)),
                focused_element=self._input if self._prompt else self._body,
            ),
            key_bindings=self._keys(),
            full_screen=not height,
            erase_when_done=bool(height),
            input=source,
            output=output,
            refresh_interval=REFRESH_SECONDS,
            before_render=lambda _: self._look(),
        )
        self._application.ttimeoutlen = ESCAPE_SECONDS
        return self._application

    def _laid_out(self, body: Container, line: Container, status: Container) -> list[Container]:
        return [line, body, status]

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        for pressed in ("escape", "c-d"):
            keys.add(pressed, eager=True)(lambda _: self._back())
        keys.add("c-c", eager=True)(lambda _: self._interrupt())
        keys.add("enter", eager=True)(lambda _: self._enter())
        for pressed, pages, rows in MOVES:
            counts = ~self._writes if len(pressed) == 1 or pressed in WRITTEN else Condition(lambda: True)
            keys.add(pressed, filter=counts, eager=True)(lambda _, by=(pages, rows): self._scroll(*by))
        return keys

    @property
    def _size(self) -> tuple[int, int]:
        size = self._application.output.get_size()
        return size.rows, size.columns

    @property
    def _rows(self) -> int:
        return max(min(self._size[0] - self.other_rows, self._height or self._size[0]), 1)

    def _status(self) -> str:
        line = " " + " · ".join(filter(None, self._state()))
        for hint in self.hints:
            if cell_len(f"{line} · {hint}") > self._size[1]:
                break
            line = f"{line} · {hint}"
        return line

    def _back(self) -> None:
        self.leave()

    def _interrupt(self) -> None:
        self._back()

    def _change(self) -> None:  # noqa: B027  # most lists have nothing to do
        """Follow a change of the written text."""

    @abstractmethod
    def _look(self) -> None:
        """Read the content, before each drawing."""

    @abstractmethod
    def _enter(self) -> None: ...

    @abstractmethod
    def _scroll(self, pages: int, rows: float) -> None: ...

    @abstractmethod
    def _state(self) -> Sequence[str]: ...

    @abstractmethod
    def _shown(self) -> StyleAndTextTuples: ...


@dataclass(frozen=True, kw_only=True)
class Row:
    """One of several things to choose."""

    value: str
    text: str
    note: str = ""
    words: str = ""
    """The searched words; empty: the text."""
    group: str = ""
    """The heading of the rows of its kind, which stand together."""
    is_present: bool = False
    """Whether the row is what counts now: it is marked, and selected at first."""
    drawn: Callable[[int], str] | None = None
    """A function that draws the row in so many columns. None: its text and its note."""

    def in_columns(self, columns: int, widest: int) -> str:
        """Return the drawn row. Args: widest: the columns of the longest text."""
        note = " · ".join(filter(None, ["now" if self.is_present else "", visible(self.note)]))
        text = self.drawn(columns) if self.drawn else f"{set_cell_size(visible(self.text), widest)}  {note}"
        return set_cell_size(text, columns)


class Chooser(Listing):
    """A choice by a person. `chosen` is the value of the row afterwards; None: none was chosen."""

    other_rows = 2

    def __init__(self, prompt: str, load: Callable[[], Sequence[Row]], *, takes: str, none: str) -> None:
        """Make the list.

        Args:
            prompt: Stands before the text that filters the rows.
            load: Reads the rows; called in another thread.
            takes: The action of Enter.
            none: The words for no rows.
        """
        super().__init__(prompt)
        self.chosen: str | None = None
        self.is_alone = False
        """Whether Ctrl-C interrupts the program. Else it leaves the list."""
        self.hints = (f"Enter {takes}", "Esc leaves", "type to search", "↑ ↓ move")
        self.load, self.none = load, none
        self._all: Sequence[Row] | None = None
        self._at = 0

    def _look(self) -> None:
        if self._all is None and not self._is_reading:
            self._is_reading = True
            self._application.create_background_task(self._read())

    async def _read(self) -> None:
        try:
            self._all = await asyncio.to_thread(self.load)
        except FreeactError as error:
            self._all, self.none = [], str(error)
        self._at = next((at for at, row in enumerate(self._found) if row.is_present), 0)
        self._application.invalidate()

    def _interrupt(self) -> None:
        if self.is_alone:
            self._application.exit(exception=KeyboardInterrupt)
        else:
            self.leave()

    def _change(self) -> None:
        self._at = self._top = 0

    def _scroll(self, pages: int, rows: float) -> None:
        self._at = int(min(max(self._at + pages * self._rows + rows, 0), max(len(self._found) - 1, 0)))

    def _enter(self) -> None:
        if found := self._found:
            self.chosen = found[self._at].value
            self.leave()

    @property
    def _found(self) -> list[Row]:
        rows = self._all or []
        return [rows[at] for at in matching([row.words or row.text for row in rows], self._query.text.split())]

    def _state(self) -> Sequence[str]:
        return [f"{len(self._found):,} of {len(self._all):,}" if self._all is not None else "reading …"]

    def _shown(self) -> StyleAndTextTuples:
        found, columns = self._found, self._size[1] - 2
        if not found:
            return [("", "reading …" if self._all is None else "no match" if self._all else self.none)]
        widest = max(cell_len(visible(row.text)) for row in found)
        lines: list[Row | str] = []
        selected = 0
        for number, row in enumerate(found):
            if row.group and (not number or found[number - 1].group != row.group):
                lines.append(row.group)
            selected = len(lines) if number == self._at else selected
            lines.append(row)
        least = selected - 1 if found[0].group else selected
        self._top = min(max(self._top, selected - self._rows + 1), max(least, 0))
        shown: StyleAndTextTuples = []
        for row_or_group in lines[self._top : self._top + self._rows]:
            if isinstance(row_or_group, str):
                shown.append(("bold", f"{row_or_group}\n"))
                continue
            is_selected = row_or_group is found[self._at]
            text = f"{'> ' if is_selected else '  '}{row_or_group.in_columns(columns, widest)}\n"
            shown.append(("reverse" if is_selected else "", text))
        return shown


SHOWN: Final = 20
"""Rows that are numbered at a time."""
MAX_ROWS: Final = 12
"""Rows of a list below other lines."""


def choose(chooser: Chooser, terminal: TextIO, *, draws: bool, head: str = "") -> str | None:
    """Return the value of the row that a person chooses, before a conversation begins; None if none is wanted.

    Args:
        chooser: The list.
        terminal: The stream for the question; the answer is read from standard input.
        draws: Whether the terminal can move its cursor.
        head: The question, in one or more lines above the rows. Empty: the list has the whole window.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    forget_typed()
    if head:
        print(head, file=terminal, flush=True)
    if not draws:
        return _choose_by_line(chooser.load(), terminal, chooser.none)
    chooser.is_alone = True
    output = Vt100_Output.from_pty(terminal, term=os.environ.get("TERM"))
    output.enable_cpr = False  # as `Screen` does
    height = min(len(chooser.load()), MAX_ROWS) if head else 0
    chooser.application(create_input(sys.stdin), output, height=height).run()
    return chooser.chosen


def _choose_by_line(rows: Sequence[Row], terminal: TextIO, none: str) -> str | None:
    if not rows:
        print(none, file=terminal)
        return None
    found: Sequence[int] = range(len(rows))
    while True:
        for number, at in enumerate(found[:SHOWN], 1):
            note = f"  ({visible(rows[at].note)})" if rows[at].note else ""
            print(f"{number:>3}  {visible(rows[at].text)}{note}", file=terminal)
        if len(found) > SHOWN:
            print(f"     and {len(found) - SHOWN} more", file=terminal)
        print("number, words to search for, or Enter for none: ", end="", file=terminal, flush=True)
        text = sys.stdin.readline().strip()
        if not text:
            return None
        if text.isdecimal() and 1 <= int(text) <= min(len(found), SHOWN):
            return rows[found[int(text) - 1]].value
        narrowed = matching([row.words or row.text for row in rows], text.split())
        if not narrowed:
            print(f"     no match: {visible(text)}", file=terminal)
        found = narrowed or found


HINTS: Final = ("q closes", "/ search", "& filter", "n N next, previous", "← → sideways")
UNFOLDING: Final = ("q closes", "Enter unfolds", "Tab next", "ctrl-o all", *HINTS[1:])
SIDEWAYS_COLUMNS: Final = 8
_LINK: Final = re.compile(r"\x1b\]8;[^\x1b\x07]*(?:\x1b\\|\x07)")
_STYLE: Final = re.compile(r"\x1b\[[0-9;:]*m")
_FOLDED: Final = re.compile(r"\s*… [\d,]+ more lines? \(")


class Pager(Listing):
    """A list of the lines of one content."""

    def __init__(
        self, paged: Paged, text_of: Callable[[RenderableType, int], str], asks: Callable[[], str], *, at_end: bool
    ) -> None:
        """Make the pager.

        Args:
            paged: The content.
            text_of: Draws the content for so many columns; called in another thread.
            asks: Returns a few words about open questions for the status line.
            at_end: Begin at the end, and stay there while the content grows.
        """
        super().__init__()
        self._paged = paged
        self._text_of = text_of
        self._asks = asks
        self._at_end = at_end
        self._drawn_for: tuple[int, int, int] | None = None
        self._unfolded = 0
        """A number that changes with each block that is unfolded or folded."""
        self._then: Callable[[], None] | None = None
        """A function to call after the next drawing."""
        self._texts: dict[Block, tuple[tuple[int, ...], list[str]]] = {}
        """The lines of each block, and the width and state for which they were drawn."""
        self._lines: list[str] = []
        """All lines, with their colours."""
        self._plain: list[str] = []
        self._starts: dict[Block, int] = {}
        """The number of the first line of each block, in order."""
        self._chosen: Block | None = None
        """The block to which the person has moved."""
        self._longest = self._left = 0
        self._wanted = self._filter = ""

    @property
    def hints(self) -> Sequence[str]:  # type: ignore[override]
        """The keys, most useful first."""
        return UNFOLDING if self._foldable else HINTS

    def _laid_out(self, body: Container, line: Container, status: Container) -> list[Container]:
        return [body, line, ConditionalContainer(status, ~self._writes)]

    def _keys(self) -> KeyBindings:
        keys = super()._keys()
        for pressed, do in {
            "q": self.leave,
            "tab": lambda: self._choose(1),
            "s-tab": lambda: self._choose(-1),
            "c-o": self._unfold_all,
            "/": lambda: self._ask("/"),
            "&": lambda: self._ask("&"),
            "n": lambda: self._find(1, self._top + 1),
            "N": lambda: self._find(-1, self._top - 1),
            "right": lambda: self._sideways(SIDEWAYS_COLUMNS),
            "left": lambda: self._sideways(-SIDEWAYS_COLUMNS),
        }.items():
            keys.add(pressed, filter=~self._writes, eager=True)(lambda _, do=do: do())
        return keys

    def _ask(self, prompt: str) -> None:
        """Let the person write a text to search (`/`), or to filter lines by (`&`)."""
        self._prompt = prompt
        self._query.reset()
        self._application.layout.focus(self._input)

    def _back(self) -> None:
        if self._prompt:
            self._written(counts=False)
        else:
            self.leave()

    def _written(self, *, counts: bool) -> None:
        prompt, self._prompt = self._prompt, ""
        self._application.layout.focus(self._body)
        if counts and prompt == "&":
            self._filter, self._top = self._query.text, 0
        elif counts:
            self._wanted = self._query.text or self._wanted
        if counts and self._wanted + self._filter:
            self._unfold_to_look()

    def _scroll(self, pages: int, rows: float) -> None:
        self._move(int(max(min(self._top + pages * max(self._rows - 1, 1) + rows, len(self._plain)), 0)))

    @property
    def _found(self) -> Sequence[int]:
        """The numbers of the lines that pass the filter."""
        return matching(self._plain, [self._filter] if self._filter else [])

    def _move(self, top: int) -> None:
        last = max(len(self._found) - self._rows, 0)
        self._top = min(max(top, 0), last)
        self._at_end = self._top == last

    def _sideways(self, columns: int) -> None:
        last = max(self._longest - self._size[1], 0)
        self._left = min(max(self._left + columns, 0), -(-last // SIDEWAYS_COLUMNS) * SIDEWAYS_COLUMNS)

    def _find(self, step: int, start: int) -> None:
        found = self._found
        if self._wanted:
            places = range(start, len(found)) if step > 0 else range(min(start, len(found) - 1), -1, -1)
            at = next((place for place in places if self._wanted.lower() in self._plain[found[place]].lower()), None)
            if at is not None:
                self._top, self._at_end = at, False  # the line that was searched stands first, also at the end

    def _unfold_to_look(self) -> None:
        """Unfold all, for folded lines are searched too, and go to the searched text."""
        self._then = self._unfold_to_look if self._drawn_for is None else self._find_first if self._wanted else None
        if self._drawn_for is not None:
            self._unfold(self._foldable, are_open=True)

    def _find_first(self) -> None:
        self._find(1, self._top)

    # What is folded

    @property
    def _foldable(self) -> list[Block]:
        return [] if self._filter else [block for block in self._starts if block.is_foldable]

    @property
    def _selected(self) -> Block | None:
        """The block that Enter unfolds: the one to which the person has moved, or the last one on the screen."""
        shown = [block for block in self._foldable if self._is_shown(block)]
        return self._chosen if self._chosen in shown else shown[-1] if shown else None

    def _range(self, block: Block) -> range:
        later = [start for start in self._starts.values() if start > self._starts[block]]
        return range(self._starts[block], later[0] if later else len(self._plain))

    def _is_shown(self, block: Block) -> bool:
        lines = self._range(block)
        return lines.start < self._top + self._rows and lines.stop > self._top

    def _choose(self, step: int) -> None:
        """Move to the next block that can be unfolded."""
        blocks, present = self._foldable, self._selected
        if not blocks:
            return
        beyond = sum(self._starts[block] < self._top for block in blocks) - (step > 0)
        at = blocks.index(present) if present is not None else beyond
        self._chosen = blocks[min(max(at + step, 0), len(blocks) - 1)]
        lines = self._range(self._chosen)
        if lines.start < self._top or len(lines) > self._rows:
            self._move(lines.start)
        elif lines.stop > self._top + self._rows:
            self._move(lines.stop - self._rows)

    def _enter(self) -> None:
        if self._prompt:
            self._written(counts=True)
        elif (block := self._selected) is None:
            self._scroll(0, 1)
        else:
            self._unfold([block], are_open=not block.is_open)

    def _unfold_all(self) -> None:
        """Unfold all, or fold all if nothing is folded."""
        self._unfold(self._foldable, are_open=not all(block.is_open for block in self._foldable))

    def _unfold(self, blocks: Sequence[Block], *, are_open: bool) -> None:
        """Unfold or fold blocks; the lines on the screen keep their place."""
        changed = [block for block in blocks if block.is_open != are_open]
        if not changed:
            self._carry_on()
            return
        kept = self._selected or changed[0]
        row, then = max(self._starts[kept] - self._top, 0), self._then

        def stay() -> None:
            self._move(self._starts[kept] - row)
            if then is not None:
                then()

        for block in changed:
            block.is_open = are_open
        self._unfolded += 1
        self._chosen, self._at_end, self._then = kept, False, stay

    def _carry_on(self) -> None:
        """Run the calls that wait for the whole content to be drawn."""
        then, self._then = self._then, None
        if then is not None:
            then()

    def _marked(self) -> set[int]:
        """Return the lines that show which block Enter unfolds."""
        if (block := self._selected) is None:
            return set()
        lines = [number for number in self._range(block) if self._plain[number].strip()]
        folds = [number for number in lines if not block.is_open and _FOLDED.match(self._plain[number])]
        on_screen = range(self._top, self._top + self._rows)
        shown = [number for number in folds if number in on_screen]
        return set(shown or [number for number in lines if number in on_screen][:1])

    # Drawing

    def _look(self) -> None:
        """Draw the content again if the window's width or the content has changed."""
        columns = self._size[1]
        wanted = (columns, self._paged.version(), self._unfolded)
        if wanted != self._drawn_for and not self._is_reading:
            self._is_reading = True
            self._application.create_background_task(self._draw(wanted))

    async def _draw(self, wanted: tuple[int, int, int]) -> None:
        try:
            self._lines, self._starts = await asyncio.to_thread(self._laid, self._paged.news(), wanted[0])
        finally:
            self._is_reading, self._drawn_for = False, wanted
        self._plain = [_STYLE.sub("", line) for line in self._lines]
        self._longest = max(map(cell_len, self._plain), default=0)
        self._move(len(self._plain) if self._at_end else self._top)
        if wanted[2] == self._unfolded:
            self._carry_on()
        self._application.invalidate()

    def _laid(self, news: Any, columns: int) -> tuple[list[str], dict[Block, int]]:
        lines: list[str] = []
        starts: dict[Block, int] = {}
        known, self._texts = self._texts, {}
        for block in self._paged.blocks(news):
            if not block.drawn:
                continue
            drawn_for, text = known.get(block, ((), []))
            wanted = (columns, block.is_open, len(block.drawn))
            if drawn_for != wanted or block.held:
                text = _LINK.sub("", self._text_of(Group(*block.drawn), columns)).rstrip("\n").split("\n")
            self._texts[block] = wanted, text
            starts[block] = len(lines)
            lines += text
        return lines, starts

    def _shown(self) -> StyleAndTextTuples:
        fragments: StyleAndTextTuples = []
        marked = self._marked()
        for number in self._found[self._top : self._top + self._rows]:
            line = self._line(number)
            fragments += [
                *([(f"{style} reverse", text) for style, text, *_ in line] if number in marked else line),
                ("", "\n"),
            ]
        return fragments[:-1]

    def _line(self, number: int) -> StyleAndTextTuples:
        """Return a line from the first visible column on, with the search text in reverse video."""
        chars = explode_text_fragments(to_formatted_text(ANSI(self._lines[number])))
        if self._wanted:
            for match in re.finditer(re.escape(self._wanted), self._plain[number], re.IGNORECASE):
                for at in range(match.start(), min(match.end(), len(chars))):
                    chars[at] = (f"{chars[at][0]} reverse", chars[at][1])
        ends = accumulate(fragment_list_width([char]) for char in chars)
        skipped = sum(1 for _ in takewhile(lambda end: end <= self._left, ends))
        return chars[skipped:]

    def _state(self) -> Sequence[str]:
        found = self._found
        last = min(self._top + self._rows, len(found))
        where = f"{self._top + 1 if found else 0}-{last} of {len(found):,}" if self._drawn_for else "…"
        sideways = f"column {self._left + 1}" if self._left else ""
        return [self._asks(), where, sideways, f"only {self._filter!r}" if self._filter else ""]
