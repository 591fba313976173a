"""A terminal that becomes narrower: nothing that was drawn stays behind. In tmux, which folds rows as most terminals do."""

import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from prompt_toolkit.data_structures import Size
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.styles import DummyStyle
from support.terminal import CONVERSATION
from support.waiting import wait_until

from freeact_sub.terminal.drawing.reflow import WipingOutput, folds_rows

SCREENS = CONVERSATION.with_name("scripted_screens.py")


@pytest.mark.parametrize(
    ("environment", "folds"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm-kitty"}, True),
        ({"TERM": "xterm-256color", "XTERM_VERSION": "XTerm(390)"}, False),
        ({"TERM": "linux"}, False),
        ({"TERM": "screen"}, False),
        ({"TERM": "screen-256color", "TMUX": "/tmp/tmux", "XTERM_VERSION": "XTerm(390)"}, True),
    ],
)
def test_which_terminals_fold_rows(environment: dict[str, str], folds: bool) -> None:
    assert folds_rows(environment) == folds


def test_while_something_else_has_the_terminal_nothing_is_written() -> None:
    written = io.StringIO()
    output = WipingOutput(written, lambda: Size(rows=10, columns=40))
    renderer = Renderer(DummyStyle(), output)
    before, output.is_away = written.getvalue(), True
    renderer.erase(leave_alternate_screen=False)  # what prompt_toolkit does when the window changes
    assert written.getvalue() == before
    output.is_away = False
    renderer.erase(leave_alternate_screen=False)
    assert "\x1b[J" in written.getvalue()


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_a_question_is_not_doubled_when_the_terminal_becomes_narrower(tmp_path: Path) -> None:
    def tmux(*words: str) -> str:
        command = ["tmux", "-S", str(tmp_path / "tmux"), *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    def screen() -> str:
        return tmux("capture-pane", "-p", "-S", "-100")

    tmux("-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "30", f"{sys.executable} {CONVERSATION}")
    try:
        wait_until(lambda: "type a prompt" in screen())
        tmux("send-keys", "/help", "Enter")  # tmux moves rows off a nearly empty screen when others fold
        wait_until(lambda: "quit (also: exit" in screen())
        tmux("send-keys", "children north south", "Enter")
        wait_until(lambda: "/2 agent" in screen() and "? why" in screen())
        for columns in (70, 50, 40):
            tmux("resize-window", "-x", str(columns), "-y", "30")
            wait_until(lambda columns=columns: f"{columns}" == tmux("display", "-p", "#{pane_width}").strip())
            # drawn anew: the line about the others is cut to the width
            wait_until(lambda columns=columns: max(map(len, screen().split("Approval 1 of 2")[-1].splitlines())) <= columns)
            wait_until(lambda: screen().count("Approval 1 of 2") == 1 and "/2 agent" in screen())
    finally:
        tmux("kill-server")


SIZES = ((57, 16), (55, 43), (100, 36), (43, 13), (89, 39), (115, 18), (40, 12), (110, 40))
"""As a corner is dragged: both directions at once, down to a window that is lower than what is drawn."""
CHILDREN = [f"child{number:02}" for number in range(20)]


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_a_corner_that_is_dragged_leaves_every_line_once(tmp_path: Path) -> None:
    """20 children and a card: what changes stands on the screen once, and what is finished once in the scrollback."""

    def tmux(*words: str) -> str:
        command = ["tmux", "-S", str(tmp_path / "tmux"), *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    def lines() -> list[str]:
        return tmux("capture-pane", "-p", "-J", "-S", "-").splitlines()

    def shown(text: str) -> int:
        return "\n".join(lines()).count(text)

    def is_clean(columns: int, rows: int) -> bool:
        every = lines()
        visible = tmux("capture-pane", "-p").splitlines()
        region = [line for line in every if re.match(r"\s+[●?○] [0-9a-f]{4} clean child", line)]
        heads = [sum(line == f"● Child  clean {name}.csv" for line in every) for name in CHILDREN]
        asks = [line for line in visible if line.startswith(" Approval 1 of 1")]
        return (
            tmux("display", "-p", "#{pane_width} #{pane_height}").split() == [str(columns), str(rows)]
            and len(set(region)) == len(region) == sum(line in visible for line in region)
            and len(asks) == 1 == sum("Approval 1 of 1" in line for line in every)
            and heads == [1] * len(CHILDREN)
        )

    tmux("-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "40", f"{sys.executable} {SCREENS}")
    try:
        wait_until(lambda: shown("type a prompt") == 1)
        tmux("send-keys", f"stations {' '.join(CHILDREN)}", "Enter")
        wait_until(lambda: shown("a this session") > 0)
        tmux("send-keys", "a")
        wait_until(lambda: shown("21 agents at work") == 1)
        (tmp_path / "child01").touch()
        wait_until(lambda: shown("Approval 1 of 1") == 1)
        columns, rows = 110, 40
        for to_columns, to_rows in SIZES:
            for third in (1, 2, 3):
                at = columns + (to_columns - columns) * third // 3, rows + (to_rows - rows) * third // 3
                tmux("resize-window", "-x", str(at[0]), "-y", str(at[1]))
            columns, rows = to_columns, to_rows
            wait_until(lambda columns=columns, rows=rows: is_clean(columns, rows))
    finally:
        tmux("kill-server")
