"""`markdown`: what a model writes, as rich draws it, but for headings, which stand at the left as all else does.

It is slow to import: who draws imports it then.
"""

from typing import Any, ClassVar, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement

CODE_THEME: Final = "ansi_dark"
"""The terminal's own colours."""


class _LeftHeading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console, options
        self.text.justify = "left"
        yield self.text


class _LeftMarkdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _LeftHeading}


def markdown(text: str) -> Any:
    """A renderable. Links show where they lead: a word that hides its address would be believed."""
    return _LeftMarkdown(text, code_theme=CODE_THEME, hyperlinks=False)
