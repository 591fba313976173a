"""`UserNames`: names of variables that mean one value in the notebook and another one, or none, in an agent's kernel.

A notebook and its agents run in different kernels. Where a prompt or a cell of an agent uses a name that the notebook has as
well, the person is told in the agent's block; the model reads the names with each prompt. No value is passed on.
"""

import ast
import re
import symtable
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any, Final

from freeact_sub import events as ev
from freeact_sub.kernels.variable_reports import About
from freeact_sub.notebook.ipython_shell import running_shell
from freeact_sub.text import one_line

SHOWN: Final = 30
"""Names that a prompt or a notice lists; the rest are counted."""
CODE_CHARS: Final = 100_000
"""Characters above which a cell is not read."""
_WORD: Final = re.compile(r"[^\W\d]\w*")
NOTE_BYTES: Final = 2048
LINE_CHARS: Final = 200
SECRET: Final = re.compile(r"key|token|secret|passw|pwd|credential|auth|private", re.IGNORECASE)
"""Names that look like those of secrets, and are not told."""
NAMED_VALUE: Final = re.compile(r"\$([^\W\d]\w*)")
"""The form in which a prompt names a variable whose value it wants."""

HEAD: Final = (
    "[Your kernel is a copy of the user's notebook kernel, with its variables as they are now. What you change stays in the "
    "copy until the user takes it over; files that you write are written. "
)


class UserNames:
    """The variables of the notebook in which a run is shown."""

    def __init__(self, handed_over: Collection[str] = ()) -> None:
        """Args: handed_over: names whose values the agent has been given."""
        self._handed_over = handed_over
        self._told: set[tuple[str, str, str]] = set()
        """Told names, each with the type of the event and the agent's id."""

    def for_model(self, prompt: str) -> str:
        """Return the text that the model reads after its prompt. Empty: the notebook has no variables."""
        names = self._others()
        if not names:
            return ""
        asked = _listed(name for name in names if name in set(_WORD.findall(prompt)))
        named = f" The prompt contains these names: {asked}." if asked else ""
        return (
            f"[The user's notebook runs in another kernel than yours. It has these variables, which you do not see: "
            f"{_listed(names)}.{named} A variable of the same name in your kernel is another one. If the task needs a value "
            "from the notebook, say that you do not have it, and ask the user to save it to a file.]"
        )

    def notices(self, event: ev.Event) -> list[str]:
        """Return the notices that a person must read before an event."""
        if isinstance(event, ev.AgentStarted) and event.parent_id is None:
            found = self._new(event, _WORD.findall(event.prompt))
            return [f"The agent does not see the variables of your notebook: {_listed(found)}."] if found else []
        if isinstance(event, ev.ToolCallStarted) and isinstance(code := event.args.get("code"), str):
            found = self._new(event, names_in(code))
            have = "has variables" if len(found) > 1 else "has a variable"
            return (
                [f"This cell uses the agent's own {_listed(found)}: your notebook {have} of that name too."] if found else []
            )
        return []

    def _others(self) -> list[str]:
        return [name for name in _names() if name not in self._handed_over]

    def _new(self, event: ev.Event, used: Iterable[str]) -> list[str]:
        """Return the used names that the notebook has, and that no such event of the agent has told of yet."""
        used, kind = set(used), event.type
        found = [name for name in self._others() if name in used and (kind, event.agent_id, name) not in self._told]
        self._told.update((kind, event.agent_id, name) for name in found)
        return found


