"""Plain IPython in a terminal: nothing can be updated in place there, and questions are lines at a prompt."""

import os
import sys

import pytest
from support.terminal import CTRL_C, CTRL_D, ENTER, Terminal

pytestmark = pytest.mark.e2e

SETUP = """
import asyncio
from freeact_sub import Agent, Config
from freeact_sub.testing import FakeKernelProvider, ScriptedModel
from pydantic_ai.messages import ToolCallPart

def cell(code):
    return ToolCallPart("execute_ipython_cell", {"code": code})

async def start(script):
    return await Agent(Config(), model=ScriptedModel(script), kernel_provider=FakeKernelProvider()).__aenter__()

def be_silent(messages, info):
    print("the model is silent")
    return [asyncio.Event()]

async def start_all():
    return [await start(script) for script in ([cell("print(6 * 7)"), cell("1 / 0"), "the end"], be_silent, [cell("1 + 1")])]
"""


def test_ipython_in_a_terminal(tmp_path):
    (tmp_path / "setup.py").write_text(SETUP)
    command = [
        sys.executable,
        "-m",
        "IPython",
        "--no-banner",
        "--no-confirm-exit",
        "--TerminalInteractiveShell.term_title=False",
    ]
    with Terminal(command, cwd=tmp_path, env={"IPYTHONDIR": os.fspath(tmp_path), "PROMPT_TOOLKIT_NO_CPR": "1"}) as terminal:

        def run(count, *lines):
            terminal.wait_at_bottom(f"In [{count}]:")
            terminal.press(ENTER.join(lines) + ENTER)

        run(1, "%load_ext freeact_sub.notebook")
        run(2, "%run setup.py")
        run(3, "answered, silent, asked = await start_all()")
        run(4, "result = await display_run(answered, 'first')")
        terminal.wait_at_bottom("asks to run this cell", "print(6 * 7)", "a reason for no:")
        terminal.press("y" + ENTER)
        terminal.wait_at_bottom("1 / 0", "a reason for no:")
        terminal.press("never" + ENTER)
        terminal.wait_for("> print(6 * 7)", "approved", "42", "denied: never", "the end", "completed · turns 3")

        run(5, "await display_run(silent, 'second'); print('not reached ' * 2)")
        terminal.wait_at_bottom("the model is silent")
        terminal.press(CTRL_C)
        terminal.wait_for("interrupted: the run was cancelled")

        run(6, "await display_run(asked, 'third')")
        terminal.wait_at_bottom("1 + 1", "a reason for no:")
        terminal.press(CTRL_C)
        terminal.wait_for("denied: cancelled")
        run(7, "print(silent.agents()[0].status, asked.agents()[0].status)")
        terminal.wait_for("cancelled cancelled")
        assert terminal.shown.count("interrupted: the run was cancelled") == 2
        assert "not reached not" not in terminal.shown
        run(8, CTRL_D)
        assert terminal.wait_end() == 0
