"""A session that is resumed shows where one was, as it was drawn then; leaving prints the command that continues it."""

import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from support.terminal import CTRL_D, READY, Terminal
from support.waiting import wait_until

PROGRAM = Path(__file__).parents[2] / "support" / "scripted_screens.py"
Start = Callable[..., Terminal]

pytestmark = pytest.mark.e2e


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as opened:

        def start(session: str, *, rows: int = 60, columns: int = 100, state: str = "state") -> Terminal:
            env = {"PYDANTIC_AI_NO_BANNER": "1", "CLOCK_RUNS": "1", "SESSION": session}
            env["XDG_STATE_HOME"] = str(tmp_path / state)
            command = [sys.executable, str(PROGRAM)]
            return opened.enter_context(Terminal(command, cwd=tmp_path, env=env, rows=rows, columns=columns))

        yield start


def say(terminal: Terminal, prompt: str, answer: str) -> None:
    terminal.wait_at_bottom(READY)
    terminal.enter(prompt)
    terminal.wait_for(answer)
    terminal.wait_at_bottom(READY)


def left(terminal: Terminal) -> str:
    """Leave the conversation. Returns: the id of its session."""
    terminal.press(CTRL_D)
    assert terminal.wait_end() == 0
    found = re.search(r"continuewith:.*--resume(\d{8}-\d{4}-[0-9a-f]{6})", "".join(terminal.shown.split()))
    assert found is not None, terminal.shown
    return found[1]


def asked(database: Path) -> int:
    """How many questions are on disk."""
    with closing(sqlite3.connect(database)) as connection:
        (count,) = connection.execute("SELECT COUNT(*) FROM events WHERE type = 'ApprovalRequest'").fetchone()
    return int(count)


def exchange(shown: str, first: str) -> list[str]:
    """The lines from this one on to the end of its run."""
    lines = shown.splitlines()
    begin = max(number for number, line in enumerate(lines) if line == first)
    end = next(number for number in range(begin, len(lines)) if re.search(r"\d s · .* tokens", lines[number]))
    return lines[begin : end + 1]


@pytest.mark.parametrize(("rows", "columns"), [(24, 80), (40, 120), (12, 40)])
def test_the_last_exchanges_are_drawn_as_they_were(start: Start, rows: int, columns: int) -> None:
    terminal = start("new", rows=rows, columns=columns)
    say(terminal, "say one", "echo: say one")
    terminal.enter("long")
    terminal.answer("a", "Approval 1 of 1")
    terminal.wait_for("That was long.")
    terminal.wait_at_bottom(READY)
    terminal.enter("children north south")
    terminal.answer("a", "Approval 1 of 2")
    terminal.wait_for("the children are done")
    say(terminal, "answer", "1 turn · 115 tokens")
    before = terminal.shown
    again = start(left(terminal), rows=rows, columns=columns)
    again.wait_at_bottom("resume: " if columns == 40 else "came back: 2 children", READY)
    assert "\n> long\n" in again.shown
    for first in ("● Python  count rows per file", "> children north south", "> answer"):
        assert exchange(again.shown, first) == exchange(before, first)
    assert "> say one" not in again.shown
    words = " ".join(again.shown.split())
    assert re.search(r"resumed say one 4 prompts · just now · 3 agents · [\d,]+ tokens 1 earlier prompt: freeact-sub", words)
    again.press("\x0f")
    again.wait_at_bottom("q closes")
    again.press("/2999 rows\r")
    again.wait_at_bottom("2999 rows in file 2999")
    again.press("q")
    again.wait_gone("q closes")


def test_what_the_end_of_the_program_cut_off_is_told_and_nobody_is_asked_again(start: Start, tmp_path: Path) -> None:
    terminal = start("new")
    say(terminal, "say one", "echo: say one")
    terminal.enter("children north south")
    terminal.answer("a", "Approval 1 of 2")
    terminal.wait_at_bottom("asks to run this cell", "Approval 1 of 2")
    wait_until(lambda: asked(tmp_path / "state/freeact/sessions.db") == 4)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")  # as it is if the program is killed now
    (session,) = os.listdir(tmp_path / "copy/freeact/sessions")
    again = start(session, state="copy")
    again.wait_at_bottom("✗ cancelled: the program ended before it did", READY)
    for name in ("north", "south"):
        again.wait_for_match(rf"✗ .... {name}  cancelled: the program ended")
    assert "Approval" not in again.shown
    assert "at work" not in again.bottom
    say(again, "say more", "say more")


def test_what_was_undone_and_what_went_along_is_not_drawn_again(start: Start, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("buy rain gauges")
    terminal = start("new")
    say(terminal, "say @notes.md please", "echo: say @notes.md please")
    say(terminal, "say undone", "echo: say undone")
    terminal.enter("/undo")
    terminal.wait_for("undone: say undone")
    terminal.wait_at_bottom(READY)
    again = start(left(terminal))
    again.wait_at_bottom("> say @notes.md please", "echo: say @notes.md please", READY)
    assert "> say undone" not in again.shown
    begin = again.shown.index("> say @notes.md please")
    assert "buy rain gauges" not in again.shown[begin : again.shown.index("echo:", begin)]


def test_a_damaged_record_takes_nothing_else_with_it(start: Start, tmp_path: Path) -> None:
    terminal = start("new")
    say(terminal, "say one", "echo: say one")
    say(terminal, "say two", "echo: say two")
    session = left(terminal)
    with closing(sqlite3.connect(tmp_path / "state/freeact/sessions.db")) as connection:
        (first,) = connection.execute("SELECT MIN(event_id) FROM events WHERE type = 'Response'").fetchone()
        connection.execute("UPDATE events SET event = '{' WHERE event_id = ?", (first,))
        connection.commit()
    again = start(session)
    again.wait_at_bottom("> say one", "1 event of the session cannot be read", "> say two", "echo: say two", READY)


def test_another_conversation_is_drawn_when_it_is_resumed_from_one(start: Start) -> None:
    terminal = start("new")
    say(terminal, "say one", "echo: say one")
    first = left(terminal)
    other = start("new")
    say(other, "say other", "echo: say other")
    other.enter(f"/resume {first}")
    other.wait_for(f"resumed {first}; /resume ")
    other.wait_at_bottom("> say one", "echo: say one", READY)
    assert left(other) == first
