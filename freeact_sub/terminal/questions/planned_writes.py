"""`planned_writes`: what a cell writes into which file, as far as its code says so by itself.

Only statements are looked at that run unless something fails before them, and only literals: `%%writefile`,
`Path("x").write_text("…")`, `open("x", "w").write("…")` and the same in a `with`. A name stands for its value where the cell
gives it one once. What is put together while the cell runs is not guessed at: its content is None. What an earlier cell has
made of a name cannot be seen here, so the card shows the code as well.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

PATHS: Final = ("Path", "pathlib.Path")
WRITES: Final = ("write_text", "write_bytes")
_MODE: Final = re.compile(r"[wxa][bt+]*")
_MAGIC: Final = re.compile(r"\s*%%(?:writefile|file)[ \t]+(-a[ \t]+|--append[ \t]+)?([^\s\"'$]+)[ \t]*\n")


@dataclass(frozen=True, kw_only=True)
class PlannedWrite:
    """What one statement writes."""

    path: str
    """As the code has it."""
    content: bytes | None
    """None: it is computed when the cell runs."""
    appends: bool = False


def planned_writes(code: str) -> list[PlannedWrite]:
    """The writes of a cell, in the order in which they happen."""
    if magic := _MAGIC.match(code):
        return [PlannedWrite(path=magic[2], content=code[magic.end() :].encode(), appends=bool(magic[1]))]
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    bound = Counter(_bound(tree))
    if bound["Path"] or bound["open"]:
        return []
    names = {
        target.id: statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name) and bound[target.id] == 1
    }
    return [write for statement in tree.body for write in _of_statement(statement, names)]


def _bound(tree: ast.Module) -> Iterator[str]:
    """The names that a cell binds, as often as it does; the real `Path` is none of them."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ImportFrom(module="pathlib"):
                yield from (item.asname or item.name for item in node.names if item.name != "Path" or item.asname)
            case ast.Import() | ast.ImportFrom():
                yield from (item.asname or item.name for item in node.names)
            case ast.Global(names=several) | ast.Nonlocal(names=several):
                yield from several * 2  # a function may bind them too, and again


def _of_statement(statement: ast.stmt, names: Mapping[str, ast.expr]) -> Iterator[PlannedWrite]:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=target, attr=method), args=[content, *_])):
            if method in WRITES and (path := _path(target, names)) is not None:
                yield PlannedWrite(path=path, content=_content(content, names, statement.value))
            elif method == "write" and (opened := _opened(target, names)) is not None:
                yield PlannedWrite(path=opened[0], content=_content(content, names, target), appends=opened[1])
        case ast.With(items=[ast.withitem(context_expr=target, optional_vars=ast.Name(id=file))], body=body):
            if (opened := _opened(target, names)) is not None:
                parts = [_written(each, file, names, target) for each in body]
                known = [part for part in parts if part is not None]
                whole = b"".join(known) if len(known) == len(parts) else None
                yield PlannedWrite(path=opened[0], content=whole, appends=opened[1])


def _written(statement: ast.stmt, file: str, names: Mapping[str, ast.expr], opened: ast.expr) -> bytes | None:
    """What a statement in a `with` writes; None: it does something else, or writes what is computed."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="write"), args=[content])):
            return _content(content, names, opened) if name == file else None
    return None


def _path(node: ast.expr, names: Mapping[str, ast.expr]) -> str | None:
    """The path that an expression is, where it is made of literals."""
    match node:
        case ast.Name(id=name) if name in names:
            return _path(names[name], {other: value for other, value in names.items() if other != name})
        case ast.Call(func=made, args=args, keywords=[]) if ast.unparse(made) in PATHS and args:
            parts = [_text(each, names) for each in args]
            return None if None in parts else str(PurePosixPath(*filter(None, parts)))
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            folder, inside = _path(left, names), _text(right, names)
            return None if folder is None or inside is None else str(PurePosixPath(folder, inside))
    return None


def _opened(node: ast.expr, names: Mapping[str, ast.expr]) -> tuple[str, bool] | None:
    """The path that `open` opens to be written, and whether it is added to."""
    match node:
        case ast.Call(func=ast.Name(id="open"), args=[target, ast.Constant(value=str(mode))]) if _MODE.fullmatch(mode):
            path = _text(target, names) or _path(target, names)
        case ast.Call(func=ast.Attribute(value=target, attr="open"), args=[ast.Constant(value=str(mode))]) if (
            _MODE.fullmatch(mode)
        ):
            path = _path(target, names)
        case _:
            return None
    return None if path is None else (path, mode.startswith("a"))


def _text(node: ast.expr, names: Mapping[str, ast.expr]) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name) if isinstance(value := names.get(name), ast.Constant) and isinstance(value.value, str):
            return value.value
    return None


def _content(node: ast.expr, names: Mapping[str, ast.expr], call: ast.expr) -> bytes | None:
    """What is written, in the encoding that the call names; of another than UTF-8 nothing is said."""
    keywords = call.keywords if isinstance(call, ast.Call) else []
    if any(each.arg != "encoding" or _text(each.value, {}) not in ("utf-8", "utf8", "UTF-8") for each in keywords):
        return None
    if isinstance(node, ast.Constant) and isinstance(node.value, bytes):
        return node.value
    text = _text(node, names)
    return None if text is None else text.encode(errors="replace")
