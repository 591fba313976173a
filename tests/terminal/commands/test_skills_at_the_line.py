"""A skill at the input line: listed and completed like a command, sent with a prompt, and there once."""

import sys
from pathlib import Path

import pytest
from support.terminal import CONVERSATION, ENTER, READY, Terminal

pytestmark = pytest.mark.e2e

TEXT = "---\nname: {name}\ndescription: Tidies \x1b[2Ja table.\n---\nRemove \x1b[31mempty rows first."


def test_a_skill_is_completed_and_sent_and_its_text_is_there_once(tmp_path: Path) -> None:
    for name in ("tidy-rows", "help"):
        folder = tmp_path / ".agents/skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(TEXT.format(name=name))
    env = {"PYDANTIC_AI_NO_BANNER": "1", "SESSION": "new"}
    with Terminal([sys.executable, str(CONVERSATION)], cwd=tmp_path, env=env) as terminal:
        terminal.wait_at_bottom(READY)
        terminal.wait_for("the skill help is not called by /help, which is a command")
        terminal.press("/ti")
        terminal.wait_at_bottom("/tidy-rows", "Tidies ", "a table.")
        terminal.press("\t")
        terminal.wait_at_bottom("> /tidy-rows")
        terminal.press(" of ridge.csv" + ENTER)
        terminal.wait_for("echo: ", "empty rows first.", "Use the skill tidy-rows.", "of ridge.csv")
        terminal.wait_at_bottom(READY)
        terminal.enter("/tidy-rows again")
        terminal.wait_for("stands above, in this conversation", "again")
        terminal.wait_ended(runs=2)
        assert terminal.shown.count("empty rows first.") == 1
        assert terminal.shown.count("> /tidy-rows of ridge.csv") == 1
