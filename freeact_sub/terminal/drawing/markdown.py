"""`markdown`: a model's text as rich draws it, except that headings stand at the left like everything else.

It is slow to import: drawing functions import it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import ClassVar, Final, cast

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement, TableElement
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from freeact_sub.terminal.drawing.parts import CODE_THEME, MAX_COLUMNS, SidewaysConsole

MAX_WORD_COLUMNS: Final = 16
CELL_GAP: Final = 2
EDGES: Final = 2
"""Columns left and right of all cells."""
_BREAK: Final = re.compile(r"<br\s*/?>", re.IGNORECASE)
_LINE_BREAK: Final = Token("hardbreak", "br", 0)


class _LeftHeading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console, options
        self.text.justify = "left"
        yield self.text


class _Table(TableElement):
    """A table that is too wide for the window, drawn as several below each other, so that no cell is cut.

    Each has the first column, which usually names the rows, and as many of the others as fit.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if isinstance(console, SidewaysConsole):
            options = options.update(width=MAX_COLUMNS)
        for drawn in super().__rich_console__(console, options):
            table = cast(Table, drawn)
            widths = [_least_columns(console, options, column) for column in table.columns]
            groups = _grouped(widths, options.max_width - EDGES)
            for group in groups:
                part = copy(table)
                part.columns = [table.columns[number] for number in group]
                yield from console.render(part, options)
                if len(groups) > 1:
                    first, last = group[len(group) > 1 and group is not groups[0]] + 1, group[-1] + 1
                    shown = f"column {last}" if first == last else f"columns {first} to {last}"
                    whole = " · ctrl-o shows the whole table" if group is groups[-1] else ""
                    yield Text(f" {shown} of {len(widths)}{whole}", "dim", overflow="fold")


def _least_columns(console: Console, options: ConsoleOptions, column: Column) -> int:
    """Return the width that a column needs: its longest word, within bounds. Longer words are folded."""
    column.overflow = "fold"
    longest = max(Measurement.get(console, options, cell).minimum for cell in (column.header, *column.cells))
    return min(longest, MAX_WORD_COLUMNS) + CELL_GAP


def _grouped(widths: Sequence[int], room: int) -> list[list[int]]:
    """Return the numbers of the columns in groups that fit. Args: widths: each one's need. room: the free columns."""
    lead = [0] if widths and widths[0] <= room // 3 else []
    groups = [list[int]()]
    for number, width in enumerate(widths):
        if len(groups[-1]) > len(lead) and sum(widths[each] for each in groups[-1]) + width > room:
            groups.append([*lead])
        groups[-1].append(number)
    return groups


class _WholeMarkdown(Markdown):
    """Markdown with nothing left out: HTML, `<placeholder>` and definitions of links stay as their characters."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "table_open": _Table,
    }

    def __init__(self, text: str) -> None:
        super().__init__("", code_theme=CODE_THEME, hyperlinks=False)
        parser = MarkdownIt().enable(["strikethrough", "table"]).disable("reference")
        self.markup, self.parsed = text, list(_without_html(parser.parse(text)))


def _without_html(tokens: Iterable[Token]) -> Iterator[Token]:
    for token in tokens:
        if token.type == "html_inline":
            yield _LINE_BREAK if _BREAK.fullmatch(token.content) else _text(token.content)
        elif token.type == "html_block":
            yield Token("paragraph_open", "p", 1)
            for number, line in enumerate(token.content.strip("\n").split("\n")):
                yield from (_LINE_BREAK,) if number else ()
                yield _text(_BREAK.sub("\n", line))
            yield Token("paragraph_close", "p", -1)
        else:
            token.children = token.children and list(_without_html(token.children))
            yield token


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def markdown(text: str) -> RenderableType:
    """Return a renderable of the text. Links show their address, so that no word can hide it."""
    return _WholeMarkdown(text)
