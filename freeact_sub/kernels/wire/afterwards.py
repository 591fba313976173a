"""Output that belongs to no running cell, the payloads of a cell's reply, and the last messages of a kernel.

Tasks, timers and threads continue after their cell has ended, and their output still has that cell's id. It
is shown in the cell that runs when it arrives, or in the next one, with a note that it belongs to an earlier cell.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from freeact_sub.cells import CellError, CellOutput, ClearOutput, DisplayData, ExecuteResult, StreamText, text_of
from freeact_sub.kernels.wire.output import CellOutputBuffer

MAX_NEEDED_BYTES: Final = 65_536
NEEDED: Final = (b'"status"', b'"freeact_')
"""In the headers of messages that end a cell or ask its host."""
QUIET_SECONDS: Final = 0.3
"""Seconds without a message after which an ended kernel has sent nothing more."""
LAST_SECONDS: Final = 5.0
"""Seconds at most for its last messages."""

HELD_CHARS: Final = 1_000_000
"""The number of characters of output that wait for the next cell."""
BETWEEN: Final = "[output of an earlier cell, which came after its end:]\n"
AMONG: Final = "[an earlier cell's code still runs; its output appears here as well:]\n"
NEXT: Final = "[The cell asks for this code as the next cell. It was not run:]\n"
EXITS: Final = "[The cell called `exit()` or `quit()`, so its kernel ends.]\n"


class EarlierOutput:
    """The output of ended cells."""

    def __init__(self) -> None:
        self._held: deque[CellOutput] = deque()
        self._held_chars = self._left_out_chars = 0
        self._has_cells = False
        """Before the first cell there is only what the start of the kernel has put out; that is in its log."""
        self._noted: CellOutputBuffer | None = None
        """The buffer of the cell whose reader knows that there is such output."""

    def add(self, output: CellOutput, running: CellOutputBuffer | None) -> None:
        """Takes output. Args: running: the buffer of the cell that runs. None: none does."""
        if isinstance(output, ClearOutput):
            return  # what it would clear was handed on
        if isinstance(output, CellError | ExecuteResult):
            output = _not_of_this_cell(output)
        if running is not None:
            if self._noted is not running:
                self._noted = running
                running.add_note(AMONG)
            running.add(output, stays=True)
            return
        if not self._has_cells:
            return
        size = len(output.text if isinstance(output, StreamText) else str(output))
        if self._held_chars + size > HELD_CHARS:
            self._left_out_chars += size
            return
        self._held_chars += size
        self._held.append(output)

    @property
    def text(self) -> str:
        """What waits for the next cell."""
        more = f"\n[{self._left_out_chars:,} more characters were left out]" if self._left_out_chars else ""
        return "".join(map(text_of, self._held)) + more

    def hand_over(self, buffer: CellOutputBuffer) -> None:
        """Adds the waiting output to the next cell."""
        self._has_cells = True
        if not self._held and not self._left_out_chars:
            return
        buffer.add_note(BETWEEN)
        last = "\n"
        while self._held:
            output = self._held.popleft()
            buffer.add(output, stays=True)
            last = text_of(output)[-1:] or last
        if self._left_out_chars:
            buffer.add_note(f"\n[{self._left_out_chars:,} more characters were left out]")
        if last != "\n" or self._left_out_chars:
            buffer.add_note("\n")
        self._held_chars = self._left_out_chars = 0


def _not_of_this_cell(output: CellError | ExecuteResult) -> CellOutput:
    """Turns errors and values into text, so that they do not pass for those of another cell."""
    if isinstance(output, CellError):
        return StreamText(name="stderr", text=text_of(output))
    return DisplayData(data=output.data, metadata=output.metadata)


def outputs_of(payloads: Sequence[dict[str, Any]]) -> list[CellOutput]:
    """Return the text of a reply's payloads: pages of help, code for the next cell, and requests that are not supported."""
    return [output for payload in payloads if (output := _shown(payload)) is not None]


def _shown(payload: dict[str, Any]) -> CellOutput | None:
    match payload:
        case {"source": "page", "data": dict(data)}:
            return DisplayData(data=data)
        case {"source": "set_next_input", "text": str(text)}:
            return StreamText(name="stdout", text=f"{NEXT}{text}\n")
        case {"source": "edit_magic", "filename": str(name)}:
            return StreamText(name="stderr", text=f"[The cell asks for an editor, and there is none. The file is {name}.]\n")
        case {"source": "ask_exit", "keepkernel": True}:
            return None
        case {"source": "ask_exit"}:
            return StreamText(name="stderr", text=EXITS)
        case {"source": str(source)}:
            return StreamText(name="stderr", text=f"[The cell asks for `{source}`, which is not available here.]\n")
    return None


def ends_kernel(payloads: Sequence[dict[str, Any]]) -> bool:
    """Whether the cell has ended its kernel, which stops a moment after the reply."""
    return any(payload.get("source") == "ask_exit" and not payload.get("keepkernel") for payload in payloads)


async def last_messages(count: Callable[[], int]) -> None:
    """Waits until nothing has come for a moment: what a kernel sent before it ended may still be on its way.

    No event tells that: the end of a process is heard before its last messages when this program was busy.

    Args:
        count: The number of the kernel's messages so far.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_SECONDS):
            before = -1
            while before != count():
                before = count()
                await asyncio.sleep(QUIET_SECONDS)


def is_needed(parts: Sequence[bytes]) -> bool:
    """Whether a message ends a cell or asks its host."""
    return sum(map(len, parts)) <= MAX_NEEDED_BYTES and any(kind in parts[0] for kind in NEEDED)
