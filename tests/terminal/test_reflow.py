"""A terminal that becomes narrower: nothing that was drawn stays behind. In tmux, which folds rows as most terminals do."""

import asyncio
import io
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from prompt_toolkit.application import in_terminal
from prompt_toolkit.application.current import set_app
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from support.terminal import CONVERSATION
from support.waiting import eventually, wait_until

from freeact_sub.terminal.drawing.borrowed_reflow import ReflowingApplication, WipingOutput, folds_rows


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


async def test_a_window_that_changes_while_something_else_has_the_terminal_is_left_as_it_is() -> None:
    written = io.StringIO()
    with create_pipe_input() as keys:
        application = ReflowingApplication(input=keys, output=WipingOutput(written, lambda: Size(rows=10, columns=40)))
        running = asyncio.create_task(application.run_async(handle_sigint=False))
        await eventually(lambda: application.is_running and written.getvalue())
        with set_app(application):
            async with in_terminal():
                before = written.getvalue()
                application._on_resize()  # noqa: SLF001  # a signal calls it, and a timer of prompt_toolkit
                assert written.getvalue() == before
        application.exit()
        await running


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
