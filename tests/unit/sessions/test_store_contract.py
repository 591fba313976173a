"""What every `SessionStore` does, whoever wrote it: found by its entry point, ours and a small one in memory."""

import pytest
from support.providers import installed

from freeact_sub import Agent, Config, export_session
from freeact_sub.config.entry_points import SESSION_STORES
from freeact_sub.config.schema import SessionsConfig
from freeact_sub.errors import SessionBusyError, SessionError
from freeact_sub.sessions import newest, session_store
from freeact_sub.testing import FakeKernelProvider, ScriptedModel

MODULE = """
import os
from pathlib import Path
from support.memory_store import MemoryStore

_store = MemoryStore(Path(os.environ["XDG_STATE_HOME"]) / "memory")

def make(settings):
    return _store
"""
MEMORY = "memory = other_kernels:make"


@pytest.fixture(params=["sqlite", "memory"])
def name(request, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with installed(tmp_path / "site", MEMORY, group=SESSION_STORES.name, module=MODULE):
        yield request.param


@pytest.fixture
def store(name):
    return session_store(SessionsConfig(store=name))


ROOT = {
    "agent_id": "agent-1", "key": "root", "parent_id": None, "depth": 0, "tool_call_id": None, "description": "",
    "agent_type": None, "model": "m", "mode": "ask", "in_background": False,
}  # fmt: skip


async def write(store, session_id, workspace, prompt="do it"):
    writer = store.open(session_id, secrets=["hidden"], on_failure=pytest.fail)
    writer.start()
    writer.session(workspace=workspace, model="m")
    writer.agent(**ROOT)
    writer.run_begins("agent-1", 1, 1, prompt=prompt, budget={"turns": 3})
    assert await writer.commit()
    return writer


async def test_open_list_find_and_remove(store, tmp_path):
    assert store.sessions() == []
    writer = await write(store, "20260101-0000-aaaaaa", tmp_path)
    assert store.is_open(writer.session_id)
    for refused in (
        lambda: store.open(writer.session_id, secrets=(), on_failure=pytest.fail),
        lambda: store.remove(writer.session_id),
        lambda: store.fork(writer.session_id),
    ):
        with pytest.raises(SessionBusyError):
            refused()
    with store.reader(writer.session_id) as reader:
        assert [run.status for run in reader.runs("agent-1")] == [""]
    writer.run_ends("agent-1", 1, status="completed", ending={"error": ""}, output="done")
    await writer.aclose()
    await writer.aclose()
    await (await write(store, "20260102-0000-bbbbbb", tmp_path / "other", "something else")).aclose()
    assert [session.title for session in store.sessions()] == ["something else", "do it"]
    assert [session.session_id for session in store.sessions(tmp_path)] == [writer.session_id]
    assert store.find("20260101").workspace == tmp_path
    assert newest(store, tmp_path).status == "completed"
    assert dict(store.prompts()) == {"20260101-0000-aaaaaa": "do it", "20260102-0000-bbbbbb": "something else"}
    for unknown in ("2026", "2027"):
        with pytest.raises(SessionError):
            store.find(unknown)
    store.remove(writer.session_id)
    assert len(store.sessions()) == 1
    for gone in (store.find, store.reader, store.remove, store.fork):
        with pytest.raises(SessionError):
            gone(writer.session_id)


async def test_what_a_program_did_not_end_is_interrupted_in_the_next_one(store, tmp_path):
    await (await write(store, "20260101-0000-aaaaaa", tmp_path)).aclose()
    writer = store.open("20260101-0000-aaaaaa", secrets=(), on_failure=pytest.fail)
    writer.start()
    writer.session(workspace=tmp_path, model="m")
    await writer.commit()
    with store.reader(writer.session_id) as reader:
        (run,) = reader.runs()
        assert (run.status, run.prompt, run.budget, run.unwritten) == ("interrupted", "do it", {"turns": 3}, True)
        assert reader.agent("root") == reader.agents()[0]
    await writer.aclose()


async def test_agents_go_on_fork_and_are_exported(name, store, tmp_path):
    config = Config(workspace=tmp_path, mode="full", sessions={"store": name})
    options = {
        "model": ScriptedModel(lambda messages, _: f"answer {len(messages)}"),
        "kernel_provider": FakeKernelProvider(),
    }
    async with Agent(config, session="new", **options) as agent:
        assert (await agent.run("first prompt").result()).output == "answer 1"
        copy = await agent.fork()
    async with Agent.resume(agent.session_id, config, **options) as again:
        assert (await again.run("second prompt").result()).output == "answer 3"
    with store.reader(copy) as before, store.reader(agent.session_id) as after:
        assert len(before.messages(agent.agent_id)) == 2
        assert len(after.messages(agent.agent_id)) == len(after.chain(agent.agent_id)) == 4
        assert [run.prompt for run in after.runs()] == ["first prompt", "second prompt"]
        assert after.last_event(agent.agent_id, "AgentFinished").output == "answer 3"
        assert {event.agent_id for event in after.events(root_run=2)} == {agent.agent_id}
    assert "answer 3" in export_session(agent.session_id, "md", store=store)
    assert "answer 3" not in export_session(copy, "md", store=store)
