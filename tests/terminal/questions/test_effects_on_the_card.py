"""The card of a cell in a pseudo-terminal, with real kernels: it shows what the cell would do, and a yes is to that."""

import sys
from pathlib import Path

import pytest
from support.sandbox import NEEDS_A_WALL
from support.terminal import ALT_ENTER, CONVERSATION, ENTER, READY, Terminal

pytestmark = [pytest.mark.e2e, pytest.mark.kernel, NEEDS_A_WALL]
CHANGES = "rows = open('rows').read().split(); open('rows', 'w').write(rows[0]);"
TRIED = "tried, in a copy that is dropped; y runs it:"


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_a_yes_is_to_what_the_person_has_seen(tmp_path: Path, term: str) -> None:
    rows, plain = tmp_path / "rows", term == "dumb"
    rows.write_text("one two")
    (tmp_path / "cell").write_text(CHANGES)
    command, env = [sys.executable, str(CONVERSATION)], {"EFFECTS": "1", "TERM": term, "PYDANTIC_AI_NO_BANNER": "1"}

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
        terminal.wait_for("rows: list 2 ['three', 'four'] -> list 1 ['three']")
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
