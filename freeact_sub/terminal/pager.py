"""`Pager`: shows something long in the terminal's alternate screen, to scroll, search and unfold; drawn anew as it grows.

Its keys are those of `less`; Escape and Ctrl-C leave it too. Another program would neither show what an agent adds
nor fold it anew when the window's width changes.
"""

import asyncio
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, takewhile
from typing import Any, Final

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.formatted_text.utils import fragment_list_width
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import BufferControl, ConditionalContainer, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.layout.utils import explode_text_fragments
from prompt_toolkit.output import Output
from rich.cells import cell_len
from rich.console import Group, RenderableType

from freeact_sub.terminal.drawing.transcript import Block, Paged

REFRESH_SECONDS: Final = 0.5
ESCAPE_SECONDS: Final = 0.1
SIDEWAYS_COLUMNS: Final = 8
HINTS: Final = ("q closes", "/ search", "& filter", "n N next, previous", "← → sideways")
UNFOLDING: Final = ("q closes", "Enter unfolds", "Tab next", "ctrl-o all", *HINTS[1:])
"""The keys, most useful first. The status line names as many as fit."""
MOVES: Final = (
    *((key, 0, -1) for key in ("up", "k")),
    *((key, 0, 1) for key in ("down", "j")),
    *((key, -1, 0) for key in ("pageup", "b")),
    *((key, 1, 0) for key in ("pagedown", "space", "f")),
    *((key, 0, -math.inf) for key in ("home", "g")),
    *((key, 0, math.inf) for key in ("end", "G")),
)
"""Keys, each with the pages and rows that it scrolls by."""
_LINK: Final = re.compile(r"\x1b\]8;[^\x1b\x07]*(?:\x1b\\|\x07)")
_STYLE: Final = re.compile(r"\x1b\[[0-9;:]*m")
_FOLDED: Final = re.compile(r"\s*… [\d,]+ more lines? \(")


