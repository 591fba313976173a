"""`short_traceback`: what the model reads of an error: where it failed, how it got there, and what it was.

IPython shows a window of source for each frame, which for one wrong argument to a library is a page. Kept are, of each
frame, its place and the line that failed; of many frames the first (in the cell) and the last ones.
"""

import re
from typing import Final

from freeact_sub.cells import CellError

FRAMES: Final = 3
"""Frames that are kept besides the first."""
MESSAGE_CHARS: Final = 2000
"""Some libraries put whole documents into the message of an exception."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_PLACE = re.compile(r"(?P<place>(?:Cell In\[\d+\], line \d+|File .+?:\d+)(?:, in [^\n(]+)?)[^\n]*\n")
_FAILED = re.compile(r"^-+> .*$", re.MULTILINE)
_HEADING = re.compile(r"-{5,}|[^\n]*Traceback \(most recent call last\)")


def without_colours(text: str) -> str:
    """Text without ANSI colour codes."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def short_traceback(error: CellError) -> str:
    """The error in a few lines, ending with a line break; an error without a traceback is its name and its message."""
    if not error.traceback:
        return f"{error.ename}: {_shortened(error.evalue)}\n"
    lines: list[str] = []
    frames: list[str] = []
    for entry in map(without_colours, error.traceback):
        frame = _PLACE.match(entry)
        if frame is not None:
            failed = _FAILED.search(entry)
            frames.append(f"{frame['place']}\n{failed[0]}" if failed else frame["place"])
        elif not _HEADING.fullmatch(entry):
            lines += [*_last_of(frames), _shortened(entry.strip("\n"))]
            frames = []
    return "\n".join([*lines, *_last_of(frames)]) + "\n"


def _last_of(frames: list[str]) -> list[str]:
    left_out = len(frames) - FRAMES - 1
    if left_out <= 0:
        return frames
    return [frames[0], f"[… {left_out:,} frames …]", *frames[-FRAMES:]]


def _shortened(text: str) -> str:
    left_out = len(text) - MESSAGE_CHARS
    if left_out <= 0:
        return text
    half = MESSAGE_CHARS // 2
    return f"{text[:half]}[… {left_out:,} characters …]{text[-half:]}"
