"""A name that is missing: the error tells the near ones that exist. Sent into every kernel as source."""

import builtins
import difflib
from typing import Any

MAX_NAMES = 3


def near_names(name: str, namespace: dict[str, Any]) -> list[str]:
    """Names of the kernel that look like this one, the nearest first."""
    known = [known for known in (*namespace, *dir(builtins)) if not known.startswith("_")]
    return difflib.get_close_matches(name, dict.fromkeys(known), n=MAX_NAMES)


def install(shell: Any) -> None:
    """Let the errors of this shell tell near names."""

    def on_name_error(shell: Any, kind: Any, error: NameError, traceback: Any, tb_offset: int | None = None) -> None:
        near = near_names(error.name, shell.user_ns) if error.name and len(error.args) == 1 else []
        if near:
            error.args = (f"{error.args[0]}. Near names that exist: {', '.join(near)}",)
        shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)

    shell.set_custom_exc((NameError,), on_name_error)
