"""Text from models, tools and kernels, made safe to show.

Such text is not trusted: an escape sequence in it could move the cursor, write the clipboard, or hide what a person is
asked to approve. Text that a person judges (code, arguments) keeps every character: those that could hide something
are written out.

`CursorText`: lines as a terminal shows them, written by a program that moves the cursor, as progress bars do.

Titles (`own_title`, `code_title`, `command_title`, `prompt_title`): the purpose of an action in one line: the model's own
words, else the first line that tells it. A title is text of a model. People find an action by it
and never approve by it: a question shows the whole code. No rule reads a title.
"""

import functools
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TextIO, TypeVar

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
MAX_ESCAPE_CHARS: Final = 64
"""Characters of the longest escape sequence; a longer one is text."""

_TOKENS: Final = re.compile(r"(\n|\r|\x08|\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\^_=>])")
_UNFINISHED: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*|\][^\x07\x1b]*)?\Z")
_CURSOR: Final = re.compile(r"\x1b\[(\d*)([A-GJK])")

Line = TypeVar("Line", str, list[tuple[str, str]])


def fenced(text: str, language: str = "") -> str:
    """Return the text as a block of Markdown, with a fence that is longer than any in it."""
    fence = "`" * (max(map(len, re.findall(r"`{3,}", text)), default=2) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def clean(text: str) -> str:
    """Return the text without escape sequences and control characters; carriage returns overwrite, as in a terminal."""
    return _HIDDEN.sub("", _overwrite(_SEQUENCE.sub("", text)))


def printable(text: str) -> str:
    """Return the text without control characters."""
    return _HIDDEN.sub("", text)


def whole_text(text: str) -> str:
    r"""Return the text with half characters written out (`\ud83d`), as `repr` does: UTF-8 cannot hold them."""
    return text if text.isascii() else _HALF.sub(_escape, text)


def whole_value(value: Any) -> Any:
    """Return a value of JSON with the half characters in its texts and names written out."""
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, dict):
        return {whole_text(name): whole_value(item) for name, item in value.items()}
    return [whole_value(item) for item in value] if isinstance(value, list) else value


def one_line(text: str, limit: int = 100) -> str:
    """Return the cleaned text as one line of at most `limit` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


ERROR_CHARS: Final = 300
"""The characters of a server's message that are shown."""
_PAGE: Final = re.compile(r"\s*<[a-zA-Z!?/]")
"""The beginning of a page, which is for browsers."""


def error_words(body: object) -> str:
    """Return the message in the body of a server's error; empty if there is none for people."""
    if isinstance(body, bytes | str):
        try:
            body = json.loads(body)
        except ValueError:
            text = body.decode(errors="replace") if isinstance(body, bytes) else str(body)
            return "" if _PAGE.match(text) else one_line(text, ERROR_CHARS)
    if isinstance(body, list | tuple):
        return next((said for item in body if (said := error_words(item))), "")
    if isinstance(body, dict):
        known = ("message", "error_description", "error", "detail", "title", "msg", "reason")
        return next((said for name in known if (said := error_words(body.get(name)))), "")
    return "" if body is None else one_line(str(body), ERROR_CHARS)


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters of the text, with the number of the others at its end."""
    left = len(text) - limit
    return text if left <= 0 else f"{text[:limit]} … {counted(left, 'more character')}"


def lines_to_compare(before: str, after: str) -> tuple[list[str], list[str]]:
    """Return the lines of two texts. Only a newline ends a line; texts with other line ends have other lines."""
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


def diff_lines(path: str, before: str | None, after: str | None) -> list[str]:
    """Return the lines of a diff of one file, with two lines around each change. Args: before, after: None: no file."""
    import difflib  # noqa: PLC0415  # few need it

    old, new = lines_to_compare(before or "", after or "")
    old_name = "/dev/null" if before is None else whole_line(f"a/{path}")
    new_name = "/dev/null" if after is None else whole_line(f"b/{path}")
    return [*map(whole_line, difflib.unified_diff(old, new, old_name, new_name, lineterm="", n=2))]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 turn` or `1,234 turns`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def shortened(text: str, limit: int) -> str:
    """Return the text without its middle if it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    mark = f"\n… {len(text) - limit:,} characters left out …\n" if limit > 400 else " … "
    head = (limit - len(mark)) * 2 // 3
    return f"{text[:head]}{mark}{text[head + len(mark) - limit :]}"


