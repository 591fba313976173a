"""What a program has inherited from its starter changes neither the wall, nor cells, nor what a hook decides."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.sandbox import NEEDS_A_WALL

pytestmark = [pytest.mark.kernel, NEEDS_A_WALL]

STATES = {
    "nothing": "",
    "SIGCHLD is ignored": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "all signals are ignored": "[signal.signal(each, signal.SIG_IGN) for each in signal.valid_signals() - {9, 19, 32, 33}]",
    "all signals are blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
    "no mask of file modes": "os.umask(0)",
    "no input and no errors": "os.close(0), os.close(2)",
    "low priority and other limits": "os.nice(5), resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128)), resource.setrlimit(resource.RLIMIT_CORE, (-1, -1))",
}
START = "import os, resource, signal, sys; {state}; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
PROGRAM = """
import asyncio, json, os, sys
from pathlib import Path
from support.agents import cell
from freeact_sub import Agent, Config
from freeact_sub.events import CodeExecutionOutput, Notice, ToolOutput
from freeact_sub.testing import ScriptedModel

folder = Path(sys.argv[1])
CELL = f'''
import json, os, signal, subprocess
ignored = sorted(each.name for each in signal.Signals if signal.getsignal(each) == signal.SIG_IGN)
code = subprocess.run("exit 3", shell=True).returncode
written = subprocess.run(["touch", {str(folder / "outside")!r}], capture_output=True).returncode == 0
print("TOLD", json.dumps([ignored, [*signal.pthread_sigmask(0, ())], code, written]))
'''
HOOKS = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "grep -q 'echo ran' && echo no >&2 && exit 2; exit 0"}]}]}}

async def main():
    told, notices = [], []
    (folder / "hooks.json").write_text(json.dumps(HOOKS))
    config = Config(workspace=folder / "workspace", mode="auto", hook_files=(folder / "hooks.json",))
    async with Agent(config, model=ScriptedModel([cell(CELL), cell("!echo ran"), "done"])) as agent:
        async for event in agent.run("Go."):
            if isinstance(event, CodeExecutionOutput):
                told.append(event.text)
            if isinstance(event, Notice):
                notices.append(event.content.replace(str(folder), "FOLDER"))
    Path(folder, "told").write_text(json.dumps({"told": told, "notices": notices}))

asyncio.run(main())
"""


@pytest.mark.parametrize("state", STATES)
def test_a_starter_changes_neither_wall_nor_cells_nor_hooks(state, tmp_path):
    (tmp_path / "workspace").mkdir()
    program = tmp_path / "program.py"
    program.write_text(f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n{PROGRAM}")
    start = START.format(state=STATES[state] or "pass")
    subprocess.run([sys.executable, "-c", start, str(program), str(tmp_path)], check=True, timeout=200)
    found = json.loads((tmp_path / "told").read_text())
    told = json.loads(found["told"][0].split("TOLD ")[1].splitlines()[0])
    assert told == [["SIGPIPE", "SIGXFSZ"], [], 3, False], found
    assert "ran" not in found["told"][1].split(), found
    assert [each for each in found["notices"] if "Landlock)" in each or "seccomp" in each or "namespaces" in each] == []
    assert not (tmp_path / "outside").exists()


RENEWED = """
import signal
from freeact_sub.system.process import renew_signals
renew_signals()
print(sorted(each.name for each in signal.Signals if signal.getsignal(each) == signal.SIG_IGN), signal.pthread_sigmask(0, ()))
"""


def test_the_program_ignores_what_its_starter_means_and_blocks_nothing():
    state = f"{STATES['all signals are ignored']}; {STATES['all signals are blocked']}"
    ran = subprocess.run(
        [sys.executable, "-c", START.format(state=state), "-c", RENEWED], capture_output=True, text=True, check=True
    )
    kept = ["SIGHUP", "SIGINT", "SIGPIPE", "SIGQUIT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGXFSZ"]
    assert ran.stdout == f"{kept} set()\n"
