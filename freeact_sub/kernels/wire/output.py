r"""`CellOutputBuffer`, between a kernel and a slow reader; a cell's text as a screen shows it; and the clock of a cell.

The task that drains a kernel's iopub must never wait: Jupyter's iopub loses messages when it is not read. So output goes
into this buffer, which is bounded: the surplus is counted and left out of the stream of chunks. Nothing is lost for good:
the text as the model reads it (head and tail) is kept apart, and all of it goes to the cell's file.

`ScreenText` is that text: as a screen shows it at the end. A progress bar writes each of its states over the one before,
with `\r`, backspaces or movements of the cursor; a display can be replaced, and a cell can clear its output. A later reader
needs the last state only. As on a screen, only the last lines can be changed: older ones stay as they are.
"""

import asyncio
import contextvars
import logging
import math
import re
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final, Literal, Self

from freeact_sub.cells import (
    CellError,
    CellOutput,
    ClearOutput,
    DisplayData,
    ExecuteReply,
    ExecuteResult,
    MimeBundle,
    StreamText,
    size_of,
    text_of,
)
from freeact_sub.spans import Stopwatch
from freeact_sub.system.safe_files import beneath
from freeact_sub.text import CursorText, shortened

OPEN_LINES: Final = 100
"""Lines at the end that can still be changed."""
OPEN_CHARS: Final = 16_384
"""Characters above which a line cannot be changed any more."""
_MOVES: Final = re.compile("[\r\b\x1b]")
FRAMES: Final = 3
"""Frames that are kept besides the first."""
MESSAGE_CHARS: Final = 2000
"""Characters of an exception's message: some libraries put whole documents into it."""

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
        """Returns head, tail and number of the characters between them, with more text at the end, which is not added."""
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
        """Clears the screen."""
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
        self._uncounted += len(text)
        first, *rest = text.split("\n")
        self._lines[-1] += first
        self._lines += rest
        self._row, self._column = len(self._lines) - 1, len(self._lines[-1])
        self._settle()

    def _line(self, text: str) -> str:
        return text

    def _settle(self) -> None:
        """Settles lines that are too far above, or too long, to be changed."""
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
        """Returns whether the open lines are too large; counts only after so much more text that they may be."""
        if self._uncounted < OPEN_CHARS:
            return False
        self._uncounted = 0
        return sum(map(len, self._lines)) > 4 * OPEN_CHARS


