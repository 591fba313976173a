r"""Line ends of code that came through JSON, put right. Pure: code in, code out; nothing is run.

Weak models lose count of backslashes, and squeeze programs into one line. Code that is Python is never touched, and what is
put right counts only if it is Python then:

- line ends that were escaped twice: `x = 1\nprint(x)` on one line;
- a line end inside a string that was not escaped: `f.write('end` and `')` on the next line;
- compound statements on one line that Python wants on several: `with open("a") as f: for n in range(3): f.write(str(n))`.
  What stands behind a `;` belongs to the innermost of them, as it does in Python.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from typing import Final

from freeact_sub.models.small.python_syntax import parse_python

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "\\": "\\"}
_STRING: Final = re.compile(
    r"""
    (?P<skipped> \#[^\n]* | [a-zA-Z]{0,2}(?:'{3}.*?(?:'{3}|\Z) | "{3}.*?(?:"{3}|\Z)))
    | (?P<prefix>\b[a-zA-Z]{1,2})? (?P<quote>['"]) (?P<inside>(?:\\.|(?!(?P=quote))[^\\])*) (?P=quote)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMPOUND: Final = re.compile(r"(?:async\s+)?(?:for|with|def)\b|(?:while|if|class)\b|try\s*:")


def with_line_ends(code: str) -> str:
    """Repairs the line ends of code; leaves code that is Python, or cannot be made Python, as it is."""
    if parse_python(code) is not None:
        return code
    for mended in _mended(code):
        if mended != code and parse_python(mended) is not None:
            return mended
    return code


def _mended(code: str) -> Iterator[str]:
    one_line = "\n" not in code.strip()
    if one_line and "\\n" in code:
        yield re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), code)
    escaped = _STRING.sub(_with_escaped_line_ends, code)
    yield escaped
    if "\n" not in escaped.strip():
        yield _on_several_lines(escaped.strip())


def _with_escaped_line_ends(string: re.Match[str]) -> str:
    if string["skipped"] is not None or "r" in (string["prefix"] or "").lower():
        return string[0]
    inside = re.sub(r"\\.|\n", lambda match: "\\n" if match[0] == "\n" else match[0], string["inside"], flags=re.DOTALL)
    return f"{string['prefix'] or ''}{string['quote']}{inside}{string['quote']}"


def _on_several_lines(line: str) -> str:
    """Spreads a line of statements over several, each compound statement indented below its parent."""
    lines, indent, rest = list[str](), "", line
    while True:
        compound = _COMPOUND.match(rest) is not None
        cut = _first(":" if compound else ";", rest)
        if cut is None or not _COMPOUND.match(rest[cut + 1 :].lstrip()):
            return "\n".join([*lines, indent + rest])
        lines.append(indent + (rest[: cut + 1] if compound else rest[:cut]))
        indent += "    " if compound else ""
        rest = rest[cut + 1 :].lstrip()


def _first(mark: str, line: str) -> int | None:
    """The index of the first `:` of no lambda, or of the first `;` before a block outside brackets or strings."""
    depth = lambdas = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(line).readline):
            position = token.start[1]
            if token.string in ("(", "[", "{"):
                depth += 1
            elif token.string in (")", "]", "}"):
                depth -= 1
            elif token.string == "lambda":
                lambdas += 1
            elif token.string == ":" and lambdas:
                lambdas -= 1
            elif token.string == mark and depth == 0 and (mark == ":" or _COMPOUND.match(line[position + 1 :].lstrip())):
                return position
    except (tokenize.TokenError, SyntaxError):
        return None
    return None
