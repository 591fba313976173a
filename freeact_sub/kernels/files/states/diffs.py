"""What has changed of a file between two states, as people read it: a unified diff, or numbers of lines."""

import difflib
from dataclasses import dataclass
from typing import Final

from freeact_sub.text import lines_to_compare, whole_line

MAX_FILE_BYTES: Final = 200_000
MAX_FILE_LINES: Final = 5_000
"""`difflib` takes time with the square of the lines."""


@dataclass(frozen=True, kw_only=True)
class ChangedFile:
    """A file in both states."""

    path: str
    before: bytes | None
    """None: there was none."""
    after: bytes | None
    """None: there is none."""
    is_large: bool = False
    """It was not read."""


def unified(file: ChangedFile) -> str:
    """Return the diff of one file; a sentence where it is not text, or too large."""
    old = "/dev/null" if file.before is None else whole_line(f"a/{file.path}")
    new = "/dev/null" if file.after is None else whole_line(f"b/{file.path}")
    before, after = file.before or b"", file.after or b""
    head = f"--- {old}\n+++ {new}\n"
    old_lines, new_lines = _lines(before, after)
    if file.is_large or max(len(old_lines), len(new_lines)) > MAX_FILE_LINES:
        return f"{head}(too large to be compared here)\n"
    if b"\0" in before + after:
        return f"{head}(no text: {len(before):,} bytes before, {len(after):,} now)\n"
    lines = difflib.unified_diff(old_lines, new_lines, old, new, lineterm="")
    return "".join(f"{whole_line(line)}\n" for line in lines) or f"{head}(empty, or only the mode has changed)\n"


def line_counts(file: ChangedFile) -> tuple[int, int] | None:
    """Return the numbers of added and removed lines. None: the file is not text, or is too large."""
    before, after = file.before or b"", file.after or b""
    old_lines, new_lines = _lines(before, after)
    if file.is_large or b"\0" in before + after or max(len(old_lines), len(new_lines)) > MAX_FILE_LINES:
        return None
    parts = difflib.SequenceMatcher(None, old_lines, new_lines).get_opcodes()
    changed = [(new_end - new, old_end - old) for kind, old, old_end, new, new_end in parts if kind != "equal"]
    return sum(came for came, _ in changed), sum(went for _, went in changed)


def _lines(before: bytes, after: bytes) -> tuple[list[str], list[str]]:
    return lines_to_compare(before.decode(errors="replace"), after.decode(errors="replace"))
