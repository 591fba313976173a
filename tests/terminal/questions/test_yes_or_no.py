"""A question with yes or no before a conversation: what is written or pasted that is no answer, and a terminal that is gone."""

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.terminal import Terminal

from freeact_sub.terminal.asking import GUARD_SECONDS

MOMENT = GUARD_SECONDS * 3
"""What takes less is no pause of the person, also on a machine that is busy meanwhile."""
ASKS = f"""
import signal, sys
from freeact_sub.terminal import asking
asking.GUARD_SECONDS = {MOMENT}
signal.signal(signal.SIGHUP, signal.SIG_IGN)
said = asking.agrees('Really?', sys.stdout)
open('said', 'w').write(str(said))
"""
ASKED = "y yes · n no:"

pytestmark = [pytest.mark.e2e]


@pytest.mark.parametrize("pieces", [["what", "y"], ["x" * 64 + "y"]], ids=["typed", "pasted"])
def test_a_letter_of_another_text_is_no_answer(tmp_path: Path, pieces: list[str]) -> None:
    with Terminal([sys.executable, "-c", ASKS], cwd=tmp_path) as terminal:
        terminal.wait_at_bottom(ASKED)
        for piece in pieces:
            terminal.press(piece)
            time.sleep(MOMENT / 12)  # as a person types
        time.sleep(MOMENT * 2)  # as one who stops: from then on a key counts
        terminal.press("n")
        terminal.wait_end()
    assert (tmp_path / "said").read_text() == "False"


def test_a_terminal_that_is_gone_says_no(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    program = [sys.executable, "-c", ASKS]
    process = subprocess.Popen(
        program, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, cwd=tmp_path, start_new_session=True
    )
    os.close(theirs)
    shown = b""
    while ASKED.encode() not in shown:
        shown += os.read(ours, 1024)
    os.close(ours)
    process.wait(timeout=30)
    assert (tmp_path / "said").read_text() == "False"
