"""Hooks of a file in a pseudo-terminal: what a person is asked about them, and Ctrl-C while one runs."""

import json
from pathlib import Path

import pytest
from support.chat_server import ChatCall, by_turn
from support.cli import PROGRAM, chat, environment
from support.terminal import CTRL_C, CTRL_D, Terminal
from support.waiting import is_running, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]

HANGS = "echo $$ > pid; sleep 600"
CHECK = "python3 .agents/hooks/check.py"


def test_hooks_are_shown_before_they_count_and_ctrl_c_ends_one_that_hangs(tmp_path: Path) -> None:
    (tmp_path / ".agents" / "hooks").mkdir(parents=True)
    (tmp_path / ".agents" / "hooks" / "check.py").write_text("raise SystemExit('not today')\n")
    commands = [{"type": "command", "command": HANGS}, {"type": "command", "command": CHECK, "required": True}]
    hooks = {"PreToolUse": [{"matcher": "code", "hooks": commands[:1]}], "PreCompact": [{"hooks": commands[1:]}]}
    (tmp_path / ".agents" / "hooks.json").write_text(json.dumps({"hooks": hooks}))
    script = by_turn([ChatCall("execute_ipython_cell", {"code": "open('ran', 'w')"})], ["Still here."])

    def terminal(columns: int) -> Terminal:
        return Terminal([PROGRAM, *server.options], cwd=tmp_path, env=environment(), rows=30, columns=columns)

    with chat(script) as server:
        with terminal(80) as asked:
            asked.wait_at_bottom("Trust these settings?", "y yes · n no:")
            shown = asked.shown.replace("\n", "")
            for text in (f"{tmp_path}/.agents/hooks.json", f"{tmp_path}/.agents/hooks/check.py", HANGS, CHECK, "not today"):
                assert text in shown
            assert "\nThe commands of hooks run with your rights, outside the sandbox.\n" in asked.shown
            assert "\nIf you say no, the program does not start.\n" in asked.shown
            asked.press("n")
            assert asked.wait_end() == 2
        assert not (tmp_path / "pid").exists()
        with terminal(120) as trusted:
            trusted.wait_at_bottom("Trust these settings?", "y yes · n no:")
            trusted.press("y")
            trusted.wait_at_bottom("type a prompt")
            trusted.enter("make it")
            wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip() != "")
            trusted.press(CTRL_C)
            trusted.wait_at_bottom("cancelled", "type a prompt")
            assert not is_running(int((tmp_path / "pid").read_text()))
            assert not (tmp_path / "ran").exists()
            trusted.enter("and now?")
            trusted.wait_for("Still here.")
            trusted.wait_at_bottom("type a prompt")
            trusted.press(CTRL_D)
            assert trusted.wait_end() == 0
