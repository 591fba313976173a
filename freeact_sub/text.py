"""Makes text from models, tools and kernels safe to show.

Such text is not trusted: an escape sequence in it could move the cursor, write the clipboard, or hide what a person is
asked to approve. What a person judges (code, arguments) keeps every character: those that could hide something are
written out.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

FILES_SHOWN = 8
PROBLEMS_SHOWN = 5
NO_NEWLINE = " (no newline at the end)"

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
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # they change the order in which characters are drawn
_HIDDEN = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI}\u2028\u2029\ud800-\udfff]")
_INVISIBLE = "\u00ad\u115f\u1160\u180e\u200b-\u200f\u2060-\u2065\u3164\ufeff\uffa0\U000e0000-\U000e007f"
_HIDING = re.compile(f"{_HIDDEN.pattern}|[{_INVISIBLE}]")
_HALF = re.compile(r"[\ud800-\udfff]")
_COLOUR = re.compile(r"(\x1b\[[0-9;]{0,60}m)")
_WHOLE = re.compile(r"( *)((?:`[^`\n]*`|[^ `]|`)+)")  # a word, or what stands in backticks: a command is copied as one line


def fenced(text: str, language: str = "") -> str:
    """The text as a block of Markdown, with a fence that is longer than any in it."""
    fence = "`" * (max(map(len, re.findall(r"`{3,}", text)), default=2) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def clean(text: str) -> str:
    """The text without escape sequences and control characters; carriage returns overwrite, as in a terminal."""
    return _HIDDEN.sub("", _overwrite(_SEQUENCE.sub("", text)))


def printable(text: str) -> str:
    """The text without control characters."""
    return _HIDDEN.sub("", text)


def whole_text(text: str) -> str:
    r"""The text with half characters written out (`\ud83d`), as `repr` does: UTF-8 cannot hold them."""
    return text if text.isascii() else _HALF.sub(_escape, text)


def whole_value(value: Any) -> Any:
    """A value of JSON with the half characters in its texts and names written out."""
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, dict):
        return {whole_text(name): whole_value(item) for name, item in value.items()}
    return [whole_value(item) for item in value] if isinstance(value, list) else value


def one_line(text: str, limit: int = 100) -> str:
    """The cleaned text as one line of at most `limit` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def cut(text: str, limit: int) -> str:
    """The text, of which at most `limit` characters are shown; the number of the others stands at its end."""
    left = len(text) - limit
    return text if left <= 0 else f"{text[:limit]} … {counted(left, 'more character')}"


def lines_to_compare(before: str, after: str) -> tuple[list[str], list[str]]:
    """The lines of two texts. Only a newline ends a line; where the texts differ in their line ends, so do the lines."""
    texts = [before.split("\n"), after.split("\n")]
    differ = bool(before and after) and before.endswith("\n") is not after.endswith("\n")
    for lines in texts:
        if lines[-1] == "":
            del lines[-1]
        elif differ:
            lines[-1] += NO_NEWLINE
    if all(line.endswith("\r") for lines in texts for line in lines):
        texts = [[line.removesuffix("\r") for line in lines] for lines in texts]
    return texts[0], texts[1]


def counted(number: int, noun: str) -> str:
    """A number with its noun, such as `1 turn` or `1,234 turns`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def shortened(text: str, limit: int) -> str:
    """The text without its middle if it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    mark = f"\n… {len(text) - limit:,} characters left out …\n" if limit > 400 else " … "
    head = (limit - len(mark)) * 2 // 3
    return f"{text[:head]}{mark}{text[head + len(mark) - limit :]}"


def visible(text: str) -> str:
    r"""The text with every character that is not drawn, or that changes how others are drawn, written out (`\x1b`).

    For what a person is asked to approve: nothing can hide in it.
    """
    return _HIDING.sub(_escape, text.replace("\r\n", "\n"))


def fitted(text: str, stream: TextIO | None) -> str:
    """The text with its lines broken between words, if the stream is a terminal; elsewhere as it is.

    Words that are longer than a line, commands in backticks and lines that are indented are left to the terminal.
    """
    try:
        columns = os.get_terminal_size(stream.fileno()).columns if stream is not None and stream.isatty() else 0
    except (OSError, ValueError):  # it is closed, or has no file
        columns = 0
    return "\n".join(_folded(line, columns) if columns else line for line in text.split("\n"))


def _folded(line: str, columns: int) -> str:
    if line.startswith(" ") or len(line) <= columns:
        return line
    rows = [""]
    for space, word in _WHOLE.findall(line):
        longer = f"{rows[-1]}{space}{word}"
        if len(longer) < columns or not rows[-1]:
            rows[-1] = longer
        else:
            rows.append(word)
    return "\n".join(rows)


def whole_line(text: str) -> str:
    """The text as one line in which nothing is cut or hidden."""
    return visible(text).replace("\n", "\\n")


def colours_only(text: str) -> str:
    """The text without control characters and escape sequences other than those that set colours."""
    kept = _SEQUENCE.sub(lambda match: match["colour"] or "", _overwrite(text))
    parts = _COLOUR.split(kept)  # text and colours take turns
    return "".join(part if index % 2 else _HIDDEN.sub("", part) for index, part in enumerate(parts))


def _overwrite(text: str) -> str:
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def files_text(written: Sequence[str], removed: Sequence[str]) -> str:
    """Written and removed files in one line; empty without files."""
    parts = []
    for what, files in (("written", written), ("removed", removed)):
        shown = ", ".join(one_line(name, 200) for name in files[:FILES_SHOWN])
        left = len(files) - FILES_SHOWN
        if shown:
            parts.append(f"files {what}: {shown}{f' and {left:,} more' if left > 0 else ''}")
    return "; ".join(parts)


def wrong_fields(problems: Iterable[Any]) -> str:
    """The first problems of a pydantic `ValidationError.errors()` in one line, each with the path of its field."""
    found = [problem for problem in problems if isinstance(problem, Mapping)][:PROBLEMS_SHOWN]
    parts = [(".".join(map(str, problem.get("loc", ()))), str(problem.get("msg", ""))) for problem in found]
    return "; ".join(": ".join(filter(None, (path, message.removeprefix("Value error, ")))) for path, message in parts)


def short_number(number: float) -> str:
    """A number in two digits or three, as `410k`."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g}{name}" if number < 1000 * unit else f"{number / unit:,.0f}{name}"
    return f"{number:,.0f}"


def dollars(amount: float) -> str:
    """An amount of money, with as many digits as a small one needs."""
    return f"${amount:,.2f}" if amount >= 0.1 or not amount else f"${amount:.2g}"


def dollars_spread(spread: tuple[float, float, float]) -> str:
    """About how much, and the bounds that the amount probably lies within."""
    about, low, high = map(dollars, spread)
    return f"{about} ({low} to {high})"


def duration(seconds: float) -> str:
    """A time in seconds or minutes or hours."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def arguments_text(args: dict[str, Any]) -> str:
    """Arguments, with nothing hidden; code alone as it is."""
    if list(args) == ["code"]:
        return visible(value_text(args["code"]))
    return "\n".join(visible(f"{name} = {value_text(value)}") for name, value in args.items())


def value_text(value: Any) -> str:
    """An argument as people read it: text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
