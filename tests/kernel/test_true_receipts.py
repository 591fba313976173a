"""Receipts name the files that Python wrote, not what a person saved, and tell commands of libraries apart."""

import pytest
from support.agents import cell
from support.elsewhere import CANNOT_FORK
from support.sandbox import NEEDS_A_WALL
from support.trials import ON
from support.waiting import tick_of_files, until_there

from freeact_sub import Agent, Config
from freeact_sub.calls import CodeAction
from freeact_sub.events import ApprovalRequest, CodeExecutionOutputChunk
from freeact_sub.testing import ScriptedModel

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(CANNOT_FORK, reason="kernels are branched on Linux only"),
    NEEDS_A_WALL,
]
WAIT = f"print('now', flush=True)\n{until_there('../saved')}"
CELLS = {
    "no program": ("x = 1", []),
    "Python writes": ("open('own.txt', 'w').close()", ["own.txt"]),
    "a person saves meanwhile": (WAIT, []),
    "a program writes": ("!echo a > own.txt", []),
    "a program runs": (f"import subprocess\np = subprocess.Popen(['sleep', '600'])\n{WAIT}\np.kill(); p.wait()", []),
}  # fmt: skip


@pytest.mark.parametrize("name", CELLS)
async def test_files_that_a_person_saves_are_not_the_agents(tmp_path, name):
    code, written = CELLS[name]
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with Agent(Config(workspace=workspace, effects=ON), model=ScriptedModel([cell(code), "done"])) as agent:
        run = agent.run("root")
        async for event in run:
            if isinstance(event, ApprovalRequest):
                if isinstance(event.call, CodeAction) and WAIT not in code:
                    assert (await event.effects_ready()).status != "refused"
                if WAIT not in code:
                    (workspace / f"saved-{event.request_id}.txt").write_text("mine")
                    await tick_of_files(workspace)
                event.approve()
            elif isinstance(event, CodeExecutionOutputChunk) and "now" in str(event.output):
                await tick_of_files(workspace)
                (workspace / "person.txt").write_text("mine")
                await tick_of_files(workspace)
                (tmp_path / "saved").touch()
        result = await run.result()
    assert sorted(result.files_written) == written
    assert [file.path for file in result.receipts.files_written] == written


async def test_commands_of_libraries_are_told_apart(tmp_path):
    code = "import ctypes.util, subprocess, os\nctypes.util.find_library('c')\nsubprocess.run(['true'])\nos.system('true')"
    async with Agent(Config(workspace=tmp_path, mode="full"), model=ScriptedModel([cell(code), "done"])) as agent:
        receipts = (await agent.run("root").result()).receipts
    assert receipts.commands_run == 2
    assert receipts.library_commands_run >= 1
    assert all(ran.by_library == (ran.command != "true") for ran in receipts.commands)
    assert "2 commands, " in str(receipts)
    assert "by libraries" in str(receipts)
