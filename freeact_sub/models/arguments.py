r"""Repairs the arguments of tool calls as weak models write them. Pure: text and values in, values out.

Valid arguments stay as they are, to the letter. Repaired are only:

- a bare string instead of an object: it is the tool's one required text (the `code` of a cell, the `prompt` of a task);
- a required text under another name (`{"source": "..."}`), if it is the only text under an unknown name;
- an object inside a text, as JSON in JSON or in a fence, if its names are the tool's;
- an object that is there twice, or after an empty one (`{}{"code": "1"}`): some servers send the whole once more;
- an object with something around it (a byte order mark, a fence, tags, one brace too many), or with line ends between its
  fields that were escaped: it is read from its first brace to its last;
- half characters, which are written out (`\ud83d`);
- code inside a Markdown fence: the fence is no code;
- a backspace in code, which was meant as `\b` of an expression: in any other string it is the same;
- code whose line ends are wrong, if it is not Python before and is after (`with_line_ends`).

A text that was meant as an object, and cannot be read as one, is no bare string: it is never run, and the model is told that
the arguments are wrong.
"""

import ast
import io
import itertools
import json
import re
import tokenize
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from freeact_sub.text import whole_value


def parse_python(source: str) -> ast.Module | None:
    """Return the syntax tree; None where the text is not Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the model's code, such as odd escapes
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def parse_literal(source: str) -> Any:
    """Return the value of a Python literal; None where the text is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.literal_eval(source.strip())
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            return None


Schemas: TypeAlias = Mapping[str, Mapping[str, Any]]
"""JSON schemas of the parameters of each offered tool."""

_DECODER: Final = json.JSONDecoder(strict=False)
MAX_PACKINGS: Final = 3
"""Maximum times that arguments are unpacked from a text, or repeated."""
_FENCED: Final = re.compile(r"\s*(?P<fence>`{3,}|~{3,})[^\n`]*\n(?P<code>.*?)(?:\n[ \t]*(?P=fence)\s*)?\Z", re.DOTALL)


def repaired(args: Any, schema: Mapping[str, Any]) -> Any:
    """Repair arguments where that is needed and possible.

    Args:
        args: An object, or text: JSON or a failed attempt at it.
        schema: JSON schema of the tool's parameters.

    Returns:
        `args` itself if nothing is to be repaired.
    """
    value = whole_value(_unpacked(_value_of(args), schema))
    wanted = main_text(schema)
    if wanted is None:
        return value if isinstance(value, dict) and value != _as_it_is(args) else args
    value = _named(value, wanted, schema)
    if value is None:
        return args
    if wanted == "code" and isinstance(value["code"], str):
        code = value["code"]
        if not _is_meant_as_object(code, schema):
            value = {**value, "code": repaired_code(code)}
        elif (inner := _first_object(code, schema)) and _is_call(inner, schema):
            value = {**value, **whole_value(inner)}
        elif parse_python(code) is None:
            return code  # as wrong as it would be alone
    return args if value == _as_it_is(args) else value