def label_of(text: str, limit: int) -> str:
    """Return the cleaned text as one line. A long one loses its middle, because the labels of several often begin alike."""
    return shortened(one_line(text, SCANNED_CHARS), limit)


def visible(text: str) -> str:
    r"""Return the text with every character that is not drawn, or changes how others are drawn, written out (`\x1b`).

    A person who approves it sees all of it.
    """
    return _HIDING.sub(_escape, text.replace("\r\n", "\n"))


def fitted(text: str, stream: TextIO | None) -> str:
    """Return the text with its lines broken between words, if the stream is a terminal; elsewhere as it is.

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
    """Return the text as one line in which nothing is cut or hidden."""
    return visible(text).replace("\n", "\\n")


def colours_only(text: str) -> str:
    """Return the text without control characters and escape sequences other than those that set colours."""
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
    """Return written and removed files in one line; empty without files."""
    parts = []
    for what, files in (("written", written), ("removed", removed)):
        shown = ", ".join(one_line(name, 200) for name in files[:FILES_SHOWN])
        left = len(files) - FILES_SHOWN
        if shown:
            parts.append(f"files {what}: {shown}{f' and {left:,} more' if left > 0 else ''}")
    return "; ".join(parts)


def wrong_fields(problems: Iterable[Any]) -> str:
    """Return the first problems of a pydantic `ValidationError.errors()` in one line, each with the path of its field."""
    found = [problem for problem in problems if isinstance(problem, Mapping)][:PROBLEMS_SHOWN]
    parts = [(".".join(map(str, problem.get("loc", ()))), str(problem.get("msg", ""))) for problem in found]
    return "; ".join(": ".join(filter(None, (path, message.removeprefix("Value error, ")))) for path, message in parts)


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """Return the sentence about an unknown name."""
    from difflib import get_close_matches  # noqa: PLC0415  # only an error needs it

    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the known ones are {', '.join(names)}" if names else "there are none"
    return f"there is no {what} {name!r}: {hint}"


def short_number(number: float) -> str:
    """Return a number in two digits or three, as `410k`."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g}{name}" if number < 1000 * unit else f"{number / unit:,.0f}{name}"
    return f"{number:,.0f}"


def dollars(amount: float) -> str:
    """Return an amount of money, with as many digits as a small one needs."""
    return f"${amount:,.2f}" if amount >= 0.1 or not amount else f"${amount:.2g}"


def dollars_spread(spread: tuple[float, float, float]) -> str:
    """Return a likely amount, and the bounds around it."""
    about, low, high = map(dollars, spread)
    return f"{about} ({low} to {high})"


def duration(seconds: float) -> str:
    """Return a time in seconds or minutes or hours."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def arguments_text(args: dict[str, Any]) -> str:
    """Return arguments with nothing hidden; code alone as it is."""
    if list(args) == ["code"]:
        return visible(value_text(args["code"]))
    return "\n".join(visible(f"{name} = {value_text(value)}") for name, value in args.items())


def value_text(value: Any) -> str:
    """Return an argument as people read it: text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


