"""The prompt is there, and takes keys, before anything slow is imported."""

import sys
from pathlib import Path

import pytest
from support.cli import environment
from support.terminal import Terminal
from support.waiting import until_there

pytestmark = pytest.mark.e2e

HEAVY = (
    "pydantic_ai",
    "openai",
    "mcp",
    "IPython",
    "jupyter_client",
    "zmq",
    "httpx2",
    "markdown_it",
    "pygments",
)
PROGRAM = f"""
import sys
from freeact_sub.cli import commands
from freeact_sub.errors import FreeactError

def open_agent(config, session, **_):
    heavy = sorted(set({HEAVY!r}) & set(sys.modules))
    {until_there("go", indented=4)}
    raise FreeactError(f"imported before the prompt: {{heavy}}")

commands._agent = open_agent
sys.exit(commands.main(["--model", "openai-chat:x"]))
"""


def test_the_prompt_takes_keys_before_anything_slow_is_imported(tmp_path: Path) -> None:
    with Terminal([sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment()) as terminal:
        terminal.wait_at_bottom("starting", "freeact-sub ", "mode    ask: ", "session new", "/help")
        terminal.enter("typed ahead")
        terminal.wait_for("queued: typed ahead")
        terminal.press("\x1b[Z")
        terminal.wait_for("mode auto: runs without asking, behind a wall · from the first prompt")
        terminal.press("half a line")
        terminal.wait_at_bottom("half a line")
        (tmp_path / "go").touch()
        assert terminal.wait_end() == 1
        assert "not sent: typed ahead" in terminal.shown
        assert "not sent: half a line" in terminal.shown
        assert "imported before the prompt: []" in terminal.shown
