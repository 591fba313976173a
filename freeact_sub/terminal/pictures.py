"""`Pictures`: draws picture files into the terminal, if it can.

A program of its own (`picture_encoder.py`) makes the text that draws one: a picture comes from an agent's code, and a
harmful one then reaches that program, not the host.
"""

import asyncio
import fcntl
import importlib.util
import os
import struct
import sys
import termios
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias

from freeact_sub.system.safe_files import read_file

MAX_BYTES: Final = 8_000_000
MAX_SHOWN: Final = 4
"""Most pictures to draw of one cell; of the others only the paths are shown."""
MAX_COLUMNS: Final = 90
MAX_ROWS: Final = 24
LIMIT_SECONDS: Final = 60.0
"""Seconds for the encoder; its CPU time has a bound of its own, which is reached long before."""
Way: TypeAlias = Literal["kitty", "iterm2", "sixel", "blocks", "off"]
BY_PROGRAM: Final[dict[str, Way]] = {"ghostty": "kitty", "iTerm.app": "iterm2", "WezTerm": "iterm2", "mintty": "iterm2"}
"""Ways by the value of `TERM_PROGRAM`."""
BY_TERM: Final[dict[str, Way]] = {"xterm-kitty": "kitty", "xterm-ghostty": "kitty", "foot": "sixel", "mlterm": "sixel"}
"""Ways by the beginning of `TERM`."""
CELL: Final = (10, 20)
"""Width and height of a character in pixels if the terminal does not report them."""


class Pictures:
    """Pictures in one terminal."""

    def __init__(self, setting: Literal["auto"] | Way) -> None:
        """Args: setting: `terminal.pictures`."""
        self.way = way_of(setting, os.environ)

    @property
    def missing(self) -> bool:
        """Whether the terminal could draw pictures, if the extra `pictures` were installed."""
        return self.way != "off" and importlib.util.find_spec("textual_image") is None

    async def drawn(self, file: Path, columns: int, rows: int, cell: tuple[int, int]) -> str:
        """Return text that draws a picture and ends in the first column of the row below. Empty: it cannot be drawn.

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
    """Return the encoder's output; empty if it fails. `-P`: the agent's working directory holds none of our modules."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        f"{__package__}.picture_encoder",
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


def way_of(setting: Literal["auto"] | Way, environment: Mapping[str, str]) -> Way:
    """Return the way to draw pictures.

    The terminal is not queried: its answer may land in a shell.

    Args:
        setting: `terminal.pictures`.
        environment: The variables by which a terminal is known.
    """
    if setting != "auto":
        return setting
    if environment.keys() & {"TMUX", "STY"}:  # they keep what they do not know for themselves
        return "off"
    if environment.get("LC_TERMINAL") == "iTerm2":  # ssh takes it along
        return "iterm2"
    if way := BY_PROGRAM.get(environment.get("TERM_PROGRAM", "")):
        return way
    if "KONSOLE_VERSION" in environment:
        return "sixel"
    term = environment.get("TERM", "")
    return next((way for name, way in BY_TERM.items() if term.startswith(name)), "off")


def cell_size(terminal: int) -> tuple[int, int]:
    """Return the width and height of a character in pixels. Args: terminal: a descriptor."""
    try:
        answer = fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8))
    except OSError:
        return CELL
    rows, columns, width, height = struct.unpack("HHHH", answer)
    return (width // columns, height // rows) if columns and rows and width >= columns and height >= rows else CELL
