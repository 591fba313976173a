"""`markdown`: draws a model's text as rich does, except that headings stand at the left like everything else.

It is slow to import: drawing functions import it.
"""

from typing import Any, ClassVar, Final, cast

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement, TableElement
from rich.measure import Measurement
from rich.text import Text

from freeact_sub.terminal.drawing.parts import MAX_COLUMNS, SidewaysConsole

CODE_THEME: Final = "ansi_dark"
"""The terminal's own colours."""


class _LeftHeading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console, options
        self.text.justify = "left"
        yield self.text


class _Table(TableElement):
    """Folds the columns of a table that is wider than the window, and names the key that shows it unfolded."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.update(width=MAX_COLUMNS)
        scrolls = isinstance(console, SidewaysConsole)
        for table in super().__rich_console__(console, options):
            drawn = cast(ConsoleRenderable, table)
            yield from console.render(drawn, wide if scrolls else options)
            if not scrolls and Measurement.get(console, wide, drawn).maximum > options.max_width:
                yield Text("(wider than the window: ctrl-o scrolls it sideways)", "dim")


class _LeftMarkdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "table_open": _Table,
    }


def markdown(text: str) -> Any:
    """A renderable of the text. Links show their address: people would believe a word that hides it."""
    return _LeftMarkdown(text, code_theme=CODE_THEME, hyperlinks=False)
