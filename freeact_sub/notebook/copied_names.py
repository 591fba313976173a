"""What a model reads of the notebook's variables when its kernel is a copy of the notebook's."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from freeact_sub.kernels.variable_reports import About
from freeact_sub.text import one_line

NOTE_BYTES: Final = 2048
LINE_CHARS: Final = 200
SECRET: Final = re.compile(r"key|token|secret|passw|pwd|credential|auth|private", re.IGNORECASE)
"""Names that look like those of secrets: nothing is said of them."""
_NAMED: Final = re.compile(r"[^\W\d]\w*")
NAMED_VALUE: Final = re.compile(r"\$([^\W\d]\w*)")
"""How a prompt names a variable whose value it wants."""

HEAD: Final = (
    "[Your kernel is a copy of the user's notebook kernel, with its variables as they are now. What you change stays in the "
    "copy until the user takes it over; files that you write are written. "
)


def for_model(prompt: str, variables: Mapping[str, About]) -> str:
    """What follows the prompt: those variables that it names first, then the latest ones. Modules are left out.

    Args:
        prompt: The user's. `$df` and `df` name the variable.
        variables: In the order in which they were made. If there are none, the text is empty.
    """
    named = set(_NAMED.findall(prompt))
    shown = [name for name in reversed(list(variables)) if not variables[name].imported and not SECRET.search(name)]
    shown.sort(key=lambda name: name not in named)
    lines, left = _fitting((_line(name, variables[name]) for name in shown), NOTE_BYTES - len(HEAD) - 100)
    more = f"\nand {left} more" if left else ""
    return f"{HEAD}Variables:\n{lines}{more}]" if lines else ""


def _line(name: str, about: About) -> str:
    """A variable in one line."""
    columns = f", columns {', '.join(about.columns)}" if about.columns else ""
    value = f" = {about.text}" if about.text and about.kind not in ("type", "function") else ""
    return one_line(f"{name}: {about.kind}{f', {about.shape}' if about.shape else ''}{columns}{value}", LINE_CHARS)


def _fitting(lines: Iterable[str], size: int) -> tuple[str, int]:
    """The first lines, up to so many bytes, and the number of the others."""
    kept, left = [], 0
    for line in lines:
        size -= len(line.encode()) + 3
        if size < 0 or left:
            left += 1
        else:
            kept.append(f"- {line}")
    return "\n".join(kept), left
