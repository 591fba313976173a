"""The lines right above the input line: prompts that wait for their turn, and the effect of a key."""

from collections.abc import Sequence
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from freeact_sub.text import visible, whole_line

SHOWN: Final = 3
"""Number of prompts with a line; the newest ones."""


def waiting_lines(prompts: Sequence[str], hint: str, *, can_send: bool) -> list[RenderableType]:
    """Draws the lines.

    Args:
        prompts: The waiting prompts as they were typed, the next one first.
        hint: A note that stays until something else is entered; empty: none.
        can_send: An agent at work can get the prompts now.
    """
    lines = [Text(f"queued: {visible(whole_line(prompt))}", "dim", no_wrap=True, overflow="ellipsis") for prompt in prompts]
    if (left := len(prompts) - SHOWN) > 0:
        lines[:left] = [Text(f"… {left} more queued", "dim")]
    if prompts:
        lines.append(Text(f"{'Enter sends them now · ' if can_send else ''}↑ takes the last one back", "dim"))
    if hint:
        lines.append(Text(visible(hint), "dim", overflow="fold"))
    return [*lines]
