"""A fact is noted with a yes to its diff, and `/memory` shows it."""

from pathlib import Path

import pytest
from support.terminal import READY, Terminal

pytestmark = pytest.mark.e2e


def test_a_card_shows_what_is_noted_and_the_command_the_file(terminal: Terminal, tmp_path: Path) -> None:
    terminal.resize(24, 80)
    terminal.enter("/memory")
    terminal.wait_for("no facts are noted", ".freeact/memory.md yourself")
    terminal.enter("remember Tests run with make fast.")
    terminal.answer("y", "asks to call remember", "a yes writes:", ": Tests run with make fast.")
    terminal.wait_for("it is noted")
    terminal.wait_at_bottom(READY)
    assert "Tests run with make fast." in (tmp_path / ".freeact/memory.md").read_text()
    terminal.enter("/memory")
    terminal.wait_for("of 2,000 tokens · edit it in any editor")
