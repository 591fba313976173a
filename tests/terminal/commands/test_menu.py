"""The menu of commands, and the prompts of earlier conversations, in a pseudo-terminal."""

import sys
from pathlib import Path

import pytest
from support.terminal import CONVERSATION, CTRL_D, ENTER, READY, Terminal

pytestmark = pytest.mark.e2e


def start(folder: Path) -> Terminal:
    return Terminal([sys.executable, str(CONVERSATION)], cwd=folder, env={"PYDANTIC_AI_NO_BANNER": "1"})


def test_commands_are_offered_and_completed_and_prompts_of_earlier_sessions_are_there(tmp_path: Path) -> None:
    with start(tmp_path) as terminal:
        terminal.wait_at_bottom(READY)
        terminal.wait_for("freeact-sub ", "mode    ask: asks before anything that matters")
        terminal.press("/cos")
        terminal.wait_at_bottom("show what was spent")
        terminal.press("\t")
        terminal.wait_at_bottom("> /cost")
        terminal.press(ENTER)
        terminal.wait_for("all runs, children included: ")
        terminal.enter("say north")
        terminal.wait_for("echo: say north")
        terminal.wait_at_bottom(READY)
        terminal.press(CTRL_D)
        assert terminal.wait_end() == 0
    with start(tmp_path) as again:
        again.wait_at_bottom(READY)
        again.press("\x1b[A")
        again.wait_at_bottom("> say north")
