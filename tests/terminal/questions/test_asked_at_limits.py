"""A person in a terminal of 80 x 24 is asked at a limit, sees what a compaction has left out, and is killed at a question."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from support.terminal import ESCAPE, READY, Terminal
from support.waiting import is_running, wait_until

from freeact_sub import list_sessions

pytestmark = [pytest.mark.e2e, pytest.mark.features("limits", "compaction")]

PROGRAM = Path(__file__).parents[2] / "support/limits_program.py"
KEYS = "a number or how a choice begins, then Enter · ↑ ↓ choose · Esc no answer"
CELL = """\
agent asks you
  A cell has been running for 1 s: while not pathlib.Path('there').exists():
  Go on?
  > 1. yes, 1 s more
    2. yes, as long as it needs
    3. no, stop it
"""
TURNS = """\
agent asks you
  The limit of turns is reached: 2 of 2, for this prompt.
  Go on?
  > 1. yes, 2 more
    2. no, stop
"""
COMPACTION = r"""
  makes room in its conversation: [\d,]+ → [\d,]+ tokens
  left out: 3 prompts and 4 turns, now a summary
  stays: the first prompt, the last turn, all variables
  the summary \(ctrl-o\)

The conversation was summarised, from [\d,]+ to [\d,]+ tokens\.
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(**env: str) -> Terminal:
        variables = {"PYDANTIC_AI_NO_BANNER": "1", "REAL_KERNELS": "1", **env}
        opened.append(Terminal([sys.executable, str(PROGRAM)], cwd=tmp_path, env=variables, rows=24, columns=80))
        opened[-1].wait_at_bottom(READY)
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.__exit__(None, None, None)


def test_limits_ask_and_the_answers_hold(start: Callable[..., Terminal], tmp_path: Path) -> None:
    terminal = start()
    terminal.enter("wait there")
    terminal.wait_at_bottom(CELL + KEYS)
    terminal.reply("\r", "running for 1 s")
    terminal.reply("2\r", "running for 2 s")
    terminal.wait_for_match(r"→\s+yes, as long as it needs")
    (tmp_path / "there").touch()
    terminal.wait_for("there is there", "the cell has ended")
    terminal.wait_at_bottom(READY)
    terminal.enter("wait never")
    terminal.reply("n\r", "running for 1 s")
    terminal.wait_for("timeout after")
    terminal.wait_at_bottom(READY)
    terminal.enter("turns one two three four")
    terminal.wait_at_bottom(TURNS + KEYS)
    terminal.reply("\r", "2 of 2")
    terminal.reply(ESCAPE, "4 of 4")
    terminal.wait_for("→ gets no answer", "✗ limit: the limit of turns is reached: 4 of 4")


def test_a_compaction_tells_what_went_and_the_summary_is_behind_a_key(start: Callable[..., Terminal]) -> None:
    terminal = start()
    terminal.enter("turns one")
    for _ in range(3):
        terminal.wait_at_bottom(READY)
        terminal.enter("say 500")
        terminal.wait_for("word word")
    terminal.wait_at_bottom(READY)
    terminal.enter("/compact the tables")
    terminal.wait_for("the conversation takes", "a summary takes the place of")
    terminal.wait_for_match(COMPACTION)
    terminal.press("\x0f")
    terminal.wait_for("the summary (Enter)")
    terminal.press("\r")
    terminal.wait_for("three tables were counted")


def test_a_program_that_is_killed_at_the_question_leaves_nothing_and_its_session_goes_on(
    start: Callable[..., Terminal],
) -> None:
    terminal = start(SESSION="new")
    terminal.enter("wait never")
    terminal.wait_at_bottom(CELL.replace("there", "never") + KEYS)
    left = psutil.Process(terminal.pid).children(recursive=True)
    assert left
    os.kill(terminal.pid, signal.SIGKILL)
    wait_until(lambda: not any(is_running(process.pid) for process in left))
    again = start(SESSION=list_sessions()[0].session_id)
    again.enter("go on")
    again.wait_for("Your kernel is new", "the last run was", "(the program ended before anybody answered)")
