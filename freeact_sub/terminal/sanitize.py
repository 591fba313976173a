"""Coloured text for a terminal: what a cell prints may set colours, and nothing else.

Markup is no danger as long as text is drawn as `rich.text.Text`, which parses none.
"""

from collections.abc import Iterator

from rich.ansi import AnsiDecoder
from rich.style import Style
from rich.text import Text

from freeact_sub.text import clean, colours_only

LINE_CHARS = 8192
"""A line that does not end is drawn in pieces of this size, so that memory stays bounded."""

_SHOWN = Style(conceal=False, blink=False, blink2=False)


def coloured(text: str) -> list[Text]:
    """The text's lines with the colours that its escape sequences set, and nothing else of them."""
    decoder = AnsiDecoder()
    return [_decode(decoder, line) for line in text.split("\n")]


class LineBuffer:
    """Cuts a stream of pieces into whole lines; colours go on from one line to the next."""

    def __init__(self) -> None:
        self._rest = ""
        self._decoder = AnsiDecoder()

    def add(self, piece: str) -> Iterator[Text]:
        """Take a piece in; yields the lines that it ends."""
        *lines, self._rest = (self._rest + piece).split("\n")
        if "\r" in self._rest:  # drop what is overwritten; a return at the end may yet become the end of a line
            shown = self._rest.rstrip("\r")
            self._rest = shown.rpartition("\r")[2] + ("\r" if shown != self._rest else "")
        while len(self._rest) > LINE_CHARS:
            lines.append(self._rest[:LINE_CHARS])
            self._rest = self._rest[LINE_CHARS:]
        for line in lines:
            yield _decode(self._decoder, line)

    def rest(self) -> str:
        """What was taken in after the last whole line, such as a progress bar that still moves."""
        return clean(self._rest)

    def flush(self) -> Iterator[Text]:
        """Yields the unfinished line, if there is one; what comes next starts without colour."""
        rest, self._rest = self._rest, ""
        if rest:
            yield _decode(self._decoder, rest)
        self._decoder = AnsiDecoder()


def _decode(decoder: AnsiDecoder, line: str) -> Text:
    text = decoder.decode_line(colours_only(line))
    if text.spans:
        text.stylize(_SHOWN)  # a colour may not hide the text
    return text
