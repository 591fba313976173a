"""Lists the names that cells have made, and suggests near ones if a name is missing. Sent into every kernel as source."""

import builtins
import difflib
from typing import Any

from . import values  # relative, for in a kernel it is part of another package

MAX_NAMES = 3
BUILTIN_LIKENESS = 0.8
"""The least similarity of a name to a built-in, from 0 to 1: `end` does not mean `len`, but `pritn` means `print`."""


def show(shell: Any, *, sizes: bool = False) -> None:
    """Print the variables of the kernel with their types, oldest first. Args: sizes: and with their sizes."""
    hidden = shell.user_ns_hidden
    for name, value in list(shell.user_ns.items()):
        if not name.startswith("_") and (name not in hidden or hidden[name] is not value):
            print(values.line(name, value) if sizes else f"{name}: {type(value).__name__}")  # noqa: T201  # the host reads it as the output of its cell


def near_names(name: str, namespace: dict[str, Any]) -> list[str]:
    """Return similar names: first the user's, nearest first, then built-ins."""
    own = [known for known in namespace if not known.startswith("_")]
    near = difflib.get_close_matches(name, own, n=MAX_NAMES)
    others = [known for known in dir(builtins) if not known.startswith("_") and known not in near]
    return [*near, *difflib.get_close_matches(name, others, n=MAX_NAMES, cutoff=BUILTIN_LIKENESS)][:MAX_NAMES]


def install(shell: Any) -> None:
    """Let the errors of this shell suggest near names."""

    def on_name_error(shell: Any, kind: Any, error: NameError, traceback: Any, tb_offset: int | None = None) -> None:
        near = near_names(error.name, shell.user_ns) if error.name and len(error.args) == 1 else []
        if near:
            error.args = (f"{error.args[0]}. Near names that exist: {', '.join(near)}",)
        shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)

    shell.set_custom_exc((NameError,), on_name_error)
