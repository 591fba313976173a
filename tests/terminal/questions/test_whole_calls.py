"""No key answers a question whose call is hidden: each line of code is on the terminal, once, before a key counts."""

import sys
from pathlib import Path

import pytest
from support.sandbox import NEEDS_A_WALL
from support.terminal import CONVERSATION, CTRL_C, ENTER, READY, RIGHT, Terminal

pytestmark = [pytest.mark.e2e, pytest.mark.kernel, NEEDS_A_WALL]
SIZES = [(24, 80), (40, 120), (12, 40)]
LENGTHS = (5, 10, 22, 60)
KEYS = "y yes"


def code_lines(length: int) -> list[str]:
    """The lines of a cell; the first one has no words that could be its title, the last one is what a yes would be about."""
    return [*(f"v{length}_{number:02} = {number}" for number in range(length - 1)), f"print('the last of {length}')"]


def standing(terminal: Terminal, lines: list[str]) -> list[str]:
    """Those of the lines that are on the terminal, in the order in which they are. A head shows a cell's first line."""
    rows = [row.strip().removeprefix("● Python  ") for row in terminal.shown.split("\n")]
    return [row for row in rows if row in lines]


def cells(folder: Path) -> str:
    """Write the cells; their names."""
    for length in LENGTHS:
        (folder / f"cell{length}").write_text("\n".join(code_lines(length)))
    return " ".join(f"cell{length}" for length in LENGTHS)


@pytest.mark.parametrize(("rows", "columns"), SIZES)
@pytest.mark.parametrize("kind", ["not tried", "tried", "of a child"])
def test_each_line_of_code_stands_on_the_terminal_once(tmp_path: Path, kind: str, rows: int, columns: int) -> None:
    names = cells(tmp_path)
    env = {"PYDANTIC_AI_NO_BANNER": "1", **({} if kind == "not tried" else {"REAL_KERNELS": "1"})}
    with Terminal([sys.executable, str(CONVERSATION)], cwd=tmp_path, env=env, rows=rows, columns=columns) as terminal:
        terminal.wait_for("type a")
        for length, name in zip(LENGTHS, names.split(), strict=True):
            lines = code_lines(length)
            terminal.press(f"{'hand' if kind == 'of a child' else 'run'} {name}{ENTER}")
            if kind == "of a child":
                terminal.reply("y", "asks to start", KEYS)
            terminal.wait_at_bottom("asks to run", KEYS)
            if kind != "not tried":
                terminal.wait_gone("trying it")
            terminal.wait_until_whole()
            assert standing(terminal, lines) == lines, terminal.shown
            assert lines[-1] in terminal.bottom
            terminal.reply("y", KEYS)
            terminal.wait_for(f"all of it was {'handed out' if kind == 'of a child' else 'asked'}")
            terminal.wait_gone(KEYS)
            terminal.wait_until_whole()
            after = standing(terminal, lines)
            assert len(after) == len({*after}), terminal.shown
            terminal.wait_at_bottom("type a")


def test_a_key_that_is_pressed_before_the_code_can_be_read_answers_nothing(tmp_path: Path) -> None:
    names = cells(tmp_path).split()
    with Terminal([sys.executable, str(CONVERSATION)], cwd=tmp_path, rows=24, columns=80) as terminal:
        terminal.wait_for(READY)
        terminal.enter(f"run {names[-1]}")
        terminal.wait_for(code_lines(60)[-1])
        terminal.press("y")  # typed at once: no answer
        terminal.wait_at_bottom("60 lines of code above", KEYS)
        assert "Approval 1 of 1" in terminal.bottom
        terminal.reply("n", KEYS)
        terminal.wait_for("denied")


def test_one_key_allows_what_has_been_listed_whole_and_the_count_is_that_of_the_question(tmp_path: Path) -> None:
    names = [f"cell{number:02}" for number in range(1, 6)]
    for name in names:
        (tmp_path / name).write_text("\n".join(f"{name}_{number} = {number}" for number in range(12)))
    with Terminal([sys.executable, str(CONVERSATION)], cwd=tmp_path, rows=24, columns=80) as terminal:
        terminal.wait_for(READY)
        terminal.enter("hand " + " ".join(names))
        terminal.reply("a", "Approval 1 of 5", "asks to start")
        terminal.wait_at_bottom("of 5", "asks to run this cell", "A lists all 5")
        for number in (2, 3, 4, 5, 1, 2):
            terminal.reply(RIGHT, "asks to run this cell", KEYS)
            terminal.wait_at_bottom(f"Approval {number} of 5")
        terminal.reply("/", KEYS)
        terminal.enter("4")
        terminal.wait_at_bottom("Approval 4 of 5")
        terminal.reply("A", "A lists all 5")
        terminal.wait_at_bottom("A all 5", "of 5")
        for name in names:
            lines = [f"{name}_{number} = {number}" for number in range(12)]
            assert standing(terminal, lines) == lines
        terminal.reply("A", "A all 5")
        terminal.wait_for("all of it was handed out")


def test_twenty_questions_are_listed_before_one_key_answers_them(tmp_path: Path) -> None:
    with Terminal([sys.executable, str(CONVERSATION)], cwd=tmp_path, rows=24, columns=80) as terminal:
        terminal.wait_for(READY)
        terminal.press("children " + " ".join(f"c{number:02}" for number in range(20)) + ENTER)
        terminal.wait_at_bottom("Approval 1 of 20", "/2 agent: Child  c01", "A all 5")
        terminal.press(CTRL_C)
        terminal.wait_at_bottom(READY)
