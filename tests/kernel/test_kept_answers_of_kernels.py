"""Answers that may be given again after a crash, with real kernels: not of children whose code has acted outside."""

import pytest
from support.agents import cell

from freeact_sub import Agent, ApprovalRequest, Config
from freeact_sub.sessions import session_store
from freeact_sub.testing import ScriptedModel

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize(
    ("code", "is_kept"),
    [
        ("print(6 * 7)", True),
        ("import subprocess; subprocess.run(['true'])", False),
        ("import socket; s = socket.socket(); s.connect_ex(('127.0.0.1', 9))", False),
        ("agent.shell('true', reason='x')", False),
    ],
)
async def test_the_answer_of_a_child_whose_code_acts_outside_is_not_kept(tmp_path, monkeypatch, code, is_kept):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    rules = tmp_path / "rules.toml"
    rules.write_text('allow = ["shell", "connect"]')
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    config = Config(workspace=workspace, mode="full", permission_files=(rules,))

    def approve(event):
        if isinstance(event, ApprovalRequest):
            event.approve()

    model = ScriptedModel([[cell(code)], "done"])
    async with Agent(config, model=model, taps=[approve], session="new") as agent:
        assert (await agent.spawn_and_run("look")).status == "completed"
    with session_store().reader(agent.session_id) as reader:
        assert bool(reader.known_answers()) is is_kept
