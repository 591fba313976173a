"""`planned_writes`: the contents that a cell writes into files, as far as its code says so by itself.

Only statements that run unless something fails before them count, and only literals: `%%writefile`,
`Path("x").write_text("…")`, `open("x", "w").write("…")` and the same in a `with`. A name stands for its value where the cell
binds it once, and before it is used. Content that is put together while the cell runs is not guessed at: it is None. What
an earlier cell has made of a name or of the working directory cannot be seen here, so the card shows the code as well.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, TypeAlias

WRITES: Final = ("write_text", "write_bytes")
TRUSTED: Final = frozenset({"Path", "pathlib", "open", "write", *WRITES})
"""Names that must have their usual meaning."""
MOVES: Final = frozenset({"*", "chdir", "fchdir"})
"""Names after which a relative path, or any other name, may mean something else."""
Value: TypeAlias = str | bytes | PurePosixPath
_MODE: Final = re.compile(r"[wxa][bt+]*")
_MAGIC: Final = re.compile(r"(?:[ \t]*\n)*%%(?:writefile|file)[ \t]+(-a[ \t]+|--append[ \t]+)?([^\s\"'$~{}\\]+)[ \t]*\n")


@dataclass(frozen=True, kw_only=True)
class PlannedWrite:
    """One statement's write."""

    path: str
    """The path as the code has it."""
    content: bytes | None
    """None: it is computed when the cell runs."""
    appends: bool = False


def planned_writes(code: str) -> list[PlannedWrite]:
    """The writes of a cell, in the order in which they happen."""
    if magic := _MAGIC.match(code):
        body = code[magic.end() :]
        whole = body if body.endswith("\n") else f"{body}\n"  # IPython ends each cell with a line end
        return [PlannedWrite(path=magic[2], content=whole.encode(errors="replace"), appends=bool(magic[1]))]
    try:
        tree = ast.parse(code)
        bound = Counter(_bound(tree))
        return [] if bound.keys() & (TRUSTED | MOVES) else [*_of_cell(tree, bound)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _bound(tree: ast.Module) -> Iterator[str]:
    """The names that a cell binds, as often as it does, without the real `Path`; and those of `MOVES` that it uses."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in MOVES:
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()) if name in TRUSTED:
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name
            case ast.Import(names=items) | ast.ImportFrom(names=items):
                yield from _imported(node, items)
            case ast.Global(names=several) | ast.Nonlocal(names=several):
                yield from several * 2  # a function may bind them too, and again


def _imported(node: ast.Import | ast.ImportFrom, items: list[ast.alias]) -> Iterator[str]:
    real = "pathlib" if isinstance(node, ast.Import) else "Path" if node.module == "pathlib" and not node.level else ""
    for item in items:
        if item.name in MOVES:
            yield item.name
        elif item.name != real or item.asname:
            yield item.asname or item.name.partition(".")[0]


def _of_cell(tree: ast.Module, bound: Mapping[str, int]) -> Iterator[PlannedWrite]:
    names: dict[str, Value] = {}
    for statement in tree.body:
        yield from _of_statement(statement, names)
        if isinstance(statement, ast.Assign) and (value := _value(statement.value, names)) is not None:
            targets = (target.id for target in statement.targets if isinstance(target, ast.Name))
            names |= {name: value for name in targets if bound[name] == 1}


def _of_statement(statement: ast.stmt, names: Mapping[str, Value]) -> Iterator[PlannedWrite]:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=target, attr=method), args=[content, *others]) as call):
            if method in WRITES and isinstance(path := _value(target, names), PurePosixPath):
                yield PlannedWrite(path=str(path), content=None if others else _content(content, names, call))
            elif method == "write" and (opened := _opened(target, names)) is not None:
                yield PlannedWrite(path=opened[0], content=_content(content, names, target), appends=opened[1])
        case ast.With(items=[ast.withitem(context_expr=target, optional_vars=ast.Name(id=file))], body=body):
            if (opened := _opened(target, names)) is not None:
                parts = [_written(each, file, names, target) for each in body]
                known = [part for part in parts if part is not None]
                whole = b"".join(known) if len(known) == len(parts) else None
                yield PlannedWrite(path=opened[0], content=whole, appends=opened[1])


def _written(statement: ast.stmt, file: str, names: Mapping[str, Value], opened: ast.expr) -> bytes | None:
    """The content that a statement in a `with` writes; None: it does something else, or computes the content."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="write"), args=[content])):
            return _content(content, names, opened) if name == file else None
    return None


def _value(node: ast.expr, names: Mapping[str, Value]) -> Value | None:
    """The text, bytes or path that an expression is, where it is made of literals."""
    match node:
        case ast.Constant(value=str() | bytes() as value):
            return value
        case ast.Name(id=name):
            return names.get(name)
        case ast.Call(func=ast.Name(id="Path") | ast.Attribute(value=ast.Name(id="pathlib"), attr="Path"), keywords=[]):
            return _joined([_value(each, names) for each in node.args])
        case ast.BinOp(left=left, op=ast.Div(), right=right) if isinstance(folder := _value(left, names), PurePosixPath):
            return _joined([folder, _value(right, names)])
    return None


def _joined(parts: list[Value | None]) -> PurePosixPath | None:
    known = [part for part in parts if isinstance(part, str | PurePosixPath)]
    return PurePosixPath(*known) if known and len(known) == len(parts) else None


def _opened(node: ast.expr, names: Mapping[str, Value]) -> tuple[str, bool] | None:
    """The path that `open` opens for writing, and whether it appends."""
    match node:
        case ast.Call(func=ast.Name(id="open"), args=[target, ast.Constant(value=str(mode))]):
            path = _value(target, names)
        case ast.Call(func=ast.Attribute(value=target, attr="open"), args=[ast.Constant(value=str(mode))]):
            path = value if isinstance(value := _value(target, names), PurePosixPath) else None
        case _:
            return None
    joined = _joined([path]) if _MODE.fullmatch(mode) else None
    return None if joined is None else (str(joined), mode.startswith("a"))


def _content(node: ast.expr, names: Mapping[str, Value], call: ast.expr) -> bytes | None:
    """The written content in the encoding that the call names; None for another than UTF-8, and for computed content."""
    keywords = call.keywords if isinstance(call, ast.Call) else []
    if any(each.arg != "encoding" or _value(each.value, {}) not in ("utf-8", "utf8", "UTF-8") for each in keywords):
        return None
    content = _value(node, names)
    return content.encode(errors="replace") if isinstance(content, str) else content if isinstance(content, bytes) else None