def without_colours(text: str) -> str:
    """Returns text without ANSI colour codes."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def short_traceback(error: CellError) -> str:
    """Returns the model's text of an error: where it failed, how it got there, and what it was, ending with a line break.

    IPython shows a window of source for each frame, which for one wrong argument to a library is a page. Kept are, of each
    frame, its place and the line that failed; of many frames the first (in the cell) and the last ones. An error without a
    traceback is its name and its message.
    """
    if not error.traceback:
        return f"{error.ename}: {shortened(error.evalue, MESSAGE_CHARS)}\n"
    lines: list[str] = []
    frames: list[str] = []
    for entry in map(without_colours, error.traceback):
        frame = _PLACE.match(entry)
        if frame is not None:
            failed = _FAILED.search(entry)
            frames.append(f"{frame['place']}\n{failed[0]}" if failed else frame["place"])
        elif not _HEADING.fullmatch(entry):
            lines += [*_last_of(frames), shortened(entry.strip("\n"), MESSAGE_CHARS)]
            frames = []
    return "\n".join([*lines, *_last_of(frames)]) + "\n"


def _last_of(frames: list[str]) -> list[str]:
    left_out = len(frames) - FRAMES - 1
    if left_out <= 0:
        return frames
    return [frames[0], f"[… {left_out:,} frames …]", *frames[-FRAMES:]]


BUFFER_CHARS: Final = 4_000_000
"""Characters of output that may wait for the reader."""
CHUNK_CHARS: Final = 65_536
"""Characters above which text is handed on in pieces: an event must stay small, or a bounded number of them is no bound."""
DISPLAYS_CHARS: Final = 20_000_000
"""Characters of rich output (pictures are base64) that one cell may show; past it a note stands for each."""
MANY_WAITING: Final = 1_000
"""The number of waiting outputs from which on cleared ones are dropped."""
STAYING_CHARS: Final = 100_000
"""Characters that stay when the cell clears its output."""
MERGED_CHARS: Final = 16_384
"""Characters up to which small pieces of waiting text are joined: one chunk a print would cost an event each."""

WHOLE_TIMES: Final = 10
"""The multiple of its time limit that a cell may take with all its waiting."""
MIN_LOOK_SECONDS: Final = 0.05

logger = logging.getLogger(__name__)


class CellOutputBuffer:
    """A buffer that takes a cell's output from the kernel's reader, hands it to the agent, and keeps the model's text."""

    def __init__(
        self,
        *,
        model_chars: int = 10_000,
        file: Path | None = None,
        root: Path | None = None,
    ) -> None:
        """Makes the buffer of one cell.

        Args:
            model_chars: Bound of `text`.
            file: A new file that gets all of the text once it is longer.
            root: The folder from which the file is reached without following a link. None: the one it stands in.
        """
        self._model_chars = model_chars
        self._screen = ScreenText(model_chars)
        self._is_to_clear = False
        """Whether the next output replaces all earlier output."""
        self._staying: list[StreamText | DisplayData] = []
        """Output that the cell cannot clear, because it has not put it out."""
        self._staying_chars = 0
        self._unwritten: list[str] = []
        """All of the text, while it is short."""
        self._file_path = file
        self._root = root
        self._file: IO[str] | None = None
        self._waiting: deque[tuple[CellOutput, int]] = deque()
        """Waiting outputs, with their sizes in characters."""
        self._waiting_chars = 0
        self._changed = asyncio.Event()
        self._reply: ExecuteReply | None = None
        self._displays: dict[str, tuple[MimeBundle, int]] = {}
        """Displays by id or number, with their sizes in characters."""
        self.total_chars = 0
        """Length of the cell's text so far."""
        self.left_out_chars = 0
        """Characters that were not handed on because the reader was behind."""

    def add(self, output: CellOutput, *, stays: bool = False) -> None:
        """Adds output; never waits. Args: stays: the cell has not put it out, and cannot clear it."""
        if self._reply is not None:
            return
        if isinstance(output, ClearOutput):
            self._waiting.append((output, 0))
            self._changed.set()
            self._is_to_clear = True
            if not output.wait:
                self._clear()
            return
        self._clear()
        text = text_of(output)
        self._keep(short_traceback(output) if isinstance(output, CellError) else without_colours(text))
        size = size_of(output)
        if isinstance(output, DisplayData | ExecuteResult) and not self._keep_display(output):
            output, size = _too_large(output), 0
        if stays and isinstance(output, StreamText | DisplayData) and self._staying_chars + size <= STAYING_CHARS:
            self._staying.append(output)
            self._staying_chars += size
        self._draw(output, stays=stays)
        self._hand_on(output, size)

    def add_note(self, text: str) -> None:
        """Adds lines about output that the reader misses."""
        self.add(StreamText(name="stderr", text=text), stays=True)

    def end(self, reply: ExecuteReply) -> None:
        """Ends the output; the first end counts."""
        if self._reply is None:
            self._reply = reply
            self._changed.set()
            if self._file is not None:
                try:
                    self._file.close()
                except OSError as error:
                    self._give_up_file(error)

    @property
    def ended(self) -> ExecuteReply | None:
        """The reply with which the cell has ended, if it has."""
        return self._reply

    async def get(self) -> CellOutput | ExecuteReply:
        """Returns the next output in order, and at the end the reply, again and again."""
        while not self._waiting:
            if self._reply is not None:
                return self._reply
            self._changed.clear()
            await self._changed.wait()
        output, size = self._waiting.popleft()
        self._waiting_chars -= size
        return output

    @property
    def text(self) -> str:
        """The text for the model, as a screen shows it at the end: all of a short output, head and tail of a long one."""
        head, tail, left_out = self._screen.parts
        if left_out <= 0:
            return head + tail
        where = f"; all of it is in {self._file_path}" if self._file_path else ""
        return f"{head}\n[… {left_out:,} of {self._screen.total_chars:,} characters left out{where} …]\n{tail}"

    @property
    def displays(self) -> tuple[MimeBundle, ...]:
        """Rich output in order, updates applied."""
        return tuple(data for data, _ in self._displays.values())

    @property
    def file(self) -> Path | None:
        """The file with all of the text, if it was too long for `text`."""
        return self._file_path if self._file is not None else None

    def _clear(self) -> None:
        """Clears now, if the cell has asked for it."""
        if not self._is_to_clear:
            return
        self._is_to_clear = False
        self._screen.clear()
        self._displays.clear()
        if len(self._waiting) > MANY_WAITING:
            self._waiting.clear()
            self._waiting_chars = 0
            self._waiting.append((ClearOutput(), 0))
        for output in self._staying:
            if isinstance(output, DisplayData):
                self._keep_display(output)
            self._draw(output, stays=True)
            self._hand_on(output, size_of(output))

    def _draw(self, output: StreamText | DisplayData | ExecuteResult | CellError, *, stays: bool = False) -> None:
        """Draws an output on the screen that the model reads."""
        if isinstance(output, StreamText):
            if stays:  # the cursor is the cell's
                self._screen.to_end()
            self._screen.write(output.text)
            return
        plain = short_traceback(output) if isinstance(output, CellError) else without_colours(text_of(output))
        display_id = output.display_id if isinstance(output, DisplayData) else None
        replaces = isinstance(output, DisplayData) and output.update and display_id is not None
        if not (replaces and display_id and self._screen.replace(plain, display_id)):
            self._screen.show(plain, display_id)

    def _keep(self, plain: str) -> None:
        """Keeps the text of an output for the cell's file, which gets all of it, also what the screen drops."""
        self.total_chars += len(plain)
        if self._file_path is not None:
            self._write(plain)

    def _write(self, text: str) -> None:
        try:
            if self._file is not None:
                self._file.write(text)
                return
            self._unwritten.append(text)
            if self.total_chars > self._model_chars and self._file_path is not None:
                opener = beneath(self._root or self._file_path.parent)
                self._file = open(self._file_path, "x", encoding="utf-8", errors="replace", opener=opener)  # noqa: SIM115  # closed at the cell's end
                self._file.write("".join(self._unwritten))
                self._unwritten.clear()
        except OSError as error:
            # a full disk must not end the task that drains the kernel
            self._give_up_file(error)

    def _give_up_file(self, error: OSError) -> None:
        logger.error("the output of a cell cannot be written to %s: %s", self._file_path, error)
        file, self._file, self._file_path = self._file, None, None
        self._unwritten.clear()
        if file is not None:
            with suppress(OSError):
                file.close()

    def _keep_display(self, output: DisplayData | ExecuteResult) -> bool:
        """Remembers rich output. Returns False if there is no room for it."""
        size = size_of(output) - len(text_of(output))
        if not size:
            return True
        display_id = output.display_id if isinstance(output, DisplayData) else None
        name = display_id or f"#{len(self._displays)}"
        _, before = self._displays.get(name, ({}, 0))
        if sum(kept for _, kept in self._displays.values()) - before + size > DISPLAYS_CHARS:
            return False
        self._displays[name] = output.data, size
        return True

    def _hand_on(self, output: StreamText | DisplayData | ExecuteResult | CellError, size: int) -> None:
        room = max(0, BUFFER_CHARS - self._waiting_chars)
        if isinstance(output, StreamText):
            self._hand_on_text(output.name, output.text[:room])
            self.left_out_chars += max(0, size - room)
        elif size <= room or not self._waiting:
            self._waiting.append((output, size))
            self._waiting_chars += size
        else:
            self.left_out_chars += size
        self._changed.set()

    def _hand_on_text(self, name: Literal["stdout", "stderr"], text: str) -> None:
        last, size = self._waiting[-1] if self._waiting else (None, 0)
        self._waiting_chars += len(text)
        if isinstance(last, StreamText) and last.name == name and size + len(text) <= MERGED_CHARS:
            self._waiting[-1] = StreamText(name=name, text=last.text + text), size + len(text)
            return
        for start in range(0, len(text), CHUNK_CHARS):
            piece = text[start : start + CHUNK_CHARS]
            self._waiting.append((StreamText(name=name, text=piece), len(piece)))


