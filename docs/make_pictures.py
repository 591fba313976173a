"""Makes the picture of the README: `make demo` in a real terminal, at the moment when it asks about an MCP call.

    python docs/make_pictures.py [--out docs]

What stands on the terminal's screen is taken as it is, and drawn by rich. It needs the development packages.
"""

import argparse
import copy
import io
import itertools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pexpect
import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

ROOT: Final = Path(__file__).resolve().parents[1]
COLUMNS, ROWS = 106, 44
PROJECT: Final = "/home/me/project"
"""The folder that the picture shows in place of the temporary one; with `TMPDIR` unset both have the same length."""
LIMIT_SECONDS: Final = 240
KEY_SECONDS: Final = 0.6
"""A question takes keys once it has stood for a moment."""
RICH_NAMES: Final = {"brown": "yellow", "bfightmagenta": "bright_magenta", "brightbrown": "bright_yellow"}
"""pyte's names of colours where they differ."""


def main() -> None:
    """Run the demo up to its MCP call and save what the terminal shows."""
    parser = argparse.ArgumentParser(description="Make the picture of the README.")
    parser.add_argument("--out", metavar="DIR", type=Path, default=ROOT / "docs", help="where it goes (default: docs)")
    out: Path = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        examples = shutil.copytree(ROOT / "examples", Path(folder) / "examples")
        screen = session(examples / "demo/demo.py", Path(folder))
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    for row in range(ROWS):
        console.print(line_of(screen, row, folder), no_wrap=True, overflow="crop")
    (out / "session.svg").write_text(console.export_svg(title="make demo", unique_id="session"), encoding="utf-8")


def session(demo: Path, folder: Path) -> pyte.Screen:
    """The screen when the demo asks about a call that a cell makes."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": ""}
    child = pexpect.spawn(
        sys.executable, [str(demo), "--mode", "ask"], cwd=folder, env=environment, dimensions=(ROWS, COLUMNS)
    )

    def wait(condition: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not condition("\n".join(screen.display)):
            if time.monotonic() > deadline:
                raise SystemExit("the demo does not come to the moment of the picture:\n" + "\n".join(screen.display))
            try:
                stream.feed(child.read_nonblocking(65536, timeout=0.2))
            except pexpect.TIMEOUT:
                continue

    try:
        for question, answer in (
            ("asks to run this cell", "a"),
            ("asks to start a child", "a"),
            ("asks to call convert", "y"),
        ):
            wait(lambda shown, question=question: "Approval 1 of" in shown and question in shown)  # type: ignore[misc]  # a default
            time.sleep(KEY_SECONDS)
            child.send(answer)
        wait(lambda shown: "Approval 1 of 2" in shown and "asks to call conversion" in shown and "y yes" in shown)
        picture = copy.deepcopy(screen)
        child.send("\x03")
        child.expect(pexpect.EOF, timeout=LIMIT_SECONDS)
    finally:
        child.close(force=True)
    return picture


def line_of(screen: pyte.Screen, row: int, folder: str) -> Text:
    """A row of the screen with its colours. Args: folder: where the demo ran; `PROJECT` is drawn instead."""
    line = Text()
    chars = [screen.buffer[row][column] for column in range(COLUMNS)]
    at = "".join(char.data or " " for char in chars).find(folder)
    if at >= 0:
        chars[at : at + len(folder)] = [chars[at]._replace(data=letter) for letter in PROJECT]
    for style, run in itertools.groupby(chars, key=style_of):
        line.append("".join(char.data for char in run), style)
    line.rstrip()
    return line


def style_of(char: pyte.screens.Char) -> Style:
    """How a character is drawn."""
    return Style(color=colour(char.fg), bgcolor=colour(char.bg), bold=char.bold, italic=char.italics, reverse=char.reverse)


def colour(name: str) -> str | None:
    """A colour as rich names it; None for the terminal's own."""
    if name == "default":
        return None
    if len(name) == 6 and all(digit in "0123456789abcdef" for digit in name):
        return f"#{name}"
    return RICH_NAMES.get(name, name.replace("bright", "bright_"))


if __name__ == "__main__":
    main()
