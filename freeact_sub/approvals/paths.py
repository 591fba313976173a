"""Resolves the words of a command to paths."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from freeact_sub.approvals.rules.patterns import UNKNOWN, WILD

HARMLESS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "/dev/zero", "/dev/full"})
"""Writes to these files leave nothing behind."""

MAX_BUNDLE: Final = 1_000_000
"""Characters of a file to look at."""
_by_names: Final = ContextVar("by names alone", default=False)
_IN_PROCESS: Final = re.compile(r"/proc/[^/]+(?:/task/[^/]+)?/cwd(?:/|$)")


@contextmanager
def by_names_alone() -> Iterator[None]:
    """Meanwhile no decision of this task looks at a file: a path is what it says, and what is in a folder is not known."""
    token = _by_names.set(True)
    try:
        yield
    finally:
        _by_names.reset(token)


def may_look() -> bool:
    """Whether a decision may look at files."""
    return not _by_names.get()


def possible_paths(word: str, folder: str, workspace: Path) -> tuple[str, ...]:
    """The absolute paths that a word may mean in a folder: as it is written, and with symbolic links followed.

    Args:
        word: The word as written; parts of it may be unknown.
        folder: The folder it is relative to: absolute, or relative to the workspace.
        workspace: The agent's workspace.
    """
    path = with_home(word)
    if not path.startswith(("/", UNKNOWN)):
        base = with_home(folder)
        base = base if base.startswith(("/", UNKNOWN)) else f"{workspace}/{base}"
        path = f"{base}/{path}"
    if ".." in path.split("/") and (UNKNOWN in path or WILD in path):
        return (UNKNOWN,)
    written = os.path.normpath(path)
    written = f"/{written.lstrip('/')}" if written.startswith("/") else written
    if UNKNOWN in written or WILD in written or "\0" in written:
        return (written,)
    # what `/proc/self/cwd` leads to is another folder for the command than for who looks
    return tuple(dict.fromkeys((written, UNKNOWN if _IN_PROCESS.match(written) else real_path(path))))


def real_path(path: str) -> str:
    """A path with its symbolic links followed; an unknown path if one cannot be followed."""
    try:
        return os.path.realpath(path) if may_look() else os.path.normpath(path)
    except (OSError, ValueError):
        return UNKNOWN  # `/proc/PID/root` of somebody else's process; a name that no file can have


def has_only_certificates(path: str) -> bool:
    """Whether a file holds public certificates and no key."""
    try:
        if not may_look() or not stat.S_ISREG(Path(path).stat().st_mode):
            return False
        with Path(path).open("rb") as file:
            content = file.read(MAX_BUNDLE + 1)
    except (OSError, ValueError):
        return False
    return len(content) <= MAX_BUNDLE and b"-----BEGIN CERTIFICATE-----" in content and b"PRIVATE" not in content


def is_within(path: str, folder: Path) -> bool:
    """Whether a path is a folder or in it, whatever its unknown parts are."""
    known = path.partition(UNKNOWN)[0].partition(WILD)[0] if UNKNOWN not in path else ""
    if not known:
        return False
    root = str(folder).rstrip("/")
    return path == root or (known.startswith(f"{root}/"))


def with_home(word: str) -> str:
    """A word with the home folder in place of `~`."""
    return str(Path.home()) + word[1:] if word == "~" or word.startswith("~/") else word
