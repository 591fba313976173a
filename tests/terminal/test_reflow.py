"""A terminal that becomes narrower: nothing that was drawn stays behind. In tmux, which folds rows as most terminals do."""

import io
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

from freeact_sub.terminal.screen import WipingOutput, folds_rows


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


@pytest.mark.e2e
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
