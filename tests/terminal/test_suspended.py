"""Ctrl-Z in a shell: the program stops, and `fg` draws again what was there, with the line that was being typed."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from support.terminal import CONVERSATION, CTRL_D, ENTER, READY, Terminal

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")]
SHELL = ["bash", "--norc", "--noprofile", "-i"]
CTRL_Z = "\x1a"


@pytest.mark.parametrize("at_work", [False, True])
def test_a_program_that_was_suspended_is_drawn_again(tmp_path: Path, at_work: bool) -> None:
    env = {**os.environ, "PS1": "shell> ", "PYDANTIC_AI_NO_BANNER": "1"}
    with Terminal(SHELL, cwd=tmp_path, env=env) as terminal:
        terminal.wait_at_bottom("shell>")
        terminal.enter(f"{sys.executable} {CONVERSATION}")
        terminal.wait_at_bottom(READY)
        below = READY
        if at_work:
            terminal.enter("silent")
            terminal.wait_at_bottom(below := "1 agent at work")
        for _ in range(2):
            terminal.press("half of a line")
            terminal.wait_at_bottom("> half of a line")
            terminal.press(CTRL_Z)
            terminal.wait_at_bottom("Stopped", "shell>")
            terminal.enter("clear; echo $((40 + 2)) in the shell")
            terminal.wait_at_bottom("42 in the shell")
            terminal.enter("fg")
            terminal.wait_at_bottom("> half of a line", below)
            assert terminal.bottom.count("half of a line") == 1, terminal.bottom
            terminal.press("\x15")
            terminal.wait_gone("half of a line")
        if not at_work:
            terminal.enter("what comes after")
            terminal.wait_for("echo: what comes after")
            terminal.wait_at_bottom(READY)
        terminal.press(CTRL_D)
        if at_work:
            terminal.wait_at_bottom("Ctrl-D once more quits")
            terminal.press(CTRL_D)
        terminal.wait_until(lambda: terminal.bottom.endswith("\nshell>"), "the shell to ask")
        terminal.press("exit" + ENTER)
        assert terminal.wait_end() == 0
