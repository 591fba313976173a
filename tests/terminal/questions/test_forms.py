"""A question with choices or a form, answered by a person in the terminal, drawn or in plain lines."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.terminal import CONVERSATION, CTRL_D, ESCAPE, Terminal

pytestmark = pytest.mark.e2e


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(**env: str) -> Terminal:
        variables = {"PYDANTIC_AI_NO_BANNER": "1", **env}
        opened.append(Terminal([sys.executable, str(CONVERSATION)], cwd=tmp_path, env=variables))
        opened[-1].wait_for("/help")
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.__exit__(None, None, None)


def test_in_plain_lines_choices_are_numbered_and_a_wrong_value_is_asked_again(start: Callable[..., Terminal]) -> None:
    terminal = start(TERM="dumb")
    terminal.press("ask several form\r")
    terminal.wait_for("Question 1 of", "1 of 2: Which database shall it use?", "  2. PostgreSQL", "Ctrl-D gives no answer")
    terminal.press("2\r")
    terminal.wait_for("2 of 2: Why?")
    terminal.press("because\r")
    terminal.wait_for("The server", "1 of 2: port")
    terminal.press("many\r")
    terminal.wait_for("port must be a whole number, at least 1")
    terminal.press("80\r")
    terminal.wait_for("2 of 2: secure", "  1. yes")
    terminal.press("2\r")
    terminal.wait_for("the answers are there")


def test_in_the_terminal_arrows_numbers_and_free_text_answer(start: Callable[..., Terminal]) -> None:
    terminal = start()
    terminal.enter("ask several")
    terminal.reply("\x1b[B", "> 1. SQLite")
    terminal.reply("\r", "> 2. PostgreSQL")
    terminal.reply("\x1b[D", "2 of 2: Why?")
    terminal.reply("3\r", "1 of 2: Which database")
    terminal.reply("my reason\r", "2 of 2: Why?")
    terminal.reply("y", "Which database shall it use?: DuckDB", "Why?: my reason", "Send these answers?")
    terminal.wait_for("DuckDB", "my reason", "the answers are there")


@pytest.mark.parametrize("end", [ESCAPE, CTRL_D])
def test_in_the_terminal_a_form_is_filled_in_and_a_question_gets_no_answer(start: Callable[..., Terminal], end: str) -> None:
    terminal = start()
    terminal.enter("ask form choice")
    terminal.reply("0\r", "1 of 2: port")
    terminal.reply("80\r", "port must be a whole number, at least 1")
    terminal.reply("n", "2 of 2: secure", "y yes · n no · ")
    terminal.reply("y", "port: 80", "secure: no", "Send these answers?")
    terminal.reply(end, "> 1. SQLite")
    terminal.wait_for("Which database shall it use? → gets no answer", "the answers are there")


@pytest.mark.parametrize(("rows", "columns"), [(24, 80), (40, 120)])
def test_several_of_a_list_are_marked_by_space_and_looked_at_before_they_are_sent(
    tmp_path: Path, rows: int, columns: int
) -> None:
    with Terminal([sys.executable, str(CONVERSATION)], cwd=tmp_path, rows=rows, columns=columns) as terminal:
        terminal.wait_for("/help")
        terminal.enter("ask days")
        terminal.reply("\r", "> [ ] 1. Monday", "Space marks · Enter goes on")
        terminal.reply(" \x1b[B\x1b[B \r", "days needs an answer")  # at once, and no key is lost
        terminal.reply("\x1b[D", "2 of 2: why")
        terminal.reply(" \x1b[B \r", "> [x] 1. Monday", "[ ] 2. Tuesday", "[x] 3. Wednesday")
        terminal.reply("\r", "2 of 2: why")
        terminal.reply("\r", "days: Tuesday, Wednesday", "why: left out", "Send these answers?", "← back")
        terminal.wait_for("→ days: Tuesday, Wednesday", "the answers are there")
