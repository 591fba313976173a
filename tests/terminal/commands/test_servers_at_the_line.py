"""Prompts and resources of a real MCP server at the input line, in a pseudo-terminal."""

import sys
from pathlib import Path

import pytest
from support import sdk_mcp_server
from support.terminal import CONVERSATION, CTRL_C, ENTER, READY, Terminal

pytestmark = [pytest.mark.e2e, pytest.mark.mcp]


def test_prompts_and_resources_are_completed_sent_and_given_back(tmp_path: Path) -> None:
    environment = {"PYDANTIC_AI_NO_BANNER": "1", "MCP_SERVER": sdk_mcp_server.__file__}
    with Terminal([sys.executable, str(CONVERSATION)], cwd=tmp_path, env=environment) as terminal:
        terminal.wait_at_bottom(READY)
        terminal.wait_for("freeact-sub ", "mode    ask: asks before anything that matters")
        terminal.enter("south")
        terminal.wait_for("echo: south")  # the server has started: a menu waits for it only for a moment
        terminal.wait_at_bottom(READY)
        terminal.press("/demo:re")
        terminal.wait_at_bottom("Asks for a review")
        terminal.press("\t")
        terminal.wait_at_bottom("> /demo:review")
        terminal.press(" ")
        terminal.wait_at_bottom("language=", "focus=")
        terminal.press("language=py")
        terminal.wait_at_bottom("language=python", "language=pytorch")
        terminal.press("thon" + ENTER)
        terminal.wait_for("> /demo:review language=python", "echo: Review this python code for bugs.")
        terminal.wait_at_bottom(READY)
        terminal.press("see @demo:demo://wo")
        terminal.wait_at_bottom("@demo:demo://words")
        terminal.press("rds" + ENTER)
        terminal.wait_for("> see @demo:demo://words\n", "some words")
        terminal.wait_at_bottom(READY)
        terminal.enter("/demo:review")
        terminal.wait_for("not sent: MCP server 'demo'")
        terminal.wait_at_bottom("> /demo:review", READY)
        terminal.press(CTRL_C)
        terminal.enter("how is @demo:demo://cities/far-away")
        terminal.wait_at_bottom("reading")
        terminal.press(CTRL_C)
        terminal.wait_for("not sent: cancelled")
        terminal.wait_at_bottom("> how is @demo:demo://cities/far-away", READY)
        terminal.press(CTRL_C)
        terminal.enter("north")
        terminal.wait_for("echo: north")
