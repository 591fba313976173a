"""Tool calls that were written as text, where the text is only calls. Pure.

In a block of Python (`code_actions = "block"`) they are calls; anywhere else they are a sign that a model means to act.

- JSON: `name` (or `function`, `tool`, `tool_name`) and `arguments` (or `parameters`, `args`, `input`, `kwargs`), or the
  arguments beside the name, or `{"task": {...}}`; a list of such objects, or several one behind the other; also written as a
  Python dictionary, with line ends inside strings, and with closing brackets missing at the end.
- Python: calls, awaited, printed or assigned. Arguments are literals, or names that were given to literals before.
- A cell's code in quotes that are wrong (`code="print("hi")"`) is read where it is Python.

Each must name a tool that is offered. Arguments go through `arguments.repaired`.
"""

import ast
import json
import re
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from freeact_sub.models.small.arguments import Schemas, main_text, parse_literal, parse_python, repaired, repaired_code

NAMESPACES: Final = frozenset({"functions", "tools", "default_api"})
"""Prefixes that some models write before a tool's name."""
_NAME_KEYS: Final = ("name", "function", "tool", "tool_name")
_ARGUMENT_KEYS: Final = ("arguments", "parameters", "args", "input", "kwargs")
_CLOSERS: Final = ("", "}", "}}", "]", "}]", "}}]")


@dataclass(frozen=True, kw_only=True)
class WrittenCall:
    """A tool call that was written as text."""

    tool: str
    args: dict[str, Any] = field(default_factory=dict)


def calls_in(body: str, tools: Schemas) -> list[WrittenCall]:
    """The calls of a text that holds only calls; none if it holds anything else."""
    if not tools:
        return []
    value = _loads(body)
    if value is not None:
        return calls_of(value, tools)
    return _calls_in_lines(body, tools) or python_calls(body, tools)


def _calls_in_lines(body: str, tools: Schemas) -> list[WrittenCall]:
    """The calls of several JSON objects in a row."""
    decoder, calls, position = json.JSONDecoder(strict=False), list[WrittenCall](), 0
    body = body.strip()
    while position < len(body):
        try:
            value, position = decoder.raw_decode(body, position)
        except (ValueError, RecursionError):
            return []
        found = calls_of(value, tools)
        if not found:
            return []
        calls += found
        while position < len(body) and body[position] in " \t\r\n,;":
            position += 1
    return calls


def _loads(text: str) -> Any:
    """Reads a JSON object or list, also in Python's notation or without its last brackets. None: the text is neither."""
    text = text.strip()
    if not text.startswith(("{", "[")):
        return None
    for closer in _CLOSERS:
        try:
            return json.loads(text + closer, strict=False)
        except (ValueError, RecursionError):
            literal = parse_literal(text + closer)
        if isinstance(literal, dict | list):
            return literal
    return None


def calls_of(value: Any, tools: Schemas) -> list[WrittenCall]:
    """The calls of a JSON value; none if a part of it is no call."""
    items = value if isinstance(value, list) else [value]
    calls = [_call_of(item, tools) for item in items]
    return [call for call in calls if call] if all(calls) else []


def _call_of(value: Any, tools: Schemas) -> WrittenCall | None:
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("function"), dict):  # as OpenAI's protocol has it
        value = value["function"]
    name_key = next((key for key in _NAME_KEYS if isinstance(value.get(key), str) and value[key] in tools), None)
    if name_key is None:
        only = next(iter(value)) if len(value) == 1 else None  # {"task": {"prompt": ...}}
        return _make_call(only, value[only], tools) if isinstance(only, str) and only in tools else None
    rest = {key: item for key, item in value.items() if key not in (name_key, "id", "type")}
    key = next((key for key in _ARGUMENT_KEYS if key in rest), None)
    return _make_call(value[name_key], rest if key is None else rest[key], tools)


def _make_call(tool: str, args: Any, tools: Schemas) -> WrittenCall | None:
    if args is None:
        args = {}
    args = repaired(args, tools[tool])
    if isinstance(args, str):
        args = _loads(args)
    if not isinstance(args, dict) or not all(isinstance(name, str) for name in args):
        return None
    return WrittenCall(tool=tool, args=args)


def python_calls(source: str, tools: Schemas) -> list[WrittenCall]:
    """The calls of a program that only calls tools with literals; none for other programs."""
    tree = parse_python(source.strip())
    if tree is None:
        return _misquoted_cell(source.strip(), tools)
    known: dict[str, Any] = {}
    calls: list[WrittenCall] = []
    for statement in tree.body:
        if not isinstance(statement, ast.Expr | ast.Assign):
            return []
        call = _python_call(statement.value, known, tools)
        if call is not None:
            calls.append(call)
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            value = _literal(statement.value, known)
            if value is None:
                return []
            known[statement.targets[0].id] = value
        elif not calls or not _only_prints(statement.value):
            return []
    return calls


def _only_prints(node: ast.expr) -> bool:
    """Whether a statement is `print(answer)` after a call: the model reads the result anyway."""
    return _is_print(node) and all(isinstance(arg, ast.Name) for arg in node.args)


def _is_print(node: ast.expr) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"


def _python_call(node: ast.expr, known: dict[str, Any], tools: Schemas) -> WrittenCall | None:
    if isinstance(node, ast.Await):
        node = node.value
    if _is_print(node) and len(node.args) == 1:
        return _python_call(node.args[0], known, tools)
    name = _name_of(node.func) if isinstance(node, ast.Call) else ""
    if not isinstance(node, ast.Call) or name not in tools:
        return None
    schema = tools[name]
    order = [*([main_text(schema)] if main_text(schema) else []), *schema.get("properties", {})]
    order = list(dict.fromkeys(order))
    if len(node.args) > len(order) or any(keyword.arg is None for keyword in node.keywords):
        return None
    given = [*zip(order, node.args, strict=False), *((str(keyword.arg), keyword.value) for keyword in node.keywords)]
    args = {parameter: _literal(value, known) for parameter, value in given}
    return None if None in args.values() else _make_call(name, args, tools)


def _name_of(function: ast.expr) -> str:
    """`task`, also as `functions.task`."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id in NAMESPACES:
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _literal(node: ast.expr, known: dict[str, Any]) -> Any:
    """The value of a literal, or of a name assigned one. None: the expression is neither."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None


def _misquoted_cell(source: str, tools: Schemas) -> list[WrittenCall]:
    """`NAME(code="print("hi")")`: quotes inside quotes, where what stands between the outer ones is Python."""
    match = re.fullmatch(r"(\w+)\(\s*(?:(\w+)\s*=\s*)?(\"\"\"|'''|\"|')(.*)\3\s*\)", source, re.DOTALL)
    if match is None or match[1] not in tools or main_text(tools[match[1]]) != "code" or match[2] not in (None, "code"):
        return []
    code = repaired_code(match[4])
    return [WrittenCall(tool=match[1], args={"code": code})] if parse_python(code) is not None else []
