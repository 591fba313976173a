"""What tests of commands in a pseudo-terminal share."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.terminal import CONVERSATION, READY, Terminal


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with Terminal(
        [sys.executable, str(CONVERSATION)], cwd=tmp_path, env={"PYDANTIC_AI_NO_BANNER": "1", "SESSION": "new"}
    ) as terminal:
        terminal.wait_at_bottom(READY)
        yield terminal
