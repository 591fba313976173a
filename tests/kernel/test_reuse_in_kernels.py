"""`subagents.cache` with real kernels: what code does outside is done again."""

import pytest
from support.agents import cell

from freeact_sub import Agent, ApprovalRequest, Config
from freeact_sub.testing import ScriptedModel


@pytest.mark.parametrize(
    ("code", "again"),
    [
        ("print(6 * 7)", False),
        ("import subprocess; subprocess.run(['true'])", True),
        ("import socket; s = socket.socket(); s.connect_ex(('127.0.0.1', 9))", True),
        ("agent.shell('true', reason='x')", True),
    ],
)
async def test_a_child_whose_code_acts_outside_does_it_again(tmp_path, code, again):
    rules = tmp_path / "rules.toml"
    rules.write_text('allow = ["shell", "connect"]')
    config = Config(workspace=tmp_path, mode="full", permission_files=(rules,), subagents={"cache": True})

    def approve(event):
        if isinstance(event, ApprovalRequest):
            event.approve()

    async with Agent(config, model=ScriptedModel([[cell(code)], "done"]), taps=[approve]) as agent:
        first = await agent.spawn_and_run("look")
        second = await agent.spawn_and_run("look")
    assert (first.status, second.status) == ("completed", "completed")
    assert (second.reused_from == "") is again
