"""What is long is looked at in the alternate screen, in a pseudo-terminal."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.terminal import CTRL_C, ENTER, ESCAPE, READY, RIGHT, UP, Terminal

CTRL_O, CTRL_T = "\x0f", "\x14"
PROGRAM = Path(__file__).parents[1] / "support" / "scripted_screens.py"

pytestmark = pytest.mark.e2e


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    env = {"PYDANTIC_AI_NO_BANNER": "1", "XTERM_VERSION": "1", "CLOCK_RUNS": "1"}
    with Terminal([sys.executable, str(PROGRAM)], cwd=tmp_path, env=env, rows=24) as terminal:
        terminal.wait_at_bottom(READY)
        yield terminal


def test_a_wide_table_and_a_long_output_are_scrolled_both_ways_searched_and_filtered(terminal: Terminal) -> None:
    terminal.enter("wide")
    terminal.answer("y", "Approval 1 of 1")
    terminal.wait_for("That was wide.")
    terminal.wait_at_bottom("2 turns", "tokens\n", READY, "ask · ")
    assert "columns 1 to 12 of 40\n" in terminal.shown
    assert "of 40 · ctrl-o shows the whole table" in terminal.shown
    before = terminal.bottom
    terminal.press(CTRL_O)
    terminal.wait_at_bottom("That was wide.", "q closes")  # its end first
    assert "column 40" not in terminal.bottom
    terminal.press("/COLUMN 0")
    terminal.wait_at_bottom("/COLUMN 0")
    terminal.press(ENTER)
    terminal.wait_at_bottom("column 0", "cell 0", "q closes")
    terminal.wait_until(lambda: terminal.screen.display[0].startswith(" column 0 "), "the line that was searched")
    for _ in range(50):
        terminal.press(RIGHT)
    terminal.wait_at_bottom("column 39", "cell 39")
    assert "column 0" not in terminal.bottom.replace("column 0's", "")
    terminal.press("&row 17")
    terminal.press(ENTER)
    terminal.wait_at_bottom("only 'row 17'", "1-11 of 11")
    terminal.press("&" + ENTER + "g")
    terminal.wait_gone("only")
    terminal.wait_at_bottom(" 1-23 of ")
    terminal.press(ESCAPE)
    terminal.wait_gone("q closes")
    terminal.wait_until(lambda: terminal.bottom == before, "what stood there before")
    terminal.press(CTRL_O + CTRL_O)
    terminal.wait_at_bottom("q closes")
    terminal.send_signal(signal.SIGTERM)  # the second pager must not open after it
    terminal.wait_end()
    assert "q closes" not in terminal.bottom


@pytest.mark.parametrize(("rows", "columns"), [(24, 80), (40, 120), (12, 40)])
def test_the_transcript_looks_like_the_conversation_and_one_output_unfolds_in_place(
    terminal: Terminal, rows: int, columns: int
) -> None:
    terminal.resize(rows, columns)
    terminal.enter("long")
    terminal.answer("y", "Approval 1 of 1")
    terminal.wait_for("That was long.")
    terminal.wait_at_bottom("2 turns", READY)
    seen = [line for line in terminal.bottom.splitlines() if " rows in file " in line]
    terminal.press(CTRL_O)
    terminal.wait_at_bottom("q closes", "That was long.")
    assert [line for line in terminal.bottom.splitlines() if " rows in file " in line][-len(seen) :] == seen
    folded = "… 2,988 more lines (Enter"
    terminal.press("\x1b[Z")  # Shift-Tab: there is one action, and it is taller than the window or its beginning is shown
    terminal.press("g" + "/2,988 more" + ENTER)  # the search unfolds, so there is no such line
    terminal.wait_until(lambda: " of 3,0" in terminal.bottom, "all to be unfolded")
    terminal.press("\x0f")
    terminal.wait_until(lambda: " of 3,0" not in terminal.bottom, "all to be folded")
    terminal.press("G" + "k" * (3 if rows == 12 else 0))
    terminal.wait_at_bottom(folded)
    marked = [line for line in range(rows - 1) if terminal.screen.buffer[line][4].reverse]
    assert "… 2,988" in "".join(terminal.screen.display[line] for line in marked)
    terminal.press(ENTER)
    terminal.wait_at_bottom(" of 3,0")
    terminal.press(ENTER)  # the same key folds it again
    terminal.wait_until(lambda: " of 3,0" not in terminal.bottom, "it to be folded")
    terminal.press("q")
    terminal.wait_gone("q closes")
    terminal.wait_at_bottom("That was long.", READY)


def test_a_child_at_work_in_a_small_window_that_changes(terminal: Terminal, tmp_path: Path) -> None:
    terminal.enter("stations harbour ridge")
    terminal.answer("a", "Approval 1 of 2")
    terminal.wait_at_bottom("3 agents at work")
    terminal.resize(12, 40)
    terminal.press(CTRL_T)
    terminal.wait_at_bottom("> /show", "clean harbour.csv", "clean ridge.csv")
    terminal.press("harbour" + ENTER)
    terminal.wait_at_bottom("clean harbour.csv", "> stay harbour", "q closes")
    assert "write harbour.csv" not in terminal.bottom
    (tmp_path / "harbour").touch()
    terminal.wait_at_bottom("1 question open", "○ Python  write harbour.csv")  # it grows while one looks
    terminal.resize(24, 100)
    terminal.wait_at_bottom(" clean harbour.csv", "○ Python  write harbour.csv")
    terminal.press(CTRL_C)
    terminal.wait_gone("q closes")
    terminal.answer("y", "clean harbour.csv asks to run this cell")  # the Ctrl-C was the pager's alone
    terminal.wait_for(" clean harbour.csv  ")
    (tmp_path / "ridge").touch()
    terminal.wait_at_bottom("clean ridge.csv asks to run this cell")
    terminal.press(CTRL_T)
    terminal.wait_at_bottom(" clean ridge.csv", "q closes")
    terminal.press(UP + "q")
    terminal.wait_gone("q closes")
    terminal.answer("y", "clean ridge.csv asks to run this cell")
    terminal.wait_for("all are clean")
