"""What is typed once a question stands on a plain terminal answers it; what was typed before it is dropped."""

import contextlib
import os
import pty
import select
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.sample_events import request

from freeact_sub.calls import SpawnCall
from freeact_sub.config.schema import Config
from freeact_sub.terminal.plain_display import PlainDisplay
from freeact_sub.terminal.present import Present

ENTER = b"\n"


class QuickPerson:
    """Types a line before a question, and an answer as soon as the question is printed."""

    def __init__(self, terminal: int) -> None:
        self.terminal = terminal
        self.shown = ""

    def write(self, text: str) -> int:
        self.shown += text
        if "type why not" in text:
            os.write(self.terminal, b"yes" + ENTER)
        return len(text)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return False


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ends = pty.openpty()
    yield ends
    for end in ends:
        os.close(end)


def test_an_answer_typed_at_once_counts(terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, ours = terminal
    person = QuickPerson(theirs)
    with contextlib.ExitStack() as stack:
        monkeypatch.setattr(sys, "stdin", stack.enter_context(os.fdopen(os.dup(ours))))
        monkeypatch.setattr(sys, "stdout", person)
        keyboard: Any = None
        display = PlainDisplay(Present(config=Config(), once=False), verbose=False, keyboard=keyboard, other_program=None)  # type: ignore[arg-type]
        os.write(theirs, b"before" + ENTER)
        assert select.select([ours], [], [], 10)[0]
        display.show(request("1", SpawnCall(prompt="go")))
        display.refresh()
        assert select.select([ours], [], [], 10)[0], "the answer was dropped"
        assert os.read(ours, 100) == b"yes" + ENTER
