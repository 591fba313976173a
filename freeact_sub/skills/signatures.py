"""Reads the functions and classes of a skill's Python from its syntax tree; nothing of it runs."""

import ast
import warnings
from collections.abc import Iterator, Sequence
from typing import Final

MOST: Final = 12
"""Signatures of one skill."""
CHARS: Final = 240
"""Characters of one signature."""


def signatures(source: bytes) -> tuple[tuple[str, ...], str]:
    """Return the public signatures of a module, and what is wrong with it; empty if nothing is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the compiler, about the skill's strings
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        return (), f"it is not Python{line}: {getattr(error, 'msg', error)}"
    chosen = _listed(tree.body)
    found = [
        _signature(node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if (node.name in chosen if chosen is not None else not node.name.startswith("_"))
    ]
    more = [f"and {len(found) - MOST} more"] if len(found) > MOST else []
    return (*found[:MOST], *more), ""


def _listed(body: Sequence[ast.stmt]) -> set[str] | None:
    """The names in `__all__`; None if the module has none that can be read."""
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        value = getattr(node, "value", None)
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            if isinstance(value, ast.List | ast.Tuple):
                return {item.value for item in value.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)}
            return None
    return None


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    if isinstance(node, ast.ClassDef):
        begin = next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
        inner = f"({', '.join(_parameters(begin.args, without_first=True))})" if begin is not None else ""
        return f"class {node.name}{inner}"[:CHARS]
    before = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    after = f" -> {_type(node.returns)}" if node.returns is not None else ""
    return f"{before}{node.name}({', '.join(_parameters(node.args))}){after}"[:CHARS]


def _parameters(given: ast.arguments, *, without_first: bool = False) -> list[str]:
    positional = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(positional) - len(given.defaults)), *given.defaults]
    found = [_parameter(*pair) for pair in zip(positional, defaults, strict=True)]
    if given.posonlyargs:
        found.insert(len(given.posonlyargs), "/")
    return [*found[1 if without_first and found else 0 :], *_after_positional(given)]


def _after_positional(given: ast.arguments) -> Iterator[str]:
    if given.vararg is not None:
        yield f"*{_parameter(given.vararg, None)}"
    elif given.kwonlyargs:
        yield "*"
    for parameter, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _parameter(parameter, default)
    if given.kwarg is not None:
        yield f"**{_parameter(given.kwarg, None)}"


def _parameter(parameter: ast.arg, default: ast.expr | None) -> str:
    kind = f": {_type(parameter.annotation)}" if parameter.annotation is not None else ""
    if default is None:
        return f"{parameter.arg}{kind}"
    return f"{parameter.arg}{kind} = {_text(default)}" if kind else f"{parameter.arg}={_text(default)}"


def _text(node: ast.expr) -> str:
    try:
        return ast.unparse(node)[:CHARS]
    except (RecursionError, ValueError):
        return "..."


def _type(node: ast.expr) -> str:
    """A type; one in quotes without them."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else _text(node)
