"""`await_magics`: puts `await` before the calls of our magics, for IPython calls magics without awaiting them.

It reads the code that IPython has made of a cell as Python does, so a text that looks like a magic stays a text. Where
nothing can await (in a function, below another magic) the call stays as it is, and the magic says so.

`run_below` replaces `%%time` and `%%capture` around a cell magic that is awaited: IPython's own run their cell without
awaiting it. A run may ask while it is captured, so until its end it is shown where nothing is captured.
"""

import ast
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, Final

from IPython.core.getipython import get_ipython
from IPython.core.inputtransformer2 import TransformerManager
from IPython.core.interactiveshell import InteractiveShell

from freeact_sub.notebook.display import drawn_elsewhere
from freeact_sub.notebook.ipython_shell import shown_by

RUNS_CODE: Final = InteractiveShell.run_code.__code__
WITHIN_CODE: Final = (
    InteractiveShell.run_cell_magic.__code__,
    InteractiveShell.run_line_magic.__code__,
    InteractiveShell.run_cell.__code__,
)
HIDE_ERRORS: Final = ("capture",)
"""Cell magics that run their body as a cell of its own, and do not say that it failed."""
AWAIT: Final = "await "
ABOVE: Final = ("time", "capture")
"""Cell magics below which ours work, see `run_below`."""
RUN_BELOW: Final = "await __import__('freeact_sub.notebook.awaited_magics', fromlist=['*']).run_below"


def await_magics(lines: list[str], names: Collection[str]) -> list[str]:
    """Return the code of a cell with our magics awaited. Args: lines: as IPython has made them. names: of our magics."""
    code = "".join(lines)
    if "get_ipython().run_" not in code or (tree := _parsed(code)) is None:
        return lines
    changes: list[tuple[ast.Call, str]] = []
    for call, awaits in _calls(tree, can_await=not _is_within_code()):
        if (magic := _magic(call)) in names and awaits:
            changes.append((call, AWAIT))
        elif awaits and (below := _below(call, names)):
            changes.append((call, below))
        elif magic in HIDE_ERRORS and (inner := _inner(call, names)) is not None:
            changes.append((call, ast.unparse(inner)))  # it raises, where the magic around it would hide that
    rows = [row.encode() for row in code.split("\n")]
    for call, text in reversed(changes):
        row, start = call.lineno - 1, call.col_offset
        end = start if text == AWAIT else call.end_col_offset
        if text == AWAIT or call.end_lineno == call.lineno:
            rows[row] = rows[row][:start] + text.encode() + rows[row][end:]
    return b"\n".join(rows).decode().splitlines(keepends=True)


def _parsed(code: str) -> ast.Module | None:
    """Parse code. None: it is no code; IPython reports the error."""
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _calls(node: ast.AST, *, can_await: bool) -> Iterator[tuple[ast.Call, bool]]:
    """Yield the statements that are calls, or assign the value of one, in order; each with whether it can be awaited."""
    if isinstance(node, ast.Expr | ast.Assign) and isinstance(node.value, ast.Call):
        yield node.value, can_await
    if isinstance(node, ast.AsyncFunctionDef):
        can_await = True
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        can_await = False
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, can_await=can_await)


def _magic(call: ast.Call) -> str:
    """Return the name of the magic that IPython calls there, if it is one."""
    match call:
        case ast.Call(
            func=ast.Attribute(value=ast.Call(func=ast.Name("get_ipython")), attr="run_cell_magic" | "run_line_magic"),
            args=[ast.Constant(str(name)), *_],
        ):
            return name
    return ""


def _below(call: ast.Call, names: Collection[str]) -> str:
    """Return code that does the same and waits, if just one of our cell magics stands below others."""
    above: list[tuple[str, str]] = []
    while (magic := _magic(call)) in ABOVE:
        match call.args:
            case [_, ast.Constant(str(line)), ast.Constant(str(body))] if magic != "time" or not line.strip():
                tree = _parsed(TransformerManager().transform_cell(body))
            case _:
                return ""
        match tree:
            case ast.Module(body=[ast.Expr(ast.Call() as call)]):
                above.append((magic, line))
            case _:
                return ""
    match call.args:
        case [ast.Constant(str(name)), ast.Constant(str(line)), ast.Constant(str(cell))] if above and magic in names:
            return f"{RUN_BELOW}({above!r}, {name!r}, {line!r}, {cell!r})"
    return ""


def _inner(call: ast.Call, names: Collection[str]) -> ast.Call | None:
    """Return the first call of our magics in the body of a cell magic that runs it, at any depth."""
    match call.args:
        case [_, _, ast.Constant(str(body))]:
            tree = _parsed(TransformerManager().transform_cell(body))
            for each, _ in () if tree is None else _calls(tree, can_await=False):
                if (magic := _magic(each)) in names:
                    return each
                if magic in (*HIDE_ERRORS, "time") and (found := _inner(each, names)) is not None:
                    return found
    return None


def _is_within_code() -> bool:
    """Return whether a cell's code has called this, such as `%%time`, which runs its body without awaiting it."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # documented
    is_within = False
    while frame is not None:
        is_within = is_within or frame.f_code in WITHIN_CODE
        if is_within and frame.f_code is RUNS_CODE:
            return True
        frame = frame.f_back
    return False


async def run_below(above: Sequence[tuple[str, str]], name: str, line: str, cell: str) -> None:
    """Run a cell magic below others. Args: above: their names and lines, the outermost first."""
    shell: Any = get_ipython()
    with ExitStack() as around:
        for outer, its_line in above:
            around.enter_context(_timed() if outer == "time" else _captured(shell, its_line))
        await shell.run_cell_magic(name, line, cell)


@contextmanager
def _timed() -> Iterator[None]:
    begun, worked = time.perf_counter(), time.process_time()
    try:
        yield
    finally:
        cpu, wall = time.process_time() - worked, time.perf_counter() - begun
        print(f"CPU times: total: {cpu:.3g} s (of this kernel)\nWall time: {wall:.3g} s")  # noqa: T201  # IPython's way


@contextmanager
def _captured(shell: Any, line: str) -> Iterator[None]:
    from IPython.core.magic_arguments import parse_argstring  # noqa: PLC0415  # few cells need them
    from IPython.core.magics.execution import ExecutionMagics  # noqa: PLC0415
    from IPython.utils.capture import capture_output  # noqa: PLC0415

    options = parse_argstring(ExecutionMagics.capture, line)
    publisher = shell.display_pub
    with capture_output(not options.no_stdout, not options.no_stderr, not options.no_display) as output:
        try:
            if options.no_display:
                yield
            else:
                with drawn_elsewhere(), shown_by(publisher):
                    yield
        finally:
            if options.output:
                shell.user_ns[options.output] = output
