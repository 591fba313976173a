"""Suggests patterns to a person who answers "always". The person can edit them."""

import re
from pathlib import Path
from typing import Literal

from freeact_sub.approvals.rules.patterns import UNKNOWN, WILD, escaped


def command_pattern(words: tuple[str, ...], *, any_words: bool) -> tuple[str, ...]:
    """The pattern for a command: just this one, and none if it is known only when it runs.

    Args:
        words: The program's name and its arguments.
        any_words: None of the program's options writes, starts a program or connects: the pattern leaves its arguments open.
    """
    text = " ".join(words)
    if UNKNOWN in text or (WILD in text and not any_words) or re.search(r"\s{2}|\n", text) or text != text.strip():
        return ()
    return (f"shell:{escaped(words[0])} *",) if any_words else (f"shell:{escaped(text)}",)


def path_pattern(kind: Literal["file", "write"], paths: tuple[str, ...], workspace: Path) -> tuple[str, ...]:
    """The pattern for a file, relative to the workspace if it is in it; none if the file is unknown."""
    if any(UNKNOWN in path or WILD in path for path in paths):
        return ()
    root = f"{str(workspace).rstrip('/')}/"
    return tuple(f"{kind}:{escaped(path.removeprefix(root))}" for path in paths if path.strip() == path)