def _too_large(output: DisplayData | ExecuteResult) -> DisplayData:
    kinds = ", ".join(kind for kind in output.data if kind != "text/plain") or "text/plain"
    note = {"text/plain": f"[{kinds}, {size_of(output):,} characters: more than a cell may show]"}
    return replace(output, data=note) if isinstance(output, DisplayData) else DisplayData(data=note)


class CellRun:
    """A cell that runs: yields its output as it comes. See `Kernel.execute`."""

    def __init__(self, buffer: CellOutputBuffer) -> None:
        self._buffer = buffer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> CellOutput:
        output = await self._buffer.get()
        if isinstance(output, ExecuteReply):
            raise StopAsyncIteration
        return output

    async def reply(self) -> ExecuteReply:
        """Waits for the cell's end, skips output that was not read, and returns the reply."""
        while not isinstance(output := await self._buffer.get(), ExecuteReply):
            pass
        return output


class CellClock:
    """A clock of a cell's working time; it stands still while a person is asked and while the cell waits for agents.

    A second bound, ten times the first, is on all the time that a cell takes, and stands still only while a person is asked:
    a loop that asks models or starts children does not work, and must end as well.
    """

    def __init__(
        self,
        limit_seconds: float | None,
        *,
        tool_call_id: str | None = None,
        stood_still: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Makes the clock of one cell.

        Args:
            limit_seconds: The limit on the working time.
            tool_call_id: The call that the cell belongs to.
            stood_still: Returns the seconds for which people have been asked so far, in the run that the cell belongs to.
        """
        self.tool_call_id = tool_call_id
        self.context = contextvars.copy_context()
        """The context of the cell, such as its span, in which the host handles its code's requests."""
        self._limit = limit_seconds
        self._stood_still = stood_still
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._watch = Stopwatch(self._arm, now=self._loop.time)
        self._stood_still_before = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._whole_timer: asyncio.TimerHandle | None = None
        self._callback: asyncio.Event | None = None
        self.expired = False
        self.waited_too_long = False
        """Whether the clock has run out because the cell has waited too long."""
        self.at_limit: asyncio.Event | None = None
        """An event to set at the limit, for somebody who then calls `go_on`. None: the clock runs out."""

    @property
    def limit(self) -> float | None:
        """The limit on the working time."""
        return self._limit

    @property
    def whole_limit(self) -> float | None:
        """Seconds that the cell may take with all that it waits for, people left out."""
        return None if self._limit is None else self._limit * WHOLE_TIMES

    def start(self, expired: asyncio.Event) -> None:
        """Starts the clock, which sets the event when the limit is reached."""
        self._callback = expired
        self._began = self._loop.time()
        self._watch = Stopwatch(self._arm, now=self._loop.time)
        self._stood_still_before = self._stood_still()
        self._arm()
        if self._limit is not None:
            self._whole_timer = self._loop.call_later(self._limit * WHOLE_TIMES, self._look_at_whole)

    def go_on(self, seconds: float) -> None:
        """Raises the limit that is reached. Args: seconds: added to it. 0: the clock runs out; infinite: there is none."""
        if not seconds or self._limit is None:
            self.at_limit = None
            self._run_out()
            return
        self._limit = None if seconds == math.inf else self._limit + seconds / (WHOLE_TIMES if self.waited_too_long else 1)
        self.waited_too_long = False
        if self.at_limit is not None:
            self.at_limit.clear()
        self._arm()
        self._look_at_whole()

    def stop(self) -> None:
        """Stops the clock."""
        self._callback = None
        self._arm()
        if self._whole_timer is not None:
            self._whole_timer.cancel()

    def paused(self) -> AbstractContextManager[None]:
        """Pauses the clock inside the context; pauses may overlap."""
        return self._watch.paused()

    def _arm(self) -> None:
        """Sets the timer anew, where the clock runs."""
        if self._timer is not None:
            self._timer.cancel()
        if self._limit is not None and self._callback is not None and not self._watch.is_paused and not self.expired:
            self._timer = self._loop.call_later(max(0.0, self._limit - self._watch.seconds), self._run_out)

    def _look_at_whole(self) -> None:
        if self._whole_timer is not None:
            self._whole_timer.cancel()
        if self.whole_limit is None or self._callback is None:
            return
        asked = self._stood_still() - self._stood_still_before
        left = self.whole_limit - (self._loop.time() - self._began - asked)
        if left > 0:  # people were asked, or are at this moment
            self._whole_timer = self._loop.call_later(max(left, MIN_LOOK_SECONDS), self._look_at_whole)
        elif not self.expired:
            self.waited_too_long = True
            self._run_out()

    def _run_out(self) -> None:
        if self.at_limit is not None:
            self.at_limit.set()
            return
        self.expired = True
        if self._callback is not None:
            self._callback.set()
