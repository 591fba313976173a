"""`Pictures`: draws picture files into the terminal, if it can."""

import asyncio
import importlib.util
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

from freeact_sub.system.safe_files import read_file
from freeact_sub.terminal.pictures.ways import Way, way_of

MAX_BYTES: Final = 8_000_000
MAX_SHOWN: Final = 4
"""Pictures that are drawn of one cell; of the others only the paths are shown."""
MAX_COLUMNS: Final = 90
MAX_ROWS: Final = 24
LIMIT_SECONDS: Final = 60.0
"""Seconds for the encoder; its CPU time has a bound of its own, which is reached long before."""


class Pictures:
    """Draws pictures in one terminal."""

    def __init__(self, setting: Literal["auto"] | Way, environment: Mapping[str, str] = os.environ) -> None:
        """Args: setting: `terminal.pictures`."""
        self.way = way_of(setting, environment)

    @property
    def missing(self) -> bool:
        """Whether the terminal could draw pictures, if the extra `pictures` were installed."""
        return self.way != "off" and importlib.util.find_spec("textual_image") is None

    async def drawn(self, file: Path, columns: int, rows: int, cell: tuple[int, int]) -> str:
        """Text that draws a picture, from the first column of a row to that of the row below it. Empty: it cannot be drawn.

        Args:
            file: The picture.
            columns: The columns of the terminal.
            rows: The rows of the terminal.
            cell: Width and height of a character in pixels.
        """
        if self.way == "off" or self.missing:
            return ""
        try:
            content = await asyncio.to_thread(read_file, file, MAX_BYTES)
        except OSError:
            return ""
        size = (min(columns - 2, MAX_COLUMNS), min(rows - 4, MAX_ROWS))
        if min(size) < 1:
            return ""
        try:
            return await _encoded(content, [self.way, *map(str, (*size, *cell))])
        except (OSError, TimeoutError):
            return ""


async def _encoded(content: bytes, arguments: list[str]) -> str:
    """The encoder's output; empty if it fails. `-P`: the agent's working directory holds none of our modules."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        f"{__package__}.encoder",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            output, _ = await process.communicate(content)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return output.decode() if process.returncode == 0 else ""
