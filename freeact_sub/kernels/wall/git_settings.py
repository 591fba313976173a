"""Reads files with settings of git as git reads them (git-config(1), "Syntax")."""

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

Setting: TypeAlias = tuple[str, str, str]
"""Section and name in lower case, and the value."""
HEADER: Final = re.compile(r'\[\s*([\w-]+)(?:[^\]"\n]|"(?:[^"\\\n]|\\.)*+")*+\]')
NAME: Final = re.compile(r"([A-Za-z][\w-]*)[ \t]*(=?)")
REST_OF_LINE: Final = re.compile(r"[^\n]*\n?")
PLAIN: Final = re.compile(r'[^"\\#;\n]+')
QUOTED: Final = re.compile(r'[^"\\\n]+')
ESCAPES: Final = {"n": "\n", "t": "\t", "b": "\b", "\n": ""}


def read_settings(text: str) -> Iterator[Setting]:
    """Each setting of a file; a line that git would not understand is skipped."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    section, at = "", 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif header := HEADER.match(text, at):
            section, at = header[1].lower(), header.end()
        elif name := NAME.match(text, at):
            value, at = _read_value(text, name.end()) if name[2] else ("", name.end())
            yield section, name[1].lower(), value
        else:
            at = _end_of_line(text, at)


def _read_value(text: str, at: int) -> tuple[str, int]:
    """The value that begins there, and where the next line does."""
    value, kept, quoted = "", 0, False
    while at < len(text) and text[at] != "\n":
        if text[at] == '"':
            quoted = not quoted
            at += 1
        elif text[at] == "\\":
            following = text[at + 1 : at + 2]
            value += ESCAPES.get(following, following)
            at += 2
        elif part := (QUOTED if quoted else PLAIN).match(text, at):
            value, at = value + (part[0] if value or quoted else part[0].lstrip()), part.end()
            if not quoted:
                continue
        else:
            return _trimmed(value, kept), _end_of_line(text, at)
        kept = len(value)
    return _trimmed(value, kept), at


def _trimmed(value: str, kept: int) -> str:
    """Without the white space at its end, except for what was in quotes."""
    return value[:kept] + value[kept:].rstrip()


def _end_of_line(text: str, at: int) -> int:
    found = REST_OF_LINE.match(text, at)
    return len(text) if found is None else max(at + 1, found.end())
