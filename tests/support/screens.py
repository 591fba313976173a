"""Golden screens: what a terminal shows, as text that can be compared.

`SCREENS=new python -m pytest tests/terminal/test_screens.py` writes them anew; the difference is then read in git.
"""

import difflib
import os
import re
from pathlib import Path

import pyte
from pyte.screens import Char
from support.terminal import Terminal

FOLDER = Path(__file__).parents[1] / "terminal" / "screens"
IS_NEW = os.environ.get("SCREENS") == "new"
SAME = (
    (re.compile(r"agent-[0-9a-f]{8}/\S+"), "agent-00000000/FILE"),
    (re.compile(r"agent-[0-9a-f]{8}"), "agent-00000000"),
    (re.compile(r"\b[0-9a-f]{4}\b"), "0000"),
    (re.compile(r"\b\d+(?:,\d{3})* tok(ens)?\b"), r"N tok\1"),
    (re.compile(r"\btokens \d+(?:,\d{3})*"), "tokens N"),
    (re.compile(r"\b\d+\.\d s\b"), "0.0 s"),
    (re.compile(r"(folder {2})\S.*"), r"\1FOLDER"),
    (re.compile(r"(freeact-sub (?:\[\[\]\])?)\d+\.\d+\.\d+\S*"), r"\1VERSION"),
)
"""What is another one each time."""


def normalised(text: str) -> str:
    """The text without what is another one each time, and what only fills up rows that have such."""
    lines = []
    for line in text.rstrip().split("\n"):
        same = line
        for pattern, instead in SAME:
            same = pattern.sub(instead, same)
        if re.fullmatch(r" +0\.0 s", same):
            continue  # a slow machine: how long a cell took is told from two seconds on
        lines.append(line.rstrip() if same == line else re.sub(r"(?<=\S) {3,}", "   ", same).rstrip())
    return "\n".join(without_python(lines)) + "\n"


def without_python(lines: list[str]) -> list[str]:
    """The lines without those of the banner that name the Python of the cells and its packages."""
    kept, is_python = [], False
    for line in lines:
        text = re.sub(r"\[\[[^\]]*\]\]", "", line)
        is_python = text.startswith("python  ") or (is_python and not text.startswith("session"))
        kept += [] if is_python else [line]
    return kept


def check_screen(terminal: Terminal, name: str, *, coloured: bool = False) -> None:
    """Wait until all that the terminal shows, from the first line of its scrollback, is this golden screen."""
    file = FOLDER / f"{name}.txt"

    def shown() -> str:
        return styled(terminal.screen) if coloured else normalised(terminal.shown)

    if IS_NEW:
        terminal.settle()
        FOLDER.mkdir(exist_ok=True)
        file.write_text(shown(), encoding="utf-8")
        return
    expected = file.read_text(encoding="utf-8")
    try:
        terminal.wait_until(lambda: shown() == expected, f"the screen {name}")
    except AssertionError as error:
        difference = difflib.unified_diff(expected.splitlines(), shown().splitlines(), "expected", "shown", lineterm="")
        raise AssertionError("\n".join([f"the screen {name} is another one", *difference])) from error


def check_text(text: str, name: str) -> None:
    """The same for text that is not drawn anew."""
    file = FOLDER / f"{name}.txt"
    if IS_NEW:
        file.write_text(normalised(text), encoding="utf-8")
    assert normalised(text) == file.read_text(encoding="utf-8")


def styled(screen: pyte.Screen) -> str:
    """What stands on the screen, with the style of each piece in front of it."""
    lines = []
    for row in range(screen.lines):
        text, last = "", ""
        for column in range(screen.columns):
            char = screen.buffer[row][column]
            if (style := style_of(char)) != last and char.data.strip():
                text += f"[[{style}]]"
                last = style
            text += char.data
        lines.append(text.rstrip())
    return normalised("\n".join(lines))


def style_of(char: Char) -> str:
    """Colours and attributes; empty for the terminal's own. pyte does not know dim text."""
    names = [char.fg if char.fg != "default" else "", f"on {char.bg}" if char.bg != "default" else ""]
    flags = [name for name in ("bold", "italics", "underscore", "reverse") if getattr(char, name)]
    return " ".join(filter(None, [*names, *flags]))
