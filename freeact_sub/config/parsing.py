"""Parsers of settings files and variables, within bounds.

The files may be hostile: parsing is fast, needs no deep stack, and refuses texts that cannot be a path or a variable.
"""

import json
import re
import reprlib
import tomllib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
"""The beginnings of a text in UTF-16."""
MAX_DEPTH: Final = 100
"""Levels of nested tables and lists, at most."""
MAX_KEY_PARTS: Final = 30
"""Parts of a dotted key, at most."""
DEEP_KEY: Final = re.compile(rf"""(?:(?:(?<![\w-])[\w-]++|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{MAX_KEY_PARTS}}}""")
"""A dotted key of TOML with too many parts: the parser takes quadratic time for it."""
SHOWN: Final = reprlib.Repr()
"""Shortener of names and patterns in messages; values are named by `kind_of`, since they may be secret."""
SHOWN.maxstring = SHOWN.maxother = SHOWN.maxlong = 100
COMMENTS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|//[^\n]*|/\*.*?\*/', re.DOTALL)
LAST_COMMAS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|,(?=\s*[\]}])', re.DOTALL)


def parse_toml(content: bytes) -> Any:
    """Read TOML.

    Raises:
        ValueError: The content is not TOML, or exceeds the bounds; the message says how.
    """
    text = text_of_file(content)
    if DEEP_KEY.search(text):
        raise ValueError(f"a key has more than {MAX_KEY_PARTS} parts")
    try:
        return _checked(tomllib.loads, text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(_with_line(str(error), text)) from error


def text_of_file(content: bytes) -> str:
    """Return the text of a UTF-8 file, with or without a byte order mark.

    Raises:
        ValueError: The text has another encoding; the message says how to save it.
    """
    if content.startswith(UTF16_MARKS):
        raise ValueError("it is written in UTF-16: save it in UTF-8")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} has bytes that are not UTF-8: save it in UTF-8") from error


def prose_of_file(content: bytes) -> str:
    """Return the text of a file for models, in any encoding that editors use; unreadable bytes are marked."""
    if content.startswith(UTF16_MARKS):
        return content.decode("utf-16", errors="replace").replace("\r\n", "\n")
    return content.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")


def _with_line(problem: str, text: str) -> str:
    """Return the parser's message; for an early end of the document, with its line and column."""
    lines = text.split("\n")
    return problem.replace(
        "(at end of document)", f"(at line {len(lines)}, column {len(lines[-1]) + 1}, the end of the file)"
    )


def parse_json(content: bytes | str) -> Any:
    """Read JSON. A name twice in one object is refused, as in TOML: else the first would count for nothing.

    Raises:
        ValueError: As for TOML.
    """
    return _checked(
        partial(json.loads, object_pairs_hook=_named_once), content if isinstance(content, str) else text_of_file(content)
    )


def parse_jsonc(content: bytes) -> Any:
    """Read JSON with comments and commas at the end of lists, as editors write it. Raises: ValueError: As for TOML."""
    return parse_json(plain_json(text_of_file(content)))


def plain_json(text: str) -> str:
    """Return the text as JSON, with blanks instead of comments and commas at the end; other characters keep their places."""
    without = COMMENTS.sub(lambda found: found[0] if found[0][0] == '"' else re.sub(r"[^\n]", " ", found[0]), text)
    return LAST_COMMAS.sub(lambda found: " " if found[0] == "," else found[0], without)


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for name, value in pairs:
        if name in named:
            raise ValueError(f"{SHOWN.repr(name)} stands twice in one object: remove one of them")
        named[name] = value
    return named


def _checked(parse: Callable[[Any], Any], content: bytes | str) -> Any:
    try:
        value = parse(content)
    except RecursionError:
        raise _too_deep() from None
    check(value)
    return value


def check(value: Any, *, texts: bool = True) -> None:
    """Check a value level by level, without a deep stack.

    Args:
        value: A TOML or JSON value.
        texts: Check texts too.

    Raises:
        ValueError: The value is nested too deeply, or holds a text that cannot be a path or a variable.
    """
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += (*item, *item.values())
            elif isinstance(item, list):
                inner += item
            elif texts and isinstance(item, str):
                _check_text(item)
        if not inner:
            return
        level = inner
    raise _too_deep()


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"a text of {len(text):,} characters has half of a surrogate pair") from None
    if "\0" in text:
        raise ValueError(f"a text of {len(text):,} characters has a null character")


def kind_of(value: object) -> str:
    """Return the kind of a value, without the value: settings hold keys and tokens, and messages are passed on."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list() | tuple() | set():
            return "a list"
        case dict():
            return "a table"
    return f"a value of type {type(value).__name__}"


def _too_deep() -> ValueError:
    return ValueError(f"it is nested more than {MAX_DEPTH} deep")
