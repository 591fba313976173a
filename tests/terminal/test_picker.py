"""A person chooses a session among a thousand."""

import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from rich.cells import cell_len
from support.cli import PROGRAM
from support.many_sessions import add_sessions
from support.terminal import CTRL_D, ENTER, ESCAPE, READY, Terminal

from freeact_sub.terminal.listing import matching
from freeact_sub.terminal.present import GROUPS, session_rows

DOWN, PAGE_DOWN = "\x1b[B", "\x1b[6~"


def test_a_thousand_sessions_are_grouped_and_searched(tmp_path: Path) -> None:
    store = add_sessions(tmp_path / "state", tmp_path)
    with closing(sqlite3.connect(tmp_path / "state/sessions.db")) as connection:
        connection.execute("UPDATE runs SET prompt = '@sha256:gone', ending = '{' WHERE session_id = 's-0003'")
        connection.commit()
    lock = store.lock("s-0006")
    lock.take()  # as another program that has it open
    rows = session_rows(store, tmp_path, "s-0000")
    drawn = [row.drawn(100) for row in rows[:3] if row.drawn is not None]
    lock.give_back()
    assert len(rows) == 999
    assert [row.value for row in rows[:2]] == ["s-0003", "s-0006"]  # a damaged one stays
    assert ["open elsewhere" in row for row in drawn] == [False, True, False]
    assert [row.group for row in rows] == [group for group in GROUPS for _ in range(333)]
    shutil.rmtree(tmp_path / "state")  # the search reads no disk, so a key is fast among a thousand sessions
    texts = [row.words for row in rows]
    assert [rows[at].value for at in matching(texts, ["PROMPT", "3", "0421"])] == ["s-0421"]
    assert [rows[at].value for at in matching(texts, ["s-0422"])] == ["s-0422"]
    assert list(matching(texts, ["no", "such", "words"])) == []


@pytest.mark.parametrize("columns", [20, 38, 78, 118])
def test_a_session_is_one_row_of_any_width(tmp_path: Path, columns: int) -> None:
    store = add_sessions(tmp_path / "state", tmp_path, 6)
    lines = [row.drawn(columns) for row in session_rows(store, tmp_path) if row.drawn is not None]
    assert {cell_len(line) for line in lines} == {columns}
    assert lines[0].startswith("clean sta")
    if columns >= 38:
        assert [line.split("  ")[-1].split(" · ")[0].strip() for line in lines][:2] == ["just now", "3 h ago"]
    if columns >= 78:
        assert "3,102 tokens" in lines[0]


@pytest.mark.e2e
@pytest.mark.parametrize(("rows", "columns", "no_colour"), [(24, 80, ""), (40, 120, "1"), (12, 40, "1")])
def test_arrow_keys_a_search_and_leaving(tmp_path: Path, rows: int, columns: int, no_colour: str) -> None:
    add_sessions(tmp_path / "state/freeact", tmp_path)
    env = {"XDG_STATE_HOME": str(tmp_path / "state"), "NO_COLOR": no_colour, "FREEACT_MODEL": "test"}
    with Terminal([PROGRAM, "--resume"], cwd=tmp_path, env=env, rows=rows, columns=columns) as terminal:
        terminal.wait_at_bottom("1,000 of 1,000", GROUPS[0], "> clean station 0")
        terminal.press(DOWN)
        terminal.wait_at_bottom("> clean station 3")
        terminal.press(PAGE_DOWN * 100)
        terminal.wait_at_bottom("> clean station 998")
        terminal.press("number 0421")
        terminal.wait_at_bottom("1 of 1,000", "clean station 421", "resume: number 0421")
        terminal.press("x")
        terminal.wait_at_bottom("no match")
        terminal.press(ENTER)  # nothing is chosen
        terminal.press(ESCAPE)
        assert terminal.wait_end() == 2
    assert "no session was chosen" in terminal.shown


@pytest.mark.e2e
@pytest.mark.parametrize("rows", [6, 24])
def test_a_list_below_other_lines_fits_a_small_window(tmp_path: Path, rows: int) -> None:
    program = """
import sys
from freeact_sub.terminal.listing import Chooser, Row, choose
rows = [Row(value=str(number), text=f"model {number}") for number in range(30)]
print("chosen", choose(Chooser("model: ", lambda: rows, takes="takes it", none=""), sys.stdout, draws=True, head="Which?"))
"""
    with Terminal([sys.executable, "-c", program], cwd=tmp_path, rows=rows) as terminal:
        terminal.wait_at_bottom("> model 0", "30 of 30")
        terminal.press(DOWN * 9)
        terminal.wait_at_bottom("> model 9")
        terminal.press(ENTER)
        terminal.wait_for("chosen 9")


@pytest.mark.e2e
def test_a_conversation_is_picked_in_another_one_and_ids_are_completed_with_titles(tmp_path: Path) -> None:
    program = Path(__file__).parents[1] / "support" / "scripted_screens.py"
    env = {"PYDANTIC_AI_NO_BANNER": "1", "CLOCK_RUNS": "1", "SESSION": "new", "XDG_STATE_HOME": str(tmp_path / "state")}
    for prompt in ("say one", "say two"):
        with Terminal([sys.executable, str(program)], cwd=tmp_path, env=env) as terminal:
            terminal.wait_at_bottom(READY)
            terminal.enter(prompt)
            terminal.wait_for(f"echo: {prompt}")
            terminal.wait_at_bottom(READY)
            if prompt == "say two":
                terminal.press("/resume ")
                terminal.wait_at_bottom("say one · just now")
                terminal.press("\x03/resume\r")  # keys that follow Ctrl-C at once are not cleared with the line
                terminal.wait_at_bottom("1 of 1", "> say one")
                terminal.press(ENTER)
                terminal.wait_for("resumed say one", "> say one", "goes back")
                terminal.wait_at_bottom(READY)
            terminal.press(CTRL_D)
            assert terminal.wait_end() == 0
