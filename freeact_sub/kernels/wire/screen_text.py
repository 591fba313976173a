r"""`ScreenText`: a cell's text as a screen shows it at the end, as head and tail.

A progress bar writes each of its states over the one before, with `\r`, backspaces or movements of the cursor; a display can
be replaced, and a cell can clear what it has put out. Who reads the cell afterwards needs the last state only. As on a
screen, only the last lines can be changed: older ones stay as they are.
"""

import re
from collections import deque
from dataclasses import dataclass
from typing import Final

from freeact_sub.cells import CellError
from freeact_sub.text import CursorText

OPEN_LINES: Final = 100
"""Lines at the end that can still be changed."""
OPEN_CHARS: Final = 16_384
"""A line that is longer cannot be changed any more."""
_MOVES: Final = re.compile("[\r\b\x1b]")
FRAMES: Final = 3
"""Frames that are kept besides the first."""
MESSAGE_CHARS: Final = 2000
"""Some libraries put whole documents into the message of an exception."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_PLACE = re.compile(r"(?P<place>(?:Cell In\[\d+\], line \d+|File .+?:\d+)(?:, in [^\n(]+)?)[^\n]*\n")
_FAILED = re.compile(r"^-+> .*$", re.MULTILINE)
_HEADING = re.compile(r"-{5,}|[^\n]*Traceback \(most recent call last\)")


class HeadAndTail:
    """A text of which only head and tail are kept."""

    def __init__(self, head_chars: int, tail_chars: int) -> None:
        self.head_chars, self.tail_chars = head_chars, tail_chars
        self.head: list[str] = []
        self.tail: deque[str] = deque()
        self.tail_size = self.total_chars = 0

    def add(self, text: str) -> None:
        """Adds text at the end."""
        room = self.head_chars - self.total_chars
        self.total_chars += len(text)
        if room > 0:
            self.head.append(text[:room])
            text = text[room:]
        if text:
            self.tail.append(text[-self.tail_chars :])
            self.tail_size += len(self.tail[-1])
            while self.tail_size - len(self.tail[0]) >= self.tail_chars:
                self.tail_size -= len(self.tail.popleft())

    def ending_with(self, text: str) -> tuple[str, str, int]:
        """Head, tail and number of the characters between them, with more text at the end, which is not added."""
        whole = HeadAndTail(self.head_chars, self.tail_chars)
        whole.head, whole.tail = [*self.head], deque(self.tail)
        whole.tail_size, whole.total_chars = self.tail_size, self.total_chars
        whole.add(text)
        head, tail = "".join(whole.head), "".join(whole.tail)[-self.tail_chars :]
        return head, tail, whole.total_chars - len(head) - len(tail)


@dataclass
class _Place:
    """The lines of a display that may be replaced."""

    start: int
    count: int


class ScreenText(CursorText[str]):
    """A screen without an edge at its right and its top."""

    def __init__(self, chars: int) -> None:
        """Args: chars: the bound of its text."""
        self._head_chars = chars * 2 // 3
        self._tail_chars = chars - self._head_chars
        super().__init__(" ", OPEN_CHARS)
        self.clear()

    def clear(self) -> None:
        """Nothing is shown any more."""
        self._settled = HeadAndTail(self._head_chars, self._tail_chars)
        self._restart()
        self._places: dict[str, list[_Place]] = {}
        self._uncounted = 0
        """Characters that have come since those of the open lines were counted."""

    @property
    def parts(self) -> tuple[str, str, int]:
        """Head, tail, and the number of characters left out between them."""
        return self._settled.ending_with("\n".join(self._lines))

    @property
    def total_chars(self) -> int:
        """The length of all that is shown, the left out characters included."""
        return self._settled.total_chars + sum(map(len, self._lines)) + len(self._lines) - 1

    def write(self, text: str) -> None:
        """Writes as a program does, at the cursor."""
        text = text.replace("\r\n", "\n")
        if not self._unfinished and not _MOVES.search(text) and self._is_at_end():
            self._append(text)
            return
        self._uncounted += len(text)
        self._write(text)
        self._settle()

    def to_end(self) -> None:
        """Moves the cursor to the end."""
        self._row, self._column = len(self._lines) - 1, len(self._lines[-1])

    def show(self, text: str, display_id: str | None = None) -> None:
        """Adds lines at the end, as they are. Args: display_id: by which they may be replaced later."""
        self.to_end()
        start, had_text = self._row, bool(self._lines[-1])
        if display_id is not None and not had_text:
            self._places.setdefault(display_id, []).append(_Place(start, text.count("\n")))
        self._append(text)

    def replace(self, text: str, display_id: str) -> bool:
        """Replaces the lines of a display. Returns False if they cannot be changed any more."""
        places = self._places.get(display_id, ())
        lines = text.split("\n")[:-1]
        for place in places:
            added = len(lines) - place.count
            self._lines[place.start : place.start + place.count] = lines
            for other in (other for found in self._places.values() for other in found):
                other.start += added if other.start > place.start else 0
            self._row += added if self._row > place.start else 0
            place.count = len(lines)
        self._settle()
        return bool(places)

    def _is_at_end(self) -> bool:
        return self._row == len(self._lines) - 1 and self._column == len(self._lines[-1])

    def _append(self, text: str) -> None:
        """Adds at the end, where the cursor is."""
        self._uncounted += len(text)
        first, *rest = text.split("\n")
        self._lines[-1] += first
        self._lines += rest
        self._row, self._column = len(self._lines) - 1, len(self._lines[-1])
        self._settle()

    def _line(self, text: str) -> str:
        return text

    def _settle(self) -> None:
        """Gives up changing what is too far above, or too long."""
        count = len(self._lines) - OPEN_LINES if len(self._lines) > 2 * OPEN_LINES else 0
        if count:
            self._settled.add("\n".join(self._lines[:count]) + "\n")
            del self._lines[:count]
            self._row = max(0, self._row - count)
            for name, places in [*self._places.items()]:
                kept = [_Place(place.start - count, place.count) for place in places if place.start >= count]
                self._places[name] = kept
                if not kept:
                    del self._places[name]
        if len(self._lines[-1]) > OPEN_CHARS or self._is_large():
            self._settled.add("\n".join(self._lines))
            self._lines, self._row, self._column = [""], 0, 0
            self._places.clear()

    def _is_large(self) -> bool:
        """Counts only after so much more text that it may be."""
        if self._uncounted < OPEN_CHARS:
            return False
        self._uncounted = 0
        return sum(map(len, self._lines)) > 4 * OPEN_CHARS


def without_colours(text: str) -> str:
    """Text without ANSI colour codes."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def short_traceback(error: CellError) -> str:
    """What the model reads of an error: where it failed, how it got there, and what it was, ending with a line break.

    IPython shows a window of source for each frame, which for one wrong argument to a library is a page. Kept are, of each
    frame, its place and the line that failed; of many frames the first (in the cell) and the last ones. An error without a
    traceback is its name and its message.
    """
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