class Pager:
    """Shows one content once."""

    def __init__(
        self, paged: Paged, text_of: Callable[[RenderableType, int], str], asks: Callable[[], str], *, at_end: bool
    ) -> None:
        """Makes it.

        Args:
            paged: The content.
            text_of: Draws the content for so many columns; called in another thread.
            asks: Returns a few words about open questions for the status line.
            at_end: Begin at the end, and stay there while the content grows.
        """
        self._paged = paged
        self._text_of = text_of
        self._asks = asks
        self._at_end = at_end
        self._drawn_for: tuple[int, int, int] | None = None
        self._is_drawing = False
        self._unfolded = 0
        """Changes with each block that is unfolded or folded."""
        self._then: Callable[[], None] | None = None
        """Called after the next drawing."""
        self._texts: dict[Block, tuple[tuple[int, ...], list[str]]] = {}
        """The lines of each block, and the width and state for which they were drawn."""
        self._lines: list[str] = []
        """All lines, with their colours."""
        self._plain: list[str] = []
        self._starts: dict[Block, int] = {}
        """The number of the first line of each block, in order."""
        self._chosen: Block | None = None
        """The block to which the person has moved."""
        self._longest = self._top = self._left = 0
        self._prompt = ""
        """`/` or `&` while the person writes a text to search, or to filter by."""
        self._wanted = self._filter = ""
        self._query = Buffer(multiline=False)

    def leave(self) -> None:
        """Ends the pager; does nothing if it has ended."""
        if self._application.is_running and not self._application.is_done:
            self._application.exit()

    def application(self, source: Input, output: Output) -> Application[None]:
        """The application that draws the pager. Args: source, output: the terminal."""
        query = Window(BufferControl(self._query, input_processors=[BeforeInput(lambda: self._prompt)]), height=1)
        text = Window(FormattedTextControl(self._shown, focusable=True, show_cursor=False), wrap_lines=False)
        status = Window(FormattedTextControl(self._status), height=1, style="reverse")
        writes = Condition(lambda: bool(self._prompt))
        self._application: Application[None] = Application(
            layout=Layout(
                HSplit([text, ConditionalContainer(query, writes), ConditionalContainer(status, ~writes)]),
                focused_element=text,
            ),
            key_bindings=self._keys(text, query),
            full_screen=True,
            input=source,
            output=output,
            refresh_interval=REFRESH_SECONDS,
            before_render=lambda _: self._look(),
        )
        self._application.ttimeoutlen = ESCAPE_SECONDS
        return self._application

    def _keys(self, text: Window, query: Window) -> KeyBindings:
        keys = KeyBindings()
        writes = Condition(lambda: bool(self._prompt))

        def ask(prompt: str) -> None:
            self._prompt = prompt
            self._query.reset()
            self._application.layout.focus(query)

        def written(*, counts: bool) -> None:
            prompt, self._prompt = self._prompt, ""
            self._application.layout.focus(text)
            if counts and prompt == "&":
                self._filter, self._top = self._query.text, 0
            elif counts:
                self._wanted = self._query.text or self._wanted
            if counts and self._wanted + self._filter:
                self._unfold_to_look()

        def on(pressed: str, do: Callable[[], None]) -> None:
            keys.add(pressed, filter=~writes, eager=True)(lambda _: do())

        for pressed in ("escape", "c-c"):
            keys.add(pressed, filter=writes, eager=True)(lambda _: written(counts=False))
        for pressed in ("q", "escape", "c-c"):
            on(pressed, self.leave)
        keys.add("enter", filter=writes)(lambda _: written(counts=True))
        on("enter", self._press_enter)
        on("tab", lambda: self._choose(1))
        on("s-tab", lambda: self._choose(-1))
        on("c-o", self._unfold_all)
        on("/", lambda: ask("/"))
        on("&", lambda: ask("&"))
        on("n", lambda: self._find(1, self._top + 1))
        on("N", lambda: self._find(-1, self._top - 1))
        for pressed, pages, rows in MOVES:
            on(pressed, partial(self._scroll, pages, rows))
        on("right", lambda: self._sideways(SIDEWAYS_COLUMNS))
        on("left", lambda: self._sideways(-SIDEWAYS_COLUMNS))
        return keys

    def _scroll(self, pages: int, rows: float) -> None:
        self._move(int(max(min(self._top + pages * max(self._rows - 1, 1) + rows, len(self._plain)), 0)))

    @property
    def _rows(self) -> int:
        return max(self._application.output.get_size().rows - 1, 1)

    @property
    def _found(self) -> Sequence[int]:
        """The numbers of the lines that pass the filter."""
        if not self._filter:
            return range(len(self._plain))
        wanted = self._filter.lower()
        return [number for number, line in enumerate(self._plain) if wanted in line.lower()]

    def _move(self, top: int) -> None:
        last = max(len(self._found) - self._rows, 0)
        self._top = min(max(top, 0), last)
        self._at_end = self._top == last

    def _sideways(self, columns: int) -> None:
        last = max(self._longest - self._application.output.get_size().columns, 0)
        self._left = min(max(self._left + columns, 0), -(-last // SIDEWAYS_COLUMNS) * SIDEWAYS_COLUMNS)

    def _find(self, step: int, start: int) -> None:
        found = self._found
        if self._wanted:
            places = range(start, len(found)) if step > 0 else range(min(start, len(found) - 1), -1, -1)
            at = next((place for place in places if self._wanted.lower() in self._plain[found[place]].lower()), None)
            if at is not None:
                self._top, self._at_end = at, False  # the line that was searched stands first, also at the end

    def _unfold_to_look(self) -> None:
        """Unfolds all, for what is folded is searched too, and goes to what was searched."""
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
        """Return the block that Enter unfolds: the one to which the person has moved, or the last one on the screen."""
        shown = [block for block in self._foldable if self._is_shown(block)]
        return self._chosen if self._chosen in shown else shown[-1] if shown else None

    def _range(self, block: Block) -> range:
        """The numbers of its lines."""
        later = [start for start in self._starts.values() if start > self._starts[block]]
        return range(self._starts[block], later[0] if later else len(self._plain))

    def _is_shown(self, block: Block) -> bool:
        lines = self._range(block)
        return lines.start < self._top + self._rows and lines.stop > self._top

    def _choose(self, step: int) -> None:
        """Moves to the next block that can be unfolded."""
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

    def _press_enter(self) -> None:
        if (block := self._selected) is None:
            self._scroll(0, 1)
        else:
            self._unfold([block], are_open=not block.is_open)

    def _unfold_all(self) -> None:
        """Unfolds all, or folds all if nothing is folded."""
        self._unfold(self._foldable, are_open=not all(block.is_open for block in self._foldable))

    def _unfold(self, blocks: Sequence[Block], *, are_open: bool) -> None:
        """Unfolds or folds blocks; the lines on the screen keep their place."""
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
        """Runs the calls that wait for the whole content to be drawn."""
        then, self._then = self._then, None
        if then is not None:
            then()

    def _marked(self) -> set[int]:
        """The lines that show which block Enter unfolds."""
        if (block := self._selected) is None:
            return set()
        lines = [number for number in self._range(block) if self._plain[number].strip()]
        folds = [number for number in lines if not block.is_open and _FOLDED.match(self._plain[number])]
        on_screen = range(self._top, self._top + self._rows)
        shown = [number for number in folds if number in on_screen]
        return set(shown or [number for number in lines if number in on_screen][:1])

    # Drawing

    def _look(self) -> None:
        """Draws the content again if the window's width or the content has changed."""
        columns = self._application.output.get_size().columns
        wanted = (columns, self._paged.version(), self._unfolded)
        if wanted != self._drawn_for and not self._is_drawing:
            self._is_drawing = True
            self._application.create_background_task(self._draw(wanted))

    async def _draw(self, wanted: tuple[int, int, int]) -> None:
        try:
            self._lines, self._starts = await asyncio.to_thread(self._laid, self._paged.news(), wanted[0])
        finally:
            self._is_drawing, self._drawn_for = False, wanted
        self._plain = [_STYLE.sub("", line) for line in self._lines]
        self._longest = max(map(cell_len, self._plain), default=0)
        self._move(len(self._plain) if self._at_end else self._top)
        if wanted[2] == self._unfolded:
            self._carry_on()
        self._application.invalidate()

    def _laid(self, news: Any, columns: int) -> tuple[list[str], dict[Block, int]]:
        """The lines of all blocks, and where each begins."""
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

    def _status(self) -> str:
        found = self._found
        last = min(self._top + self._rows, len(found))
        where = f"{self._top + 1 if found else 0}-{last} of {len(found):,}" if self._drawn_for else "…"
        sideways = f"column {self._left + 1}" if self._left else ""
        filtered = f"only {self._filter!r}" if self._filter else ""
        line = " " + " · ".join(filter(None, [self._asks(), where, sideways, filtered]))
        columns = self._application.output.get_size().columns
        for hint in UNFOLDING if self._foldable else HINTS:
            if cell_len(f"{line} · {hint}") > columns:
                break
            line = f"{line} · {hint}"
        return line
