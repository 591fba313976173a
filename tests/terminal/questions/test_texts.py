"""Questions that are answered by a text: in the conversation, and line by line."""

import io
import os
import pty
import sys
import termios
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.sample_events import question
from support.terminal import CTRL_D, ENTER, ESCAPE, READY, Terminal
from support.waiting import eventually

from freeact_sub.events import Answer
from freeact_sub.terminal.asking import Approver, LineApprover

CODE = """
import getpass
print("got", [input("first? "), len(getpass.getpass("key? ")), input("path? ")])
input("declined? ")
"""
PROGRAM = f"""
import asyncio, sys
from pathlib import Path
from freeact_sub.agent import Agent
from freeact_sub.config.schema import Config
from freeact_sub.terminal.conversation import converse
from freeact_sub.testing import ScriptedModel
from pydantic_ai.messages import ToolCallPart

config = Config(workspace=Path.cwd(), mode="full", kernel={{"sandbox": "off"}})
model = ScriptedModel([[ToolCallPart("execute_ipython_cell", {{"code": {CODE!r}}})], "all done"])
sys.exit(asyncio.run(converse(lambda: Agent(config, model=model), config=config, prompt=None)))
"""


@pytest.mark.e2e
@pytest.mark.kernel
def test_the_line_takes_a_text_hides_a_secret_and_escape_declines(tmp_path: Path) -> None:
    with Terminal([sys.executable, "-c", PROGRAM], cwd=tmp_path, env={"PYDANTIC_AI_NO_BANNER": "1"}) as terminal:
        terminal.wait_at_bottom(READY)
        terminal.enter("go")
        terminal.wait_for("Question 1 of 1", "first?", "then Enter")
        terminal.enter("y")
        terminal.wait_for("key?", "(it is not shown)")
        terminal.press("hunter2")
        terminal.wait_for("*******")
        terminal.press(ENTER)
        terminal.wait_for("path?", "type the answer, then Enter")
        terminal.enter("/etc/hosts")
        terminal.wait_for("got ['y', 7, '/etc/hosts']", "declined?", "type the answer, then Enter")
        terminal.press(ESCAPE)
        terminal.wait_for("gets no answer", "all done")
        assert "hunter2" not in terminal.shown
        terminal.press(CTRL_D)


async def test_lines_are_read_as_they_are_and_a_secret_without_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    answers: list[Answer] = []
    written: list[str] = []

    def echoes() -> bool:
        return bool(termios.tcgetattr(theirs)[3] & termios.ECHO)

    with open(theirs, closefd=False) as stdin, monkeypatch.context() as patched:
        patched.setattr(sys, "stdin", stdin)
        with LineApprover(Mock(spec=io.TextIOWrapper, write=written.append)) as approver:
            approver.observe(question("question-1", lambda answer: not answers.append(answer)))
            os.write(ours, b"no, it is /x \n")
            await eventually(lambda: len(answers) == 1)
            assert echoes()
            approver.observe(question("question-2", lambda answer: not answers.append(answer), prompt="Key?", secret=True))
            assert not echoes()
            os.write(ours, b"\n")
            await eventually(lambda: len(answers) == 2)
            await eventually(echoes)
            approver.observe(question("question-3", lambda answer: not answers.append(answer), secret=True))
        assert echoes(), "also where the run ends before an answer"
    os.close(ours)
    os.close(theirs)
    assert [answer.text for answer in answers] == ["no, it is /x ", ""]
    assert written[0].endswith("asks you\nName?\n")
    assert "Key?" in written[1]
    assert "(what you type is not shown)" in written[1]


def test_where_nobody_is_asked_a_question_ends_at_once() -> None:
    answers: list[Answer] = []
    Approver().observe(question("question-4", lambda answer: not answers.append(answer)))
    assert [(answer.text, answer.nobody) for answer in answers] == [(None, True)]
