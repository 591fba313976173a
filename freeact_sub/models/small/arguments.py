r"""Repairs the arguments of tool calls as weak models write them. Pure: text and values in, values out.

Valid arguments stay as they are, to the letter. Repaired are only:

- a bare string instead of an object: it is the tool's one required text (the `code` of a cell, the `prompt` of a task);
- a required text under another name (`{"source": "..."}`), if it is the only text under an unknown name;
- code inside a Markdown fence: the fence is no code;
- a backspace in code, which was meant as `\b` of an expression: in any other string it is the same;
- code whose line ends are wrong, if it is no Python before and is after: see `line_ends`.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from freeact_sub.models.small.line_ends import with_line_ends
from freeact_sub.models.small.python_syntax import parse_literal

Schemas: TypeAlias = Mapping[str, Mapping[str, Any]]
"""The JSON schema of the parameters of each offered tool."""

_FENCED: Final = re.compile(r"\s*(?P<fence>`{3,}|~{3,})[^\n`]*\n(?P<code>.*?)(?:\n[ \t]*(?P=fence)\s*)?\Z", re.DOTALL)


def repaired(args: Any, schema: Mapping[str, Any]) -> Any:
    """Repairs arguments where that is needed and possible.

    Args:
        args: An object, or text: JSON or what should have been.
        schema: JSON schema of the tool's parameters.

    Returns:
        `args` itself if nothing is to be repaired.
    """
    value = _value_of(args)
    wanted = main_text(schema)
    if wanted is None:
        return args
    if isinstance(value, str):
        value = {wanted: value}
    elif isinstance(value, dict) and wanted not in value:
        strange = [name for name in value if name not in schema.get("properties", {})]
        if len(strange) != 1 or not isinstance(value[strange[0]], str):
            return args
        value = {wanted if name == strange[0] else name: item for name, item in value.items()}
    elif not isinstance(value, dict):
        return args
    if wanted == "code" and isinstance(value["code"], str):
        value = {**value, "code": repaired_code(value["code"])}
    return args if value == _as_it_is(args) else value


def main_text(schema: Mapping[str, Any]) -> str | None:
    """The name of the one required parameter, if it is a text."""
    required = schema.get("required", ())
    if len(required) != 1 or schema.get("properties", {}).get(required[0], {}).get("type") != "string":
        return None
    return str(required[0])


def repaired_code(code: str) -> str:
    """The code without a fence around it, and with its line ends."""
    fenced = _FENCED.match(code)
    if fenced:
        code = fenced["code"]
    return with_line_ends(code.replace("\b", "\\b"))


def _as_it_is(args: Any) -> Any:
    """The arguments as pydantic will read them."""
    try:
        return json.loads(args) if isinstance(args, str) else args
    except (ValueError, RecursionError):
        return None


def _value_of(args: Any) -> Any:
    """The value of a text: parsed if it is JSON, else the text itself."""
    if not isinstance(args, str):
        return args
    try:
        return json.loads(args, strict=False)
    except (ValueError, RecursionError):
        literal = parse_literal(args)
        return literal if isinstance(literal, dict) else args
