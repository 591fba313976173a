"""What the terminal draws of background children between prompts: the program in a pseudo-terminal, with real keys."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.terminal import CONVERSATION, CTRL_C, CTRL_D, READY, Terminal

pytestmark = pytest.mark.e2e


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with Terminal([sys.executable, str(CONVERSATION)], cwd=tmp_path, env={"PYDANTIC_AI_NO_BANNER": "1"}) as terminal:
        terminal.wait_at_bottom(READY)
        yield terminal


def region(terminal: Terminal) -> list[str]:
    """The names of the children that are drawn above the line, with their marks."""
    return re.findall(r"^ +([●○?]) [0-9a-f]{4} (\w+)", terminal.bottom, re.MULTILINE)


def ended(terminal: Terminal, name: str) -> list[str]:
    """The lines of the scrollback about a child's end."""
    return [line for line in terminal.shown.split("\n") if re.match(rf" +[✓✗] [0-9a-f]{{4}} {name} ", line)]


def start(terminal: Terminal, line: str, *names: str) -> None:
    terminal.enter(f"background {line} {' '.join(names)}")
    terminal.answer("y" if len(names) == 1 else "A", f"({names[0]})")
    terminal.wait_for("they work behind you")


def test_they_are_drawn_while_the_person_types_and_each_end_is_told_once(terminal: Terminal, tmp_path: Path) -> None:
    start(terminal, "slow", "harbour", "ridge")
    terminal.wait_at_bottom(READY)
    terminal.wait_until(lambda: region(terminal) == [("●", "harbour"), ("●", "ridge")], "both to be at work")
    terminal.press("half a prompt")
    terminal.wait_at_bottom("> half a prompt")
    (tmp_path / "harbour").touch()
    terminal.wait_until(lambda: bool(ended(terminal, "harbour")), "the end of harbour")
    terminal.wait_until(lambda: region(terminal) == [("●", "ridge")], "ridge to go on")
    terminal.wait_at_bottom("> half a prompt", READY)
    assert len(ended(terminal, "harbour")) == 1
    assert terminal.shown.count("the beginning of a text and its end") == 1
    (tmp_path / "ridge").touch()
    terminal.wait_until(lambda: bool(ended(terminal, "ridge")), "the end of ridge")
    terminal.wait_until(lambda: not region(terminal), "the region to be empty")
    terminal.press(CTRL_C)
    terminal.wait_gone("> half a prompt")
    terminal.press(CTRL_D)
    assert terminal.wait_end() == 0


def test_other_prompts_are_answered_meanwhile_and_their_commands_find_them(terminal: Terminal) -> None:
    start(terminal, "slow", "harbour", "ridge")
    terminal.wait_at_bottom(READY)
    terminal.enter("one more thing")
    terminal.wait_for("echo: one more thing")
    terminal.wait_at_bottom(READY)
    terminal.wait_until(lambda: region(terminal) == [("●", "harbour"), ("●", "ridge")], "both to be at work")
    terminal.enter("/agents")
    terminal.wait_for_match(r"harbour +running")
    terminal.enter("/cancel harbour")
    terminal.wait_until(lambda: bool(ended(terminal, "harbour")), "the end of harbour")
    assert "cancelled" in ended(terminal, "harbour")[0]
    terminal.wait_until(lambda: region(terminal) == [("●", "ridge")], "ridge to go on")
    terminal.press(CTRL_D)
    assert terminal.wait_end() == 0
    assert len(ended(terminal, "ridge")) <= 1


def test_one_that_asks_between_prompts_has_its_card_and_what_was_typed_comes_back(
    terminal: Terminal, tmp_path: Path
) -> None:
    start(terminal, "cell", "harbour")
    terminal.wait_at_bottom(READY)
    terminal.press("half a prompt")
    terminal.wait_at_bottom("> half a prompt")
    (tmp_path / "harbour").touch()
    terminal.answer("y", "harbour asks to run this cell", "print('the cell ran')")
    terminal.wait_until(lambda: bool(ended(terminal, "harbour")), "the end of harbour")
    terminal.wait_at_bottom("> half a prompt", READY)
    assert "after the cell" in ended(terminal, "harbour")[0]


def test_ctrl_c_between_prompts_cancels_none_of_them(terminal: Terminal, tmp_path: Path) -> None:
    start(terminal, "slow", "harbour")
    terminal.wait_at_bottom(READY)
    terminal.press(CTRL_C)
    terminal.wait_for("Ctrl-D or /exit quits")
    terminal.wait_until(lambda: region(terminal) == [("●", "harbour")], "it to go on")
    (tmp_path / "harbour").touch()
    terminal.wait_until(lambda: bool(ended(terminal, "harbour")), "the end of harbour")
    assert "cancelled" not in terminal.shown
