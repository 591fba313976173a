"""A terminal that becomes narrower: nothing that was drawn stays behind. In tmux, which folds rows as most terminals do."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.terminal import CONVERSATION
from support.waiting import wait_until

from freeact_sub.terminal.drawing.reflow import folds_rows


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
        wait_until(lambda: "leave (so do exit" in screen())
        tmux("send-keys", "children north south", "Enter")
        wait_until(lambda: "/2 agent" in screen() and "why asked" in screen())
        for columns in (70, 50, 40):
            tmux("resize-window", "-x", str(columns), "-y", "30")
            wait_until(lambda columns=columns: f"{columns}" == tmux("display", "-p", "#{pane_width}").strip())
            # drawn anew: the line about the others is cut to the width
            wait_until(lambda columns=columns: max(map(len, screen().split("Approval 1 of 2")[-1].splitlines())) <= columns)
            wait_until(lambda: screen().count("Approval 1 of 2") == 1 and "/2 agent" in screen())
    finally:
        tmux("kill-server")
