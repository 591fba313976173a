"""`way_of`: the terminal's way of drawing pictures, by its variables. It gets no query: the answer may land in a shell."""

import fcntl
import struct
import termios
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

Way: TypeAlias = Literal["kitty", "iterm2", "sixel", "blocks", "off"]

BY_PROGRAM: Final[dict[str, Way]] = {"ghostty": "kitty", "iTerm.app": "iterm2", "WezTerm": "iterm2", "mintty": "iterm2"}
"""Ways by the value of `TERM_PROGRAM`."""
BY_TERM: Final[dict[str, Way]] = {"xterm-kitty": "kitty", "xterm-ghostty": "kitty", "foot": "sixel", "mlterm": "sixel"}
"""Ways by the beginning of `TERM`."""
CELL: Final = (10, 20)
"""Width and height of a character in pixels if the terminal does not report them."""


def way_of(setting: Literal["auto"] | Way, environment: Mapping[str, str]) -> Way:
    """The way to draw pictures. Args: setting: `terminal.pictures`."""
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
    """The width and height of a character in pixels. Args: terminal: a descriptor."""
    try:
        answer = fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8))
    except OSError:
        return CELL
    rows, columns, width, height = struct.unpack("HHHH", answer)
    return (width // columns, height // rows) if columns and rows and width >= columns and height >= rows else CELL
