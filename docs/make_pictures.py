"""Makes the picture of docs/effects.md in a real terminal: a cell that shows what it would do.

    python docs/make_pictures.py [--out docs]

What stands on the terminal's screen is taken as it is, and drawn by rich. It needs the development packages.
"""

import argparse
import copy
import io
import itertools
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import pexpect
import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

ROOT: Final = Path(__file__).resolve().parents[1]
COLUMNS, ROWS = 106, 43
PROJECT: Final = "/home/me/project"
"""The folder that the picture shows in place of the temporary one; with `TMPDIR` unset both have the same length."""
LIMIT_SECONDS: Final = 240
PROGRAM: Final = """
import asyncio
from pathlib import Path
from pydantic_ai.messages import ToolCallPart
from freeact_sub.agent import Agent
from freeact_sub.config.schema import EffectsConfig
from freeact_sub.config.schema import Config
from freeact_sub.terminal.conversation import converse
from freeact_sub.testing import ScriptedModel

CODE = '''import pandas as pd
from pathlib import Path

df = pd.read_csv("sales.csv")
good = df[df.amount > 0]
good.to_csv("sales.csv", index=False)
Path("reports/june.md").write_text(f"# June\\\\ntotal: {good.amount.sum()}\\\\n")
print(len(df) - len(good), "row dropped")
'''
config = Config(workspace=Path.cwd(), effects=EffectsConfig(seconds=60))
model = ScriptedModel([ToolCallPart("execute_ipython_cell", {"code": CODE}), "done"])
asked = "Drop the returned goods, and correct the report."
asyncio.run(converse(lambda: Agent(config, model=model), config=config, prompt=asked, open_session=None, plain=False))
"""
"""A conversation whose model writes one cell."""
RICH_NAMES: Final = {"brown": "yellow", "bfightmagenta": "bright_magenta", "brightbrown": "bright_yellow"}
"""pyte's names of colours where they differ."""


def main() -> None:
    """Hold the conversation up to the card, and save what the terminal shows."""
    parser = argparse.ArgumentParser(description="Make the picture of docs/effects.md.")
    parser.add_argument("--out", metavar="DIR", type=Path, default=ROOT / "docs", help="where it goes (default: docs)")
    out: Path = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"
        program.write_text(PROGRAM, encoding="utf-8")
        work = Path(folder) / "project"
        (work / "reports").mkdir(parents=True)
        (work / "sales.csv").write_text("name,amount\nanna,10\nben,-3\ncarla,7\n", encoding="utf-8")
        (work / "reports/june.md").write_text("# June\ntotal: 99\n", encoding="utf-8")
        shown = session([str(program)], work, ("tried, in a copy", "y yes"))
        save(shown, str(work), "freeact-sub", out / "effects.svg")


def save(screen: pyte.Screen, folder: str, title: str, file: Path) -> None:
    """Draw a screen. Args: folder: see `line_of`."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    last = max(row for row, text in enumerate(screen.display) if text.strip())
    for row in range(last + 1):
        console.print(line_of(screen, row, folder), no_wrap=True, overflow="crop")
    drawn = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title=title, unique_id=file.stem), flags=re.DOTALL)
    file.write_text(drawn, encoding="utf-8")  # without fonts of another host


def session(command: Sequence[str], folder: Path, until: Iterable[str]) -> pyte.Screen:
    """The screen of a program at some moment.

    Args:
        command: The program and its arguments.
        folder: Where it runs.
        until: What the screen shows at the moment.
    """
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "", "PYDANTIC_AI_NO_BANNER": "1"}
    child = pexpect.spawn(sys.executable, [*command], cwd=folder, env=environment, dimensions=(ROWS, COLUMNS))

    def wait(condition: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not condition("\n".join(screen.display)):
            if time.monotonic() > deadline:
                raise SystemExit("it does not come to the moment of the picture:\n" + "\n".join(screen.display))
            try:
                stream.feed(child.read_nonblocking(65536, timeout=0.2))
            except pexpect.TIMEOUT:
                continue

    try:
        wait(lambda shown: all(words in shown for words in until))
        picture = copy.deepcopy(screen)
        child.send("\x03")
        child.expect(pexpect.EOF, timeout=LIMIT_SECONDS)
    finally:
        child.close(force=True)
    return picture


def line_of(screen: pyte.Screen, row: int, folder: str) -> Text:
    """A row of the screen with its colours. Args: folder: where the program ran; `PROJECT` is drawn instead."""
    line = Text()
    chars = [screen.buffer[row][column] for column in range(screen.columns)]
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
