"""Titles: what an action is for, in one line: the model's own words, else the first line that tells it.

A title is text from a model, or from what it wrote. People find an action by it and never approve by it: a question shows
the whole code. No rule reads a title.
"""

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Final

from freeact_sub.text import one_line

TITLE_CHARS: Final = 100
SCANNED_CHARS: Final = 20_000
"""Characters at the beginning of a text that may become its title."""


_SHELLS: Final = re.compile(r"%%(?:bash|sh|zsh|!|sx|system|script\s+(?:/\S+/)?(?:bash|sh|zsh))(?:\s|$)")
"""Cells whose other lines are commands."""
_AROUND: Final = re.compile(r"%%(?:time|timeit|capture|prun|memit)\b")
"""Cells that only measure or hide what their other lines do."""
_PREPARES: Final = re.compile(
    r"(?:import|from)\s|@|%(?:matplotlib|config|load_ext|reload_ext|autoreload|precision)\b"
    r"|(?:try|else|finally|pass|except\b.*)\s*:?\s*$|if\s+__name__\s*==|global\s|nonlocal\s"
)
_PREPARES_SHELL: Final = re.compile(r"(?:set|cd|export|source|\.|shopt|umask|trap)(?:\s[^;&|]*)?$")
_MARKED: Final = re.compile(r"#!|#\s*(?:-\*-|noqa\b|type:|pragma\b|fmt:|pylint:|ruff:|mypy:|isort:|In\[|vim?:)")
"""Comments for programs."""
_BORDER: Final = " \t#%*=~-_/"
_GOES_ON: Final = ("(", "[", "{", ",", "\\")
_QUOTES: Final = ('"""', "'''", 'r"""', "r'''")


def own_title(title: str) -> str:
    """A title that a model has written, as one line without control characters."""
    return one_line(title, TITLE_CHARS)


def code_title(code: str) -> str:
    """The first line of a cell that tells what it does: a comment, a command, or a statement that is no import."""
    return _code_title(code[:SCANNED_CHARS])


@functools.lru_cache(maxsize=128)
def _code_title(code: str) -> str:
    lines = _lines(code)
    first = lines[0] if lines else ""
    if _SHELLS.match(first):
        return _shell(lines[1:]) or one_line(first, TITLE_CHARS)
    if _AROUND.match(first):
        lines = lines[1:] or lines
    told = _statement(_meaningful(lines))
    return one_line(told or first, TITLE_CHARS)


def command_title(command: str) -> str:
    """The first line of a command that tells what it does."""
    return _shell(_lines(command))


def prompt_title(prompt: str, limit: int = TITLE_CHARS) -> str:
    """The first line of a prompt that has a letter or a digit."""
    told = (line for line in _lines(prompt) if any(map(str.isalnum, line)))
    return one_line(next(told, "").strip(_BORDER), limit)


def _lines(text: str) -> list[str]:
    """The lines that are not blank."""
    return [line.rstrip() for line in text[:SCANNED_CHARS].split("\n") if line.strip()]


def _meaningful(lines: Iterable[str]) -> Iterator[str]:
    """The lines of Python from the first one on that tells something."""
    left = iter(lines)
    for line in left:
        words = line.strip()
        if words.startswith("#"):
            if comment := _comment(words):
                yield comment
                return
        elif words.startswith(_QUOTES):
            if told := words.lstrip("r").strip("\"' "):
                yield told
                return
        elif _PREPARES.match(words):
            rest = _after_import(words, left)
            if rest:
                yield rest
                return
        else:
            yield words
            yield from left
            return


def _after_import(words: str, left: Iterator[str]) -> str:
    """Skips the other lines of an import, and returns what follows it on its line."""
    if not words.startswith(("import ", "from ")):
        return ""
    while words.endswith("\\") or words.count("(") > words.count(")"):
        more = next(left, None)
        if more is None:
            return ""
        words = " ".join([words.rstrip("\\"), more.partition("#")[0].strip()])
    rest = words.partition(";")[2].strip()
    return "" if _PREPARES.match(rest) else rest


def _comment(words: str) -> str:
    """The text of a comment; empty if it is for programs, or a line drawn with signs."""
    if _MARKED.match(words):
        return ""
    text = words.strip(_BORDER)
    return text if any(map(str.isalnum, text)) else ""


def _statement(lines: Iterator[str]) -> str:
    """The first of the lines, with the next ones if the statement goes on there."""
    told = next(lines, "")
    for more in lines if told.endswith(_GOES_ON) else ():
        apart = " " if told.endswith((",", "\\")) and not more.lstrip().startswith((")", "]", "}")) else ""
        told = told.rstrip("\\ ") + apart + more.strip()
        if len(told) > TITLE_CHARS or not told.endswith(_GOES_ON):
            break
    return told


def _shell(lines: list[str]) -> str:
    for line in lines:
        words = line.strip()
        comment = _comment(words) if words.startswith("#") else words
        if comment and not _PREPARES_SHELL.match(words):
            return one_line(comment, TITLE_CHARS)
    return one_line(lines[0], TITLE_CHARS) if lines else ""
