"""A second look at the text of a command, by a lexer of its own: is there more in it than the parser has given?

The parser's grammar guesses at odd places (quotes and backticks in `${…}`, nested backticks, patterns), and it knows bash
alone, while `sh` is another shell on many machines. Both looks have to agree on where commands begin, or a person is asked.
Where this lexer does not understand a text, every mark counts that could begin a command anywhere in it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

EXPANSION: Final = re.compile(r"\$\{[#]?\w+(?::?[-+?]\w*|(?:%%?|##?)[\w.*?-]*|(?:%%?|##?)/?\*?/)?\}")
"""Matches an expansion with nothing in it that a shell expands or quotes."""
OPENERS: Final = re.compile(r"\$\(|`|[<>]\(")
PIECES: Final = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|(?<![^\s;&|()])#[^\n]*|\\.|.", re.DOTALL)
BASH_ONLY: Final = re.compile(
    r"\[\[|\$['\"\[]|(?<!\$)\(\(|&>|>&(?!\s*[\d-])|\|&|<<<|[<>]\(|\w\+?=\(|;;?&|\$\{!|(?:^|[;&|(\n]\s*)(?:function|select|coproc)\s"
)
"""Matches what bash reads in one way, and another shell in another."""


UNCLEAR: Final = re.compile(r"(?<![^\s;&|()])#|<<(?!<)")
"""Matches the start of a comment or a here-document, in which quotes are text."""


class _UnclearError(Exception):
    """The lexer does not understand the text."""


def has_unseen_command(text: str, given: Mapping[int, int], bodies: Sequence[tuple[int, int]]) -> bool:
    """Whether something in a script may start a command that the parser has not given.

    Args:
        text: The script.
        given: The ends of the substitutions that the parser has given, by their starts.
        bodies: Starts and ends of here-documents in which nothing is expanded.
    """
    try:
        return _Lexer(text, given).read(0, "") != len(text)
    except _UnclearError:
        known = {*given, *(end - 1 for start, end in given.items() if text[start] == "`")}
        openers = (opener.start() for opener in OPENERS.finditer(text))
        return any(at not in known and not any(start <= at < end for start, end in bodies) for at in openers)


def is_for_bash_only(text: str) -> bool:
    """Whether another shell than bash may read a script in another way."""
    if re.search(r"<<(?!<)", text):  # quotes in a here-document are text
        return BASH_ONLY.search(text) is not None
    at = 0
    while at < len(text):
        if BASH_ONLY.match(text, at):
            return True
        piece = PIECES.match(text, at)
        word = piece[0] if piece else text[at]
        if word[0] == '"' and re.search(r"[$`]", word) and BASH_ONLY.search(word):
            return True
        at += len(word)
    return False


class _Lexer:
    """Reads a text from left to right, as long as every shell reads it in the same way."""

    def __init__(self, text: str, given: Mapping[int, int]) -> None:
        self._text = text
        self._given = given

    def read(self, at: int, closing: str) -> int:
        """Reads up to the mark that closes a substitution, or to the end. Returns where that is."""
        text, depth = self._text, 0
        while at < len(text):
            char = text[at]
            if char == closing and depth == 0:
                return at
            if char in "\\'\"":
                at = self._quoted(at)
            elif char in "$`" or text.startswith(("<(", ">("), at):
                at = self._expansion(at)
            elif UNCLEAR.match(text, at):
                raise _UnclearError
            else:
                depth += (char == "(") - (char == ")")
                at += 1 if not text.startswith("<<<", at) else 3
                if depth < 0:
                    raise _UnclearError
        if closing or depth:
            raise _UnclearError
        return len(text)

    def _quoted(self, at: int) -> int:
        """Reads what begins with a mark that quotes. Returns where it ends."""
        if self._text[at] == "\\":
            return at + 2
        if self._text[at] == "'":
            if self._text[at - 1 : at] == "$":
                raise _UnclearError
            return self._find("'", at + 1) + 1
        at += 1
        while (char := self._text[at : at + 1]) != '"':
            if not char:
                raise _UnclearError
            at = self._expansion(at) if char in "$`" else at + (2 if char == "\\" else 1)
        return at + 1

    def _expansion(self, at: int) -> int:
        """Reads what begins with `$`, a backtick, `<(` or `>(`. Returns where it ends."""
        text, end = self._text, self._given.get(at)
        if text.startswith("$((", at) and end is not None:
            return end  # the parser has found only numbers in it
        if text[at] == "`":
            closed = self._find("`", at + 1)
            if "\\" in text[at:closed] or self.read(at + 1, "`") != closed:
                raise _UnclearError
        elif text[at + 1 : at + 2] == "(":
            closed = self.read(at + 2, ")")
        elif text[at + 1 : at + 2] == "{":
            if (found := EXPANSION.match(text, at)) is None:
                raise _UnclearError
            return found.end()
        else:
            return at + 1
        if end != closed + 1:
            raise _UnclearError
        return end

    def _find(self, mark: str, at: int) -> int:
        found = self._text.find(mark, at)
        if found < 0:
            raise _UnclearError
        return found
