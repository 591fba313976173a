"""What cells have set in the context of their thread, such as NumPy's options for printing, and `decimal`'s precision.

A branch begins in a context of its own, and gets this from its origin. Standard library and IPython only.
"""

import contextvars
from typing import Any

SET: dict[contextvars.ContextVar[Any], Any] = {}
"""By variable: its last value."""
found: list[contextvars.Context] = []
"""The context before the cell that runs."""


def install(shell: Any) -> None:
    """Called once in each kernel, and again in a branch."""
    shell.events.register("pre_run_cell", note)
    shell.events.register("post_run_cell", keep)


def note(_: Any) -> None:
    """Called before each cell."""
    found[:] = [contextvars.copy_context()]


def keep(_: Any) -> None:
    """Called after each cell."""
    now = contextvars.copy_context()
    for before in found:
        SET.update((each, value) for each, value in now.items() if before.get(each) is not value)
    for each in SET.keys() - now.keys():
        del SET[each]


def take_over() -> None:
    """Sets it here, in a copy of the process: once, before its event loop starts."""
    for each, value in SET.items():
        each.set(value)
