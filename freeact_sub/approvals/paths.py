"""Which files the words of a command, or a call, may mean."""

import os
from pathlib import Path
from typing import Final

from freeact_sub.approvals.patterns import UNKNOWN, WILD

HARMLESS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "/dev/zero", "/dev/full"})
"""Writing there changes nothing that stays."""


def possible_paths(word: str, folder: str, workspace: Path) -> tuple[str, ...]:
    """The absolute paths that a word may mean in a folder: as it is written, and with symbolic links followed.

    Args:
        word: As it stands in the command, or in the call; it may hold what is not known.
        folder: Where it is read, relative to the workspace, or absolute.
        workspace: The agent's.
    """
    path = _home(word)
    if not path.startswith(("/", UNKNOWN)):
        base = _home(folder)
        base = base if base.startswith(("/", UNKNOWN)) else f"{workspace}/{base}"
        path = f"{base}/{path}"
    if ".." in path.split("/") and (UNKNOWN in path or WILD in path):
        return (UNKNOWN,)
    written = os.path.normpath(path)
    written = f"/{written.lstrip('/')}" if written.startswith("/") else written
    if UNKNOWN in written or WILD in written or "\0" in written:
        return (written,)
    return tuple(dict.fromkeys((written, os.path.realpath(path))))


def is_within(path: str, folder: Path) -> bool:
    """Whether a path, whatever is not known of it, is a folder or in it."""
    known = path.partition(UNKNOWN)[0].partition(WILD)[0] if UNKNOWN not in path else ""
    if not known:
        return False
    root = str(folder).rstrip("/")
    return path == root or (known.startswith(f"{root}/"))


def _home(word: str) -> str:
    return str(Path.home()) + word[1:] if word == "~" or word.startswith("~/") else word
