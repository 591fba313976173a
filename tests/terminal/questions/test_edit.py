"""The code of a question in a person's editor: a real program that changes the file."""

import asyncio
import shlex
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from support.sample_events import request

from freeact_sub.calls import CodeAction
from freeact_sub.events import Decision
from freeact_sub.show.questions import Questions
from freeact_sub.terminal.card import DecisionKeys

APPENDS = "import sys; open(sys.argv[1], 'ab').write(b'\\nprint(2)')"
SPOILS = "import sys; open(sys.argv[1], 'wb').write(b'\\xff\\xff')"


class Lent:
    """The part of a screen that an editor needs."""

    def __init__(self) -> None:
        self.work: list[Coroutine[Any, Any, None]] = []

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.work.append(work)

    async def run_outside(self, command: Sequence[str]) -> bool:
        try:
            process = await asyncio.create_subprocess_exec(*command)
        except OSError:
            return False
        await process.wait()
        return True


@pytest.mark.parametrize(
    ("editor", "code", "changed", "note"),
    [
        (shlex.join([sys.executable, "-c", APPENDS]), "print(1)", "print(1)\nprint(2)", ""),
        (shlex.join([sys.executable, "-c", APPENDS]), "x = '\ud83d'", "x = '\ud83d'\nprint(2)", ""),
        (shlex.join([sys.executable, "-c", SPOILS]), "print(1)", None, "left no readable file"),
        ("no such editor 'with an open quotation mark", "print(1)", None, "did not start"),
        ("/nothing/here", "print(1)", None, "did not start"),
        ("true", "print(1)", None, ""),
    ],
)
@pytest.mark.process
async def test_what_the_editor_leaves_runs_instead_or_is_told(
    editor: str, code: str, changed: str | None, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUAL", editor)
    questions, screen = Questions(), Lent()
    notes: list[str] = []
    answered: list[str | None] = []

    def take(decision: Decision) -> bool:
        answered.append(decision.code)
        return True

    questions.observe(request("r", CodeAction(code=code), take))
    assert DecisionKeys(questions, screen, notes.append).press("e")  # type: ignore[arg-type]
    for work in screen.work:
        await work
    assert answered == ([] if changed is None else [changed])
    assert note in " ".join(notes)
    assert bool(notes) == bool(note)
