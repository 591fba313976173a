"""Suggests patterns to a person who answers "always". The person can edit them."""

import re
from pathlib import Path
from typing import Literal

from freeact_sub.approvals.rules.patterns import UNKNOWN, WILD, escaped


def command_pattern(words: tuple[str, ...]) -> tuple[str, ...]:
    """The pattern for a command: `git push *` if the second word is a subcommand, else just this command."""
    text = " ".join(words)
    if re.search(r"\s{2}|\n", text) or text != text.strip():
        return ()
    if len(words) > 1 and re.fullmatch(r"[a-z][a-z0-9-]*", words[1]):
        unknown = any(mark in word for word in words[2:] for mark in (UNKNOWN, WILD))
        return (f"shell:{escaped(words[0])} {words[1]} {'**' if unknown else '*'}",)
    if UNKNOWN in text or WILD in text:
        return (f"shell:{escaped(words[0])} **",)
    return (f"shell:{escaped(text)}",)


def path_pattern(kind: Literal["file", "write"], paths: tuple[str, ...], workspace: Path) -> tuple[str, ...]:
    """The pattern for a file, relative to the workspace if it is in it; none if the file is unknown."""
    if any(UNKNOWN in path or WILD in path for path in paths):
        return ()
    root = f"{str(workspace).rstrip('/')}/"
    return tuple(f"{kind}:{escaped(path.removeprefix(root))}" for path in paths if path.strip() == path)
