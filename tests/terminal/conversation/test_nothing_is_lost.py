"""What a person has typed comes back where nobody has read it, and is not thrown away unasked."""

import os
import sys
from pathlib import Path

import pytest
from support.terminal import CONVERSATION, CTRL_C, CTRL_D, ENTER, ESCAPE, READY, Terminal

pytestmark = pytest.mark.e2e
ENV = {"PYDANTIC_AI_NO_BANNER": "1"}


def test_what_nobody_has_read_comes_back_to_the_line(tmp_path: Path) -> None:
    with Terminal([sys.executable, str(CONVERSATION)], cwd=tmp_path, env=ENV) as terminal:
        terminal.wait_at_bottom(READY)
        for key in (ESCAPE, CTRL_C):
            terminal.enter("silent")
            terminal.wait_at_bottom("1 agent at work", "waiting for the model")
            terminal.enter("sent and not read")
            terminal.wait_at_bottom("queued: sent and not read")
            terminal.press(ENTER)
            terminal.wait_for("sent to the agent: sent and not read")
            terminal.enter("queued")
            terminal.wait_at_bottom("queued: queued")
            terminal.press(key)
            terminal.wait_at_bottom(READY, "> sent and not read", "queued")
            terminal.press(CTRL_C)
            terminal.wait_gone("> sent and not read")
        terminal.enter("fail half of an answer")
        terminal.wait_for("✗ failed")
        terminal.wait_at_bottom(READY)
        terminal.wait_until(  # typed, answered, and in the line again
            lambda: terminal.shown.count("half of an answer") == 3, "the prompt to be in the line again"
        )
        terminal.press(CTRL_C)
        terminal.wait_until(lambda: terminal.bottom.count("> fail half") == 1, "the line to be empty")
        terminal.enter("broken and whole")
        terminal.wait_for_match(r"(?s)and its end\n.* turns? · ")  # it is printed a moment after it was written
        terminal.wait_at_bottom(READY)
        assert terminal.shown.count("the beginning of it") == 1


def test_ctrl_d_asks_once_while_something_would_be_lost(tmp_path: Path) -> None:
    with Terminal([sys.executable, str(CONVERSATION)], cwd=tmp_path, env=ENV) as terminal:
        terminal.wait_at_bottom(READY)
        terminal.enter("silent")
        terminal.wait_at_bottom("1 agent at work")
        terminal.press(CTRL_D)
        terminal.wait_at_bottom("a run is at work: Ctrl-D once more quits")
        terminal.enter("later")
        terminal.wait_at_bottom("queued: later")
        terminal.press(CTRL_D)
        terminal.wait_at_bottom("a run is at work and 1 entry queued: Ctrl-D once more quits")
        terminal.press(CTRL_D)
        assert terminal.wait_end() == 0
        assert "not sent: later" in terminal.shown


def test_where_prompts_cannot_be_kept_they_are_sent_all_the_same(tmp_path: Path) -> None:
    work, state = tmp_path / "work", tmp_path / "state"
    work.mkdir()
    with Terminal([sys.executable, str(CONVERSATION)], cwd=work, env={**ENV, "XDG_STATE_HOME": str(state)}) as terminal:
        terminal.wait_at_bottom(READY)
        for file in (state / "freeact/prompts").iterdir():
            file.unlink()
            file.symlink_to("/dev/full")
        terminal.enter("one")
        terminal.wait_for("echo: one")
        terminal.enter("two")
        terminal.wait_for("echo: two")
        terminal.wait_at_bottom(READY)
        assert terminal.shown.count(f"not kept for the arrow keys ({os.strerror(28)})") == 1
        assert "Traceback" not in terminal.shown


def test_all_code_that_runs_unasked_is_told(tmp_path: Path) -> None:
    (tmp_path / "first").write_text("x = 41")
    (tmp_path / "second").write_text("print('it ran', x + 1)")
    with Terminal([sys.executable, str(CONVERSATION)], cwd=tmp_path, env=ENV) as terminal:
        terminal.wait_at_bottom(READY, " ask")
        terminal.enter("run first second")
        terminal.answer("p", "a and p: all code runs unasked then, without the wall that mode auto has")
        terminal.wait_for("all of it was asked", "saved: allow code in .freeact/permissions.toml of the workspace")
        terminal.wait_at_bottom(READY, " ask*")
        terminal.enter("/status")
        terminal.wait_for("asks before anything that matters, but code runs unasked (this session)")
        terminal.enter("/mode plan")
        terminal.wait_at_bottom("mode plan: ")
        terminal.press(CTRL_D)
        assert terminal.wait_end() == 0
