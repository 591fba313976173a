"""Wait for a condition, never for a time.

Other files sleep only where time itself is tried, where a cell or a program is to take some, or where a program of a test
cannot import this; `file_rules.py` counts their lines.
"""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")

LOADED_MACHINE_SECONDS = 120
"""What ends at once on an idle machine has ended by then on any; what goes wrong takes far longer."""
LIMIT_SECONDS = 120
"""A wait that nothing is concluded from but that the condition never comes true."""

FILE_CLOCK_NS = 40_000_000
"""The times of files that are written one after the other may be equal; the program allows for half of this."""

WORKS_ON = "import threading; threading.Event().wait()"
"""Code of a cell or a program that never ends by itself."""
AWAITS_ON = "import asyncio; await asyncio.Event().wait()"
"""The same for a cell whose loop goes on."""
THERE = "import asyncio, os\nasync def there(path):\n    while not os.path.exists(path): await asyncio.sleep(0.01)\n"
"""Code of a cell with a function that awaits a file."""


def until_there(path: str | Path, *, indented: int = 0) -> str:
    """Code of a cell or a program that waits for a file. Args: indented: by so many spaces, for a place in other code."""
    code = f"import os, time\nwhile not os.path.exists({str(path)!r}): time.sleep(0.01)"
    return code.replace("\n", "\n" + " " * indented)


def wait_until(condition: Callable[[], T], *, limit_seconds: float = LIMIT_SECONDS) -> T:
    """Wait until the condition is true and return what it returned; fail at the limit."""
    deadline = time.monotonic() + limit_seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {limit_seconds:g} s: {condition}"
        time.sleep(0.01)
    return value


async def eventually(condition: Callable[[], T], *, limit_seconds: float = LIMIT_SECONDS) -> T:
    """The same while the event loop runs on."""

    async def ask() -> T:
        return condition()

    return await eventually_async(ask, limit_seconds=limit_seconds, name=str(condition))


async def eventually_async(
    condition: Callable[[], Awaitable[T]], *, limit_seconds: float = LIMIT_SECONDS, name: str = ""
) -> T:
    """The same for a condition that has to be asked for. Args: name: the condition's, for the error."""
    deadline = time.monotonic() + limit_seconds
    while not (value := await condition()):
        assert time.monotonic() < deadline, f"not within {limit_seconds:g} s: {name or condition}"
        await asyncio.sleep(0.01)
    return value


async def turns(number: int = 1) -> None:
    """Let all other tasks of the loop have so many turns, which takes no time: for what is tried at each step of a loop."""
    for _ in range(number):
        await asyncio.sleep(0)


async def soon(value: T) -> T:
    """Return it after a turn: what has to be awaited and is quick."""
    await turns()
    return value


async def outlast(bound_seconds: float) -> None:
    """Wait for longer than a bound of kernels or servers, whose clocks are real: it must not count meanwhile."""
    await asyncio.sleep(bound_seconds + 1)


async def tick_of_files(folder: Path) -> None:
    """Wait until a file that is written now is told from one that was written before: the clock of files is coarse."""
    mark = folder.parent / f"{folder.name}.mark"
    mark.touch()
    before = mark.stat().st_mtime_ns

    def is_later() -> bool:
        mark.touch()
        return mark.stat().st_mtime_ns > before + FILE_CLOCK_NS

    await eventually(is_later)


def command_of(process: psutil.Process) -> str:
    """The words that a process was started with. Empty: it has ended, as one that was listed may a moment later."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def pending_signals(pid: int) -> set[int]:
    """The signals that the process has not taken yet."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return {number for number in signal.valid_signals() for mask in masks if mask >> (number - 1) & 1}


def is_running(pid: int) -> bool:
    """Whether the process is there and has not ended; a zombie has ended."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
