"""Makes `docs/recording.svg`, a short conversation that plays by itself: in a real terminal, with a scripted model.

    python docs/make_recording.py [--out docs]

What the terminal shows is taken whenever it has changed. The picture has each line once, and its moments side by side,
which CSS shows one after the other; it needs no script and no other file. It needs the development packages.
"""

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

import pexpect
import pyte
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

sys.path.insert(0, str(Path(__file__).parent))
from make_pictures import LIMIT_SECONDS, ROOT, line_of

COLUMNS, ROWS = 92, 31
WIDTH, HEIGHT, PADDING = 8.4, 17.0, 14.0
"""Of a character, of a row, and around all, in the picture's units."""
FONT: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
BACKGROUND, FOREGROUND = (colour.hex for colour in (SVG_EXPORT_THEME.background_color, SVG_EXPORT_THEME.foreground_color))
KEY_SECONDS: Final = 0.6
"""A question takes keys once it has stood for a moment."""
SHORTEST, LONGEST = 0.06, 0.7
"""How long a moment stays, where nobody is to read it; the waiting of a slow machine is left out."""
PROGRAM: Final = '''
import asyncio
from pathlib import Path
from pydantic_ai.messages import ToolCallPart
from freeact_sub.agent import Agent
from freeact_sub.config.schema import EffectsConfig
from freeact_sub.config.schema import Config
from freeact_sub.terminal.conversation import converse
from freeact_sub.testing import ScriptedModel

CLEAN = """import pandas as pd
df = pd.read_csv("sales.csv")
good = df[df.amount > 0]
good.to_csv("sales.csv", index=False)
print(len(df) - len(good), "row dropped")"""
COUNT = """for path in sorted(Path("reports").glob("*.md")):
    print(path.name, path.read_text().split()[-1])"""
script = {
    "Drop the returned": [
        ToolCallPart("execute_ipython_cell", {"code": CLEAN}),
        ToolCallPart("task", {"prompt": "Which totals do the reports name?"}),
        "One row was a return and is dropped; `sales.csv` has two rows left, 17 in all.\\n"
        "The report of June says **17** too, and May **21**.",
    ],
    "Which totals": [
        ToolCallPart("execute_ipython_cell", {"code": "from pathlib import Path\\n" + COUNT}),
        "june.md 17, may.md 21",
    ],
}
config = Config(workspace=Path.cwd(), effects=EffectsConfig(seconds=60))
model = ScriptedModel(script)
asyncio.run(converse(lambda: Agent(config, model=model), config=config, prompt=None, open_session=None, plain=False))
'''
PROMPT: Final = "Drop the returned goods from sales.csv, and let a child read the reports."
FILES: Final = {
    "sales.csv": "name,amount\nanna,10\nben,-3\ncarla,7\n",
    "reports/june.md": "total: 17\n",
    "reports/may.md": "total: 21\n",
}


