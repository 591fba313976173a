"""What stands right above the input line: prompts that wait for their turn, and what a key that was pressed has done."""

from collections.abc import Sequence
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from freeact_sub.text import visible, whole_line

SHOWN: Final = 3
"""Prompts of which a line is shown; the newest ones."""


def waiting_lines(prompts: Sequence[str], hint: str, *, can_send: bool) -> list[RenderableType]:
    """The lines.

    Args:
        prompts: What waits as it was typed, the next one first.
        hint: Is said until something else is entered; empty: nothing is.
        can_send: An agent at work can be told of the prompts now.
    """
    lines = [Text(f"waits: {visible(whole_line(prompt))}", "dim", no_wrap=True, overflow="ellipsis") for prompt in prompts]
    if (left := len(prompts) - SHOWN) > 0:
        lines[:left] = [Text(f"{left} more wait", "dim")]
    if prompts:
        lines.append(Text(f"{'Enter sends what waits now · ' if can_send else ''}↑ takes the last one back", "dim"))
    if hint:
        lines.append(Text(visible(hint), "dim", overflow="fold"))
    return [*lines]