def _named(value: Any, wanted: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments with the required text under its name, if there is one."""
    if isinstance(value, str):
        value = whole_value(_first_object(value, schema)) if _is_meant_as_object(value, schema) else {wanted: value}
    if not isinstance(value, dict):
        return None
    if wanted in value:
        return value
    strange = [name for name in value if name not in schema.get("properties", {})]
    if len(strange) != 1 or not isinstance(value[strange[0]], str):
        return None
    return {wanted if name == strange[0] else name: item for name, item in value.items()}


def _is_call(value: dict[str, Any], schema: Mapping[str, Any]) -> bool:
    """Whether an object found in code is the arguments of a cell: code may show an object that has a field `code`, too."""
    return isinstance(value.get("code"), str) and value.keys() <= schema["properties"].keys()


def main_text(schema: Mapping[str, Any]) -> str | None:
    """Return the name of the one required parameter, if it is a text."""
    required = schema.get("required", ())
    if len(required) != 1 or schema.get("properties", {}).get(required[0], {}).get("type") != "string":
        return None
    return str(required[0])


def repaired_code(code: str) -> str:
    """Return the code without a fence around it, and with its line ends."""
    fenced = _FENCED.match(code)
    if fenced:
        code = fenced["code"]
    return with_line_ends(code.replace("\b", "\\b"))


def _as_it_is(args: Any) -> Any:
    try:
        return json.loads(args) if isinstance(args, str) else args
    except (ValueError, RecursionError):
        return None


def _value_of(args: Any) -> Any:
    if not isinstance(args, str):
        return args
    try:
        return json.loads(args, strict=False)
    except (ValueError, RecursionError):
        if (last := _last_of_several(args)) is not None:
            return last
        literal = _literal_object(args)
        return args if literal is None else literal


def _last_of_several(text: str) -> dict[str, Any] | None:
    """Return the object that a server has sent more than once, or after an empty one, if it did so."""
    objects: list[Any] = []
    rest = text.strip()
    while rest and len(objects) < MAX_PACKINGS:
        try:
            value, end = _DECODER.raw_decode(rest)
        except (ValueError, RecursionError):
            return None
        objects.append(value)
        rest = rest[end:].lstrip()
    last = objects[-1] if objects and not rest else None
    return last if isinstance(last, dict) and all(value in ({}, last) for value in objects) else None


def _unpacked(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return the object of arguments inside a text: JSON in JSON, or JSON in a fence."""
    inner = value
    for _ in range(MAX_PACKINGS):
        if not isinstance(inner, str):
            break
        fenced = _FENCED.match(inner)
        try:
            inner = json.loads(fenced["code"] if fenced else inner, strict=False)
        except (ValueError, RecursionError):
            break
    return inner if isinstance(inner, dict) and inner.keys() <= schema.get("properties", {}).keys() else value


_BEFORE: Final = re.compile(
    r"""
    (?: [\s\ufeff\u200b] | \\[nrt] | (?:`{3,}|~{3,})\w* | </?[^<>{}\n]{1,80}>
      | (?i:json|args|arguments|parameters|input|action\ input)\s*:?\s*(?=[{<]) | "(?=\{\\") )*
    """,
    re.VERBOSE,
)
"""Characters before an object: marks, blanks, a fence, tags, a label, the quote of a text that holds it."""
_ELSE: Final = re.compile(r"[\n=(%!?]|.{60}")
"""Marks that stand in code before an object, and not in words before one."""
_BETWEEN: Final = re.compile(r'"(?:\\.|[^"\\])*"|\\[nrt]', re.DOTALL)
"""A string of JSON, or a line end that was escaped outside of one."""


def _is_meant_as_object(text: str, schema: Mapping[str, Any]) -> bool:
    """Whether a text was meant as an object of arguments: code does not begin with one that names the tool's parameters."""
    return _object_in(text, schema) is not None


def _object_in(text: str, schema: Mapping[str, Any]) -> str | None:
    """Return a text from the first brace of the intended object on, if it was meant as one."""
    body = text[_BEFORE.match(text).end() :]  # type: ignore[union-attr]  # it matches anything
    names = "|".join(map(re.escape, schema.get("properties", {})))
    if not names or re.search(rf"\b(?:{names})\b", body) is None:
        is_damaged = "code" in schema.get("properties", {}) and body.startswith('{"') and parse_python(body) is None
        return body if is_damaged else None
    if body.startswith(('{"', '{\\"')):
        return body
    if parse_python(body) is None:
        if body.startswith("{"):
            return body
        key = re.search(rf"""\{{?\s*\\?['"](?:{names})\\?['"]\s*:""", body)
        if key is None or _ELSE.search(body[: key.start()]):
            return None
        return body[key.start() :] if key[0].startswith("{") else "{" + body[key.start() :]
    # a set or a dict of Python may begin so, and may have a variable of that name as a key
    quoted, bare = rf"""['"](?:{names})['"]\s*:""", rf"""\{{\s*(?:{names})\s*:\s*['"]"""
    return body if body.startswith("{") and re.search(f"{quoted}|{bare}", body) else None


def _first_object(text: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the object of arguments that a text begins with. None: it is not whole, or one with other arguments follows."""
    body = _object_in(text, schema) or ""
    names = schema.get("properties", {}).keys()
    for source in (body, _BETWEEN.sub(lambda found: found[0] if found[0][0] == '"' else " ", body)):
        try:
            value, end = _DECODER.raw_decode(source)
        except (ValueError, RecursionError):
            continue
        if not isinstance(value, dict) or not value.keys() & names:
            continue
        rest = source[end:]
        return None if _is_meant_as_object(rest.lstrip(" ,;\n"), schema) and not _is_repeated(rest, value) else value
    return None


def _literal_object(source: str) -> dict[Any, Any] | None:
    """Return an object in Python's notation. None: it is none, or two of its strings are joined by a quote too many."""
    literal = parse_literal(source)
    if not isinstance(literal, dict):
        return None
    try:
        kinds = [token.type for token in tokenize.generate_tokens(io.StringIO(source.strip()).readline)]
    except (tokenize.TokenError, SyntaxError, ValueError):  # see `_first`
        return literal
    return None if (tokenize.STRING, tokenize.STRING) in itertools.pairwise(kinds) else literal


def _is_repeated(rest: str, value: dict[str, Any]) -> bool:
    try:
        return bool(_DECODER.raw_decode(rest.lstrip(" ,;\n"))[0] == value)
    except (ValueError, RecursionError):
        return False


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
    r"""Repair the line ends of code; leave code that is Python, or cannot be made Python, as it is.

    Weak models lose count of backslashes, and squeeze programs into one line. Repaired are only:

    - line ends that were escaped twice: `x = 1\nprint(x)` on one line;
    - a line end inside a string that was not escaped: `f.write('end` and `')` on the next line;
    - compound statements on one line that Python wants on several: `with open("a") as f: for n in range(3): f.write(n)`.
      Statements after a `;` belong to the innermost of them, as in Python.
    """
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
    """Return the index of the first `:` of no lambda, or of the first `;` before a block outside brackets or strings."""
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
    # a ValueError, since Python 3.12, for a carriage return before a letter that is not ASCII
    except (tokenize.TokenError, SyntaxError, ValueError):
        return None
    return None