def names_in(code: str) -> set[str]:
    """Return the variables of its kernel that a cell uses or sets: no attributes, and none that are local to a function."""
    if len(code) > CODE_CHARS:
        return set()
    if code.startswith("%%"):
        line, _, body = code.partition("\n")
        return {*_WORD.findall(line), *names_in(body)}
    from IPython.core.inputtransformer2 import TransformerManager  # noqa: PLC0415  # a notebook has imported it

    try:
        plain = TransformerManager().transform_cell(code)
        # inside of a function, because there `await` is allowed everywhere
        tree = ast.parse(f"async def cell():\n    pass\n{textwrap.indent(plain, '    ')}")
        table = symtable.symtable(ast.unparse(_Lazy().visit(tree)), "<cell>", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return set()
    cell = table.lookup("cell").get_namespace()  # since Python 3.14 there are tables of annotations beside it
    lines = [line for line in code.split("\n") if line.lstrip().startswith(("%", "!"))]
    return {
        *(symbol.get_name() for symbol in cell.get_symbols()),
        *(name for inner in cell.get_children() for name in _outer(inner)),
        *(
            word for line in lines for word in _WORD.findall(line)
        ),  # magics take variables, and so do commands: `!ls {folder}`
    }


class _Lazy(ast.NodeTransformer):
    """Generators in place of comprehensions, whose variables belong to the function around them since Python 3.12."""

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp) -> ast.AST:
        return self.generic_visit(ast.GeneratorExp(elt=node.elt, generators=node.generators))

    visit_SetComp = visit_ListComp  # noqa: N815  # the name that ast calls

    def visit_DictComp(self, node: ast.DictComp) -> ast.AST:
        pair = ast.Tuple(elts=[node.key, node.value], ctx=ast.Load())
        return self.generic_visit(ast.GeneratorExp(elt=pair, generators=node.generators))


def _outer(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the names in a function, class or comprehension that are none of its own."""
    yield from (symbol.get_name() for symbol in table.get_symbols() if symbol.is_global())
    for inner in table.get_children():
        yield from _outer(inner)


def _names() -> list[str]:
    """Return the variables, functions and classes that a person has made in the notebook, sorted."""
    shell = running_shell()
    if shell is None:
        return []
    hidden, missing = shell.user_ns_hidden, object()
    return sorted(
        name
        for name, value in list(shell.user_ns.items())
        if not name.startswith("_") and value is not hidden.get(name, missing) and _is_own(value)
    )


def _is_own(value: Any) -> bool:
    """Return whether a value is a person's: no module, nothing imported, and nothing of freeact_sub."""
    if isinstance(value, ModuleType):
        return False
    if isinstance(value, type | FunctionType):
        return value.__module__ == "__main__"
    return not type(value).__module__.startswith("freeact_sub")


def _listed(names: Iterable[str]) -> str:
    those = list(names)
    more = f" and {len(those) - SHOWN} more" if len(those) > SHOWN else ""
    return ", ".join(f"`{name}`" for name in those[:SHOWN]) + more


def about_copied(prompt: str, variables: Mapping[str, About]) -> str:
    """Return the text for a model whose kernel is a copy: the variables that the prompt names, then the latest; no modules.

    Args:
        prompt: The user's. `$df` and `df` name the variable.
        variables: In the order in which they were made. If there are none, the text is empty.
    """
    named = set(_WORD.findall(prompt))
    shown = [name for name in reversed(list(variables)) if not variables[name].imported and not SECRET.search(name)]
    shown.sort(key=lambda name: name not in named)
    lines, left = _fitting((_line(name, variables[name]) for name in shown), NOTE_BYTES - len(HEAD) - 100)
    more = f"\nand {left} more" if left else ""
    return f"{HEAD}Variables:\n{lines}{more}]" if lines else ""


def _line(name: str, about: About) -> str:
    columns = f", columns {', '.join(about.columns)}" if about.columns else ""
    value = f" = {about.text}" if about.text and about.kind not in ("type", "function") else ""
    return one_line(f"{name}: {about.kind}{f', {about.shape}' if about.shape else ''}{columns}{value}", LINE_CHARS)


def _fitting(lines: Iterable[str], size: int) -> tuple[str, int]:
    """Return the first lines, up to so many bytes, and the number of the others."""
    kept, left = [], 0
    for line in lines:
        size -= len(line.encode()) + 3
        if size < 0 or left:
            left += 1
        else:
            kept.append(f"- {line}")
    return "\n".join(kept), left
