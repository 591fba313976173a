"""Splits a reply into words and fenced blocks. Pure.

`read_spans` cuts a reply into spans. Nothing is lost: the `raw` texts of the spans, put together, are the reply. A fence
opens a block at the start of a line, or where one word after it names a language and ends the line ("1. ```python", as small
models write it). A fence of the same characters, alone on a line, closes the block; a block never opens another one.

Each line is examined once, in a whole reply and in one that grows: the time is linear in the length of the text.
"""

import re
import textwrap
from dataclasses import dataclass
from typing import Final, TypeAlias

from freeact_sub.models.small.arguments import repaired_code

PYTHON: Final = frozenset({"python", "py", "python3", "py3", "ipython", "ipython3"})
"""Language names of Python blocks, in any case of letters."""

OPENING_CHARS: Final = 160
"""An opening is not longer, fence and language together."""

_LINES: Final = re.compile(r"[^\n]*\n|[^\n]+")
_OPENING: Final = re.compile(
    r"(?P<mark>(?<![`~])(?:`{3,16}|~{3,16}))[ \t]{0,4}(?:(?P<language>[\w+#.-]{1,32})|[^`~\n]{0,100})[ \t\r]{0,4}\n?\Z"
)
_MAY_OPEN: Final = re.compile(r"(?<![`~])(?:`{1,16}|~{1,16}|(?:`{3,16}|~{3,16})[^`~\n]{0,110})\Z")
"""The end of a growing line that may become an opening."""
_CLOSING: Final = re.compile(r"[ \t]*(`+|~+)[ \t\r]*\n?\Z")


@dataclass(frozen=True, kw_only=True)
class Prose:
    """Text for people."""

    raw: str


@dataclass(frozen=True, kw_only=True)
class FencedBlock:
    """A fenced block."""

    raw: str
    code: str
    """Its text; for Python, with repaired line ends."""
    language: str
    """As written behind the fence, in lower case; empty: none was written."""
    closed: bool = True
    """False: the reply ended inside the block."""

    @property
    def is_python(self) -> bool:
        """It is marked as Python, and holds something."""
        return self.language in PYTHON and bool(self.code.strip())


TextSpan: TypeAlias = Prose | FencedBlock


def read_spans(text: str) -> tuple[TextSpan, ...]:
    """Cut a whole reply into spans."""
    spans: list[TextSpan] = []
    position = body = 0
    opening: re.Match[str] | None = None
    for match in _LINES.finditer(text):
        line = match[0]
        if opening is None:
            opening = _opening(line)
            if opening is not None:
                start, body = match.start() + opening.start(), match.end()
                spans += [Prose(raw=text[position:start])] if start > position else []
                position = start
        elif _closes(line, opening["mark"]):
            end = match.end() - line.endswith("\n")
            spans.append(_block(opening, text[position:end], text[body : match.start()], closed=True))
            position, opening = end, None
    if opening is not None:
        spans.append(_block(opening, text[position:], text[body:], closed=False))
    elif position < len(text):
        spans.append(Prose(raw=text[position:]))
    return tuple(spans)


def has_python(text: str) -> bool:
    """Whether a reply holds a block that is marked as Python."""
    return any(isinstance(span, FencedBlock) and span.is_python for span in read_spans(text))


def _block(opening: re.Match[str], raw: str, code: str, *, closed: bool) -> FencedBlock:
    language = _language(opening)
    code = code.removesuffix("\n")
    if language in PYTHON:
        code = repaired_code(textwrap.dedent(code))
    return FencedBlock(raw=raw, code=code, language=language, closed=closed)


def _opening(line: str) -> re.Match[str] | None:
    match = _OPENING.search(line)
    if match is None or (line[: match.start()].strip() and not (match["language"] and "`" in match["mark"])):
        return None
    return match


def _language(opening: re.Match[str]) -> str:
    words = opening[0].lstrip("`~").split()
    return words[0].lower() if words else ""


def _closes(line: str, mark: str) -> bool:
    match = _CLOSING.match(line)
    return match is not None and match[1].startswith(mark)


def _end_of(line: str) -> str:
    """The part of an unfinished line that can still matter: its tail, and whether anything stands before the tail."""
    return line if len(line) <= 2 * OPENING_CHARS else ("x" if line.strip() else " ") + line[-OPENING_CHARS:]


class GrowingReply:
    """A reply that is still being written: how much of it is words for certain, whatever follows.

    What is given out ends before the first block that is marked as Python, for that may become a call.
    """

    def __init__(self) -> None:
        self.passed = 0
        """Characters passed on so far."""
        self._held: list[str] = []
        """Text not passed on yet."""
        self._line = ""
        """The newest line, or its end."""
        self._mark = ""
        """The fence of the open block that is not Python; empty: no such block is open."""
        self._holds = False
        """A block of Python has started."""

    def add(self, text: str) -> str:
        """Adds new text; returns what has become certain to be words."""
        if not (self._held or self._holds or "\n" in text or "`" in text or "~" in text):  # most pieces
            self._line = _end_of(self._line + text)
            return self._pass_on(text)
        given = []
        for piece in _LINES.findall(text):
            self._held.append(piece)
            if not self._holds:
                given.append(self._certain(piece))
        return self._pass_on("".join(given))

    def rest(self) -> str:
        """Returns the text not passed on yet."""
        rest, self._held = "".join(self._held), []
        return self._pass_on(rest)

    def _pass_on(self, text: str) -> str:
        self.passed += len(text)
        return text

    def _certain(self, piece: str) -> str:
        """Adds a piece of a line; returns the held text that is now certain to be words."""
        line = self._line + piece
        whole = line.endswith("\n")
        self._line = "" if whole else _end_of(line)
        if self._mark:
            if whole and _closes(line, self._mark):
                self._mark = ""
            return self._take_held(0)
        if not whole:
            match = _MAY_OPEN.search(line) if "`" in line or "~" in line else None  # most lines have none of them
            return self._take_held(0 if match is None else len(line) - match.start())
        opening = _opening(line)
        if opening is None:
            return self._take_held(0)
        if _language(opening) in PYTHON:
            self._holds = True
            return self._take_held(len(line) - opening.start())
        self._mark = opening["mark"]
        return self._take_held(0)

    def _take_held(self, kept: int) -> str:
        held = "".join(self._held)
        cut = len(held) - kept
        self._held = [held[cut:]] if kept else []
        return held[:cut]
