"""Text from models, tools and kernels, made safe for a terminal.

Such text is not trusted: an escape sequence in it could move the cursor, write the clipboard, or hide what a person is
asked to approve. So nothing of it reaches the terminal but printable characters, newlines, tabs and, for what a cell
prints, colours. What a person judges (code, arguments) keeps every character: those that could hide something are
written out. Markup is no danger as long as text is drawn as `rich.text.Text`, which parses none.
"""

import re
from collections.abc import Iterator

from rich.ansi import AnsiDecoder
from rich.style import Style
from rich.text import Text

LINE_CHARS = 8192
"""A line that does not end is drawn in pieces of this size, so that memory stays bounded."""

_SEQUENCE = re.compile(
    r"""
    (?P<colour> \x1b\[ [0-9;]{0,60} m)                          # SGR
    | (?: \x1b\[ | \x9b ) [0-?]* [ -/]* [@-~]                   # other CSI sequences: cursor, erase, modes
    | (?: \x1b[\]PX^_] | [\x90\x98\x9d-\x9f] )                 # OSC, DCS, SOS, PM, APC
      [^\x07\x1b\x9c\n]* (?: \x07 | \x9c | \x1b\\ )?
    | \x1b [ -/]* [0-~]                                         # two-character and charset sequences
    """,
    re.VERBOSE,
)
_SHOWN = Style(conceal=False, blink=False, blink2=False)
_BIDI = "\u202a-\u202e\u2066-\u2069"  # they change the order in which characters are drawn
_HIDDEN = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI}\u2028\u2029\ud800-\udfff]")
_INVISIBLE = "\u00ad\u115f\u1160\u200b-\u200f\u2060-\u2065\u3164\ufeff\uffa0\U000e0000-\U000e007f"
_HIDING = re.compile(f"{_HIDDEN.pattern}|[{_INVISIBLE}]")
_COLOUR = re.compile(r"(\x1b\[[0-9;]{0,60}m)")


def clean(text: str) -> str:
    """The text without escape sequences and control characters; carriage returns overwrite, as in a terminal."""
    return _HIDDEN.sub("", _overwrite(_SEQUENCE.sub("", text)))


def one_line(text: str, limit: int = 100) -> str:
    """The text, cleaned, as one line of at most so many characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def visible(text: str) -> str:
    r"""The text with every character that is not drawn, or that changes how others are drawn, written out (`\x1b`).

    For what a person is asked to approve: nothing can hide in it.
    """
    return _HIDING.sub(_escape, text.replace("\r\n", "\n"))


def colours_only(text: str) -> str:
    """The text without control characters and escape sequences other than those that set colours."""
    kept = _SEQUENCE.sub(lambda match: match["colour"] or "", _overwrite(text))
    parts = _COLOUR.split(kept)  # text and colours take turns
    return "".join(part if index % 2 else _HIDDEN.sub("", part) for index, part in enumerate(parts))


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


def _overwrite(text: str) -> str:
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
