"""The card of a cell in a pseudo-terminal, with real kernels: it shows what the cell would do, and a yes is to that."""

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest
from support.sandbox import NEEDS_A_WALL
from support.terminal import ALT_ENTER, CONVERSATION, ENTER, READY, Terminal

from freeact_sub.system.private_folders import sweep

pytestmark = [pytest.mark.e2e, pytest.mark.kernel, NEEDS_A_WALL]
CHANGES = "rows = open('rows').read().split(); open('rows', 'w').write(rows[0]);"
TRIED = "tried, in a copy that is dropped; a yes runs it:"


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_a_yes_is_to_what_the_person_has_seen(tmp_path: Path, term: str) -> None:
    rows, plain = tmp_path / "rows", term == "dumb"
    rows.write_text("one two")
    (tmp_path / "cell").write_text(CHANGES)
    command, env = [sys.executable, str(CONVERSATION)], {"REAL_KERNELS": "1", "TERM": term, "PYDANTIC_AI_NO_BANNER": "1"}

    def answer(key: str) -> None:
        terminal.enter(key) if plain else terminal.reply(key)

    with Terminal(command, cwd=tmp_path, env=env) as terminal:
        terminal.wait_for("complete" if plain else READY)
        terminal.enter("run cell cell")
        terminal.wait_for(TRIED, "rows: list 2 ['one', 'two']", "-one two", "+one")
        rows.write_text("three four")
        answer("y")
        terminal.wait_for("tried again, changed since: rows", "-three four", "+three")
        assert rows.read_text() == "three four"
        answer("y")
        terminal.wait_until(lambda: rows.read_text() == "three", "the cell to run")
        terminal.wait_for("rows: element 'four' gone")
        answer("e")
        if plain:
            terminal.enter("print(7 * 6); gone = rows")
            terminal.enter(".")
        else:
            terminal.press(ENTER + "print(7 * 6)" + ALT_ENTER)
            terminal.wait_for("as you have changed it")
        terminal.wait_for("\n42" if plain else "    42")
        answer("y")
        terminal.wait_for("all of it was asked")
        terminal.wait_for_match(r"^> ?\Z" if plain else READY)
        terminal.enter("/effects")
        terminal.wait_for("changed since your last prompt (/undo takes it back):", "rows: list ", "-one two")


def test_cells_that_change_nothing_are_not_asked_about_after_one_key(tmp_path: Path) -> None:
    (tmp_path / "look").write_text("'look'.upper()")
    (tmp_path / "write").write_text("open('made', 'w').close()")
    command, env = [sys.executable, str(CONVERSATION)], {"REAL_KERNELS": "1", "PYDANTIC_AI_NO_BANNER": "1"}
    with Terminal(command, cwd=tmp_path, env=env) as terminal:
        terminal.wait_for(READY)
        terminal.enter("run look")
        terminal.wait_for("a and p: do not ask again about cells that change nothing", "    'LOOK'")
        terminal.reply("a")
        terminal.wait_at_bottom("ask, not harmless")
        terminal.enter("run look")
        terminal.wait_until(lambda: terminal.shown.count("all of it was asked") == 2, "the second look to run unasked")
        terminal.enter("run write")
        terminal.wait_for("added made", "a and p: all code runs unasked")
        terminal.reply("n")
        terminal.wait_at_bottom("ask, not harmless")
        terminal.enter("/mode ask")
        terminal.wait_for("but cells that change nothing run unasked (")
    assert not (tmp_path / "made").exists()


def test_a_child_is_asked_about_with_effects_and_a_killed_program_leaves_nothing_of_a_trial(tmp_path: Path) -> None:
    (tmp_path / "cell").write_text("open('made', 'w').close()\nwhile True: pass")
    command, env = [sys.executable, str(CONVERSATION)], {"REAL_KERNELS": "1", "PYDANTIC_AI_NO_BANNER": "1"}
    with Terminal(command, cwd=tmp_path, env=env) as terminal:
        terminal.wait_for(READY)
        terminal.enter("children north")
        terminal.answer("y", "asks to start a child")
        terminal.answer("y", "north asks to run this cell", TRIED, "    north was here")
        terminal.wait_for("the children are done")
        terminal.wait_at_bottom(READY)
        before = descendants(terminal.pid)
        terminal.enter("run cell")
        terminal.wait_for("trying it …")
        terminal.wait_until(lambda: len(descendants(terminal.pid) - before) > 0, "the trial to begin")
        started = descendants(terminal.pid)
        os.kill(terminal.pid, signal.SIGKILL)
        terminal.wait_end()
        _, left = psutil.wait_procs(started, timeout=60)
        assert not left
        sweep()  # as the next start does
        assert sorted(path.name for path in tmp_path.iterdir() if path.name != ".freeact") == ["cell"]


def descendants(pid: int) -> set[psutil.Process]:
    """All processes that a program has started."""
    return {*psutil.Process(pid).children(recursive=True)}
