"""A conversation in plain lines (`TERM=dumb`): words and names, no cursor movements, nothing twice."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.terminal import CONVERSATION, CTRL_C, CTRL_D, Terminal

ASKED = "or type why not)"
Start = Callable[..., Terminal]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    opened: list[Terminal] = []

    def start(*arguments: str, program: list[str] | None = None) -> Terminal:
        command = [sys.executable, *(program or [str(CONVERSATION)]), *arguments]
        env = {"PYDANTIC_AI_NO_BANNER": "1", "TERM": "dumb"}
        opened.append(Terminal(command, cwd=tmp_path, env=env))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.__exit__(None, None, None)


def answer(terminal: Terminal, *asked: str, by: str) -> None:
    """Answer the question that was printed last."""
    terminal.wait_until(lambda: all(text in last_question(terminal) for text in (*asked, ASKED)), f"{asked} to be asked")
    terminal.press(f"{by}\r")


def last_question(terminal: Terminal) -> str:
    return "Approval 1" + terminal.shown.rpartition("Approval 1")[2]


def is_free(terminal: Terminal) -> bool:
    return terminal.shown.endswith("\n>")


@pytest.mark.e2e
def test_children_ask_by_name_and_are_answered_by_words(start: Start) -> None:
    terminal = start()
    terminal.wait_until(lambda: is_free(terminal), "the first prompt")
    terminal.press("children north south\r")
    answer(terminal, "agent asks to start a child agent (north)", "children", by="yes, please")
    answer(terminal, "agent asks to start a child agent (south)", by="too many of them")
    terminal.wait_for("deny with the reason 'too many of them'? y yes, n no")
    terminal.press("y\r")
    answer(terminal, "north asks to run this cell", "print('north was here')", by="?")
    terminal.wait_for("why it asks")
    terminal.press("e\r")
    terminal.wait_for("type the code that runs instead")
    terminal.press("print('north was there')\r.\r")
    terminal.wait_for(
        "north ended (completed): turns 2", "agent says: the children are done", "agent ended (completed): turns 2"
    )
    terminal.wait_until(lambda: is_free(terminal), "the next prompt")
    shown = terminal.shown
    assert "agent was denied (too many of them): start a child agent: south" in shown
    assert "north was approved, with other code: print('north was there')" in shown
    for once in (
        "Approval 1 of 1: north asks",
        "too many of them'? y yes, n no",
        "agent says:",
        "north is started by agent: be north",
        "north says: north is done",
    ):
        assert shown.count(once) == 1
    assert not re.search(r"\b[0-9a-f]{4}\b|agent-[0-9a-f]|spawn|execute_ipython_cell|[·●✓✗│└├→]", shown.partition("> ")[2])
    terminal.press(CTRL_D)
    assert terminal.wait_end() == 0
    assert not re.search(rb"\x1b|\r(?!\n|\r)|\x08", terminal.written)


@pytest.mark.e2e
def test_one_prompt_code_stands_once_and_the_program_ends(start: Start) -> None:
    terminal = start("be north")
    answer(terminal, "agent asks to run this cell", by="y")
    assert terminal.wait_end() == 0
    assert terminal.shown.count("print('north was here')") == 1
    assert terminal.shown.count("agent output:\n  north was here\n") == 1


@pytest.mark.e2e
def test_words_that_are_commands_and_lines_that_go_on(start: Start) -> None:
    terminal = start()
    terminal.wait_until(lambda: is_free(terminal), "the first prompt")
    terminal.press("one\\\r")
    terminal.wait_for("one\\")
    terminal.press("two\r")
    terminal.wait_for("agent says:\n  echo: one\n  two")
    terminal.wait_until(lambda: is_free(terminal), "the next prompt")
    terminal.press("?\r")
    terminal.wait_for("list commands and keys", "the prompt goes on in the next")
    terminal.press("clear\r")
    terminal.wait_for("a new conversation")
    terminal.press("quit\r")
    assert terminal.wait_end() == 0


@pytest.mark.e2e
@pytest.mark.parametrize("command", ["/memory", "/effects", "/diff"])
def test_the_output_of_a_command_stands_between_two_invitations(start: Start, command: str) -> None:
    terminal = start()
    terminal.wait_until(lambda: is_free(terminal), "the first prompt")
    terminal.press("hello\r")
    terminal.wait_for("agent ended (completed)")
    terminal.wait_until(lambda: is_free(terminal), "the next prompt")
    terminal.press(f"{command}\r")
    terminal.wait_for_match(rf"^> {command}\n[^>\n][^>]*\n>\s*\Z")


@pytest.mark.e2e
def test_a_prompt_waits_and_comes_back_when_the_run_is_cancelled(start: Start, tmp_path: Path) -> None:
    terminal = start()
    terminal.wait_until(lambda: is_free(terminal), "the first prompt")
    terminal.press("slow never\r")
    terminal.press("count\r")
    terminal.wait_for("waits for its turn: count")
    while "not sent: count" not in terminal.shown:  # the run may not have begun yet
        notes = terminal.shown.count("Ctrl-D or /exit quits.")
        terminal.press(CTRL_C)
        terminal.wait_until(
            lambda notes=notes: "not sent: count" in terminal.shown or terminal.shown.count("Ctrl-D or /exit") > notes,
            "an effect",
        )
    terminal.wait_for("agent ended (cancelled)")
    terminal.wait_until(lambda: is_free(terminal), "the next prompt")
    terminal.press(CTRL_D)
    assert terminal.wait_end() == 0
