"""Wait for a condition, never for a time."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

LOADED_MACHINE_SECONDS = 120
"""What ends at once on an idle machine has ended by then on any; what goes wrong takes far longer."""
LIMIT_SECONDS = 120
"""A wait that nothing is concluded from but that the condition never comes true."""


def wait_until(condition: Callable[[], T], *, limit_seconds: float = LIMIT_SECONDS) -> T:
    """Wait until the condition is true and return what it returned; fail at the limit."""
    deadline = time.monotonic() + limit_seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {limit_seconds:g} s: {condition}"
        time.sleep(0.01)
    return value


async def eventually(condition: Callable[[], T], *, limit_seconds: float = LIMIT_SECONDS) -> T:
    """The same while the event loop runs on."""
    deadline = time.monotonic() + limit_seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {limit_seconds:g} s: {condition}"
        await asyncio.sleep(0.01)
    return value


def is_running(pid: int) -> bool:
    """Whether the process is there and has not ended; a zombie has ended."""
    try:
        os.kill(pid, 0)
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except (ProcessLookupError, FileNotFoundError):
        return False