class CursorText(ABC, Generic[Line]):
    """Lines without an edge at the right, and the cursor at which a program writes.

    A line is a text, or a list of characters with their colours.
    """

    def __init__(self, blank: Line, columns: int) -> None:
        """Make one empty line.

        Args:
            blank: A line of one blank.
            columns: The last column to which the cursor can be moved; text may go on behind it.
        """
        self._blank: Line = blank
        self._columns = columns
        self._restart()

    def _restart(self) -> None:
        self._lines: list[Line] = [self._blank * 0]
        self._row = self._column = 0
        self._unfinished = ""
        """The beginning of an escape sequence."""

    @abstractmethod
    def _line(self, text: str) -> Line:
        """Return text without line breaks as a line."""

    def _write(self, text: str) -> None:
        """Write as a program does, at the cursor."""
        text, self._unfinished = self._unfinished + text, ""
        unfinished = _UNFINISHED.search(text)
        if unfinished is not None and len(unfinished[0]) <= MAX_ESCAPE_CHARS:
            text, self._unfinished = text[: unfinished.start()], unfinished[0]
        for index, token in enumerate(_TOKENS.split(text)):
            if index % 2:
                self._obey(token)
            elif token:
                self._put(token)

    def _put(self, text: str) -> None:
        """Write over the text at the cursor. Args: text: without line breaks."""
        line = self._lines[self._row]
        before = line[: self._column] + self._blank * (self._column - len(line))
        self._lines[self._row] = before + self._line(text) + line[self._column + len(text) :]
        self._column += len(text)

    def _next_row(self) -> None:
        self._row, self._column = self._row + 1, 0
        if self._row == len(self._lines):
            self._lines.append(self._blank * 0)

    def _obey(self, key: str) -> None:
        """Move the cursor or erase, as terminals do. Args: key: a control character or an escape sequence."""
        if key == "\n":
            self._next_row()
        elif key == "\r":
            self._column = 0
        elif key == "\b":
            self._column = max(0, self._column - 1)
        elif (move := _CURSOR.fullmatch(key)) is not None:
            self._move(move[2], move[1])

    def _move(self, command: str, number: str) -> None:
        count = max(1, int(number[:4] or 1))
        if command in "ABEF":
            self._row = max(0, min(len(self._lines) - 1, self._row + (-count if command in "AF" else count)))
            self._column = 0 if command in "EF" else self._column
        elif command in "CDG":
            column = count - 1 if command == "G" else self._column + (count if command == "C" else -count)
            self._column = max(0, min(column, self._columns))
        elif command == "K":
            self._erase_in_line(number)
        elif number in ("", "0"):
            self._erase_in_line(number)
            del self._lines[self._row + 1 :]

    def _erase_in_line(self, number: str) -> None:
        line = self._lines[self._row]
        if number in ("", "0"):
            line = line[: self._column]
        elif number == "1":
            line = self._blank * min(len(line), self._column + 1) + line[self._column + 1 :]
        elif number == "2":
            line = self._blank * 0
        self._lines[self._row] = line


TITLE_CHARS: Final = 100
SCANNED_CHARS: Final = 20_000
"""Characters at the beginning of a text that may become its title."""


_SHELLS: Final = re.compile(r"%%(?:bash|sh|zsh|!|sx|system|script\s+(?:/\S+/)?(?:bash|sh|zsh))(?:\s|$)")
"""Cells whose other lines are commands."""
_AROUND: Final = re.compile(r"%%(?:time|timeit|capture|prun|memit)\b")
"""Cells that only measure or hide the effects of their other lines."""
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
    """Return a title that a model has written, as one line without control characters."""
    return one_line(title, TITLE_CHARS)


def code_title(code: str) -> str:
    """Return the first line that tells the purpose of a cell: a comment, a command, or a statement that is no import."""
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
    """Return the first line of a command that tells its purpose."""
    return _shell(_lines(command))


def prompt_title(prompt: str, limit: int = TITLE_CHARS) -> str:
    """Return the first line of a prompt that has a letter or a digit."""
    told = (line for line in _lines(prompt) if any(map(str.isalnum, line)))
    return one_line(next(told, "").strip(_BORDER), limit)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text[:SCANNED_CHARS].split("\n") if line.strip()]


def _meaningful(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of Python from the first one on that tells something."""
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
    """Skip the other lines of an import, and return the rest of its last line."""
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
    """Return the text of a comment; empty if it is for programs, or a line drawn with signs."""
    if _MARKED.match(words):
        return ""
    text = words.strip(_BORDER)
    return text if any(map(str.isalnum, text)) else ""


def _statement(lines: Iterator[str]) -> str:
    """Return the first of the lines, with the next ones if the statement goes on there."""
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