class Recording:
    """A program in a terminal, and what it has shown."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self.screen, self.folder = pyte.Screen(COLUMNS, ROWS), str(folder)
        self._stream = pyte.ByteStream(self.screen)
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "", "PYDANTIC_AI_NO_BANNER": "1"}
        self._child = pexpect.spawn(sys.executable, [*command], cwd=folder, env=environment, dimensions=(ROWS, COLUMNS))
        self.moments: list[tuple[tuple[Text, ...], float]] = []
        """What the screen shows, from top to bottom, and for how long."""

    def wait(self, *words: str, most: float = LONGEST) -> None:
        """Wait until the screen shows these words. Args: most: what this takes in the recording at most."""
        first, deadline = len(self.moments), time.monotonic() + LIMIT_SECONDS
        while not all(word in "\n".join(self.screen.display) for word in words):
            if time.monotonic() > deadline:
                raise SystemExit(f"it does not come to {words}:\n" + "\n".join(self.screen.display))
            self._read(0.2)
        took = sum(seconds for _, seconds in self.moments[first:])
        if took > most:
            self.moments[first:] = [(lines, seconds * most / took) for lines, seconds in self.moments[first:]]

    def hold(self, seconds: float, *, settles: float = 0.3) -> None:
        """Let people read. Args: settles: the screen is whole when nothing more has come for this time."""
        first = len(self.moments)
        while self._read(settles):
            pass
        self.moments[first:] = [(tuple(self._lines()), seconds)]

    def send(self, keys: str) -> None:
        """Press keys."""
        self._child.send(keys)

    def end(self) -> None:
        """End the conversation, or what is left of it."""
        try:
            self._child.send("\x04")
            self._child.expect(pexpect.EOF, timeout=LIMIT_SECONDS)
        finally:
            self._child.close(force=True)

    def _read(self, seconds: float) -> bool:
        """Whether something has come."""
        began = time.monotonic()
        try:
            data = self._child.read_nonblocking(65536, timeout=seconds)
        except pexpect.TIMEOUT:
            data = b""
        self.moments.append((tuple(self._lines()), time.monotonic() - began))
        self._stream.feed(data)
        return bool(data)

    def _lines(self) -> Iterator[Text]:
        for row in range(ROWS):
            line = line_of(self.screen, row, self.folder)
            if row == self.screen.cursor.y and not self.screen.cursor.hidden:
                line.pad_right(max(self.screen.cursor.x + 1 - len(line), 0))
                line.stylize("reverse", self.screen.cursor.x, self.screen.cursor.x + 1)
            yield line


def recorded() -> list[tuple[tuple[Text, ...], float]]:
    """The moments of the conversation."""
    with tempfile.TemporaryDirectory() as folder:
        program, work = Path(folder, "program.py"), Path(folder, "project")
        program.write_text(PROGRAM, encoding="utf-8")
        for name, text in FILES.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(text, encoding="utf-8")
        recording = Recording([str(program)], work)
        try:
            recording.wait("type a prompt")
            recording.moments.clear()
            recording.hold(0.8)
            for start in range(0, len(PROMPT), 3):
                recording.send(PROMPT[start : start + 3])
                recording.hold(0.08, settles=0.05)
            recording.send("\r")
            recording.wait("asks to run this cell", most=0.5)
            recording.wait("tried, in a copy", "-ben,-3", "y yes", most=1.0)
            recording.hold(4.5)
            answer(recording, "asks to start a child", hold=1.4)
            answer(recording, "june.md 17", hold=2.2)
            answer(recording, "May 21", "turns", hold=3.6)
        finally:
            recording.end()
    return recording.moments


def answer(recording: Recording, *words: str, hold: float) -> None:
    """Say yes, and wait for what comes."""
    time.sleep(KEY_SECONDS)
    recording.send("y")
    recording.wait(*words, most=0.9)
    recording.hold(hold)


def merged(moments: Sequence[tuple[tuple[Text, ...], float]]) -> list[tuple[tuple[Text, ...], float]]:
    """The same, each moment once; those that nobody can see are part of the next one."""
    found: list[tuple[tuple[Text, ...], float]] = []
    early = 0.0
    for lines, group in itertools.groupby(moments, key=lambda moment: moment[0]):
        seconds = early + sum(seconds for _, seconds in group)
        early = 0.0
        if found and found[-1][0] == lines:
            found[-1] = lines, found[-1][1] + seconds
        elif seconds < SHORTEST:
            early = seconds
        else:
            found.append((lines, seconds))
    return found


def drawn(moments: Sequence[tuple[tuple[Text, ...], float]]) -> str:
    """The picture."""
    width, height = COLUMNS * WIDTH + 2 * PADDING, ROWS * HEIGHT + 3 * PADDING + HEIGHT
    total = sum(seconds for _, seconds in moments)
    names: dict[str, str] = {}
    classes: dict[str, str] = {}
    film, steps, at = [], [], 0.0
    longest = max(range(len(moments)), key=lambda number: moments[number][1])
    for number, (lines, seconds) in enumerate(moments):
        uses = []
        for row, line in enumerate(lines):
            if content := _line(line, classes):
                name = names.setdefault(content, f"l{len(names)}")
                uses.append(f'<use href="#{name}" y="{row * HEIGHT:g}"/>')
        film.append(f'<g transform="translate({number * width:g})">{"".join(uses)}</g>')
        steps.append(f"{at / total * 100:.3f}%{{transform:translateX({-number * width:g}px)}}")
        at += seconds
    styles = "".join(f".{name}{{{style}}}" for style, name in classes.items())
    dots = "".join(
        f'<circle cx="{PADDING * 1.5 + 18 * number:g}" cy="{PADDING * 1.4:g}" r="6" fill="{colour}"/>'
        for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" xml:space="preserve">'
        "<title>A conversation with freeact-sub</title><style>"
        f"text{{font:14px {FONT};fill:{FOREGROUND};white-space:pre}}{styles}"
        f"@keyframes film{{{''.join(steps)}100%{{transform:translateX({-(len(moments) - 1) * width:g}px)}}}}"
        f".film{{transform:translateX({-longest * width:g}px);animation:film {total:.2f}s steps(1,end) infinite}}"
        "@media (prefers-reduced-motion:reduce){.film{animation:none}}</style><defs>"
        + "".join(f'<g id="{name}">{content}</g>' for content, name in names.items())
        + f'</defs><rect width="{width:g}" height="{height:g}" rx="8" fill="{BACKGROUND}"/>{dots}'
        f'<svg x="{PADDING:g}" y="{2 * PADDING + HEIGHT / 2:g}" width="{width - PADDING:g}">'
        f'<g class="film">{"".join(film)}</g></svg></svg>\n'
    )


def _line(line: Text, classes: dict[str, str]) -> str:
    """A row, each run of characters of one style at its place."""
    parts, at = [], 0
    for segment in line.render(Console()):
        style, text, width = segment.style or Style(), segment.text, segment.cell_length
        front, back = (_hex(style.color, FOREGROUND), _hex(style.bgcolor, BACKGROUND))
        if style.reverse:
            front, back = back, front
        if back != BACKGROUND:
            parts.append(f'<rect x="{at * WIDTH:g}" width="{width * WIDTH:g}" height="{HEIGHT:g}" fill="{back}"/>')
        if text.strip():
            wanted = (
                f"fill:{front}"
                + (";font-weight:bold" if style.bold else "")
                + (";font-style:italic" if style.italic else "")
            )
            name = classes.setdefault(wanted, f"c{len(classes)}")
            place = f'x="{at * WIDTH:g}" y="{HEIGHT * 0.75:g}" textLength="{width * WIDTH:g}"'
            parts.append(f'<text class="{name}" {place}>{escape(text, quote=False)}</text>')
        at += width
    return "".join(parts)


def _hex(color: Color | None, otherwise: str) -> str:
    return otherwise if color is None or color.is_default else color.get_truecolor(SVG_EXPORT_THEME).hex


def main() -> None:
    """Hold the conversation, and draw it."""
    parser = argparse.ArgumentParser(description="Make the recorded conversation of the README.")
    parser.add_argument("--out", metavar="DIR", type=Path, default=ROOT / "docs", help="where it goes (default: docs)")
    out: Path = parser.parse_args().out
    moments = merged(recorded())
    (out / "recording.svg").write_text(drawn(moments), encoding="utf-8")


if __name__ == "__main__":
    main()
