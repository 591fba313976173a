"""`Pastes`: the line shows a long paste as `[60 lines]`, which is sent whole."""

import re
import shlex
import urllib.parse
from pathlib import Path
from typing import Final

from freeact_sub.terminal.input.mentions import PICTURES, mention_of

MAX_LINES: Final = 10
"""A paste of more lines is folded."""
MAX_PATHS_CHARS: Final = 4_000
_FOLDED: Final = re.compile(r"\[\d+ lines(?: #\d+)?\]")


class Pastes:
    """Keeps the pastes of a conversation."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def folded(self, pasted: str) -> str:
        """Return the text that represents a paste in the line."""
        text = pasted.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1 - text.endswith("\n")
        if lines <= MAX_LINES:
            return mentions_of(text) or text
        name, number = f"[{lines} lines]", 1
        while self._texts.setdefault(name, text) != text:
            number += 1
            name = f"[{lines} lines #{number}]"
        return name

    def unfolded(self, line: str) -> str:
        """The line with its pastes unfolded."""
        return _FOLDED.sub(lambda match: self._texts.get(match[0], match[0]), line)


def mentions_of(text: str) -> str:
    """Return dragged picture files, which terminals paste as paths, as mentions; empty for other text."""
    if len(text) > MAX_PATHS_CHARS or not text.strip():
        return ""
    try:
        words = shlex.split(text)
    except ValueError:
        return ""
    paths = [urllib.parse.unquote(word.removeprefix("file://")) if word.startswith("file://") else word for word in words]
    if not paths or not all(_is_picture(path) for path in paths):
        return ""
    return "".join(f"{mention_of(path)} " for path in paths)


def _is_picture(path: str) -> bool:
    try:
        return Path(path).suffix.lower() in PICTURES and Path(path).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):
        return False
