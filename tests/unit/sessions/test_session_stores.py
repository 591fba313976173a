"""Session stores of other packages: found by their entry point, and asked for what `SessionStore` has and nothing else."""

import pytest
from support.providers import installed

from freeact_sub import Agent, Config, ConfigError, export_session
from freeact_sub.cli import main
from freeact_sub.config.entry_points import SESSION_STORES
from freeact_sub.sessions import list_sessions, newest, session_store
from freeact_sub.testing import FakeKernelProvider, ScriptedModel

MODULE = """
import os
from pathlib import Path

from freeact_sub.sessions import SessionReader, SessionStore, SessionWriter
from freeact_sub.sessions.sqlite import SqliteStore

asked = []


class Only:
    # what a protocol has, of an object

    def __init__(self, protocol, inner):
        self._protocol, self._inner = protocol, inner

    def __getattr__(self, name):
        asked.append(name)
        if name not in {*vars(self._protocol), *self._protocol.__annotations__}:
            raise AttributeError(name)
        found = getattr(self._inner, name)
        kind = {"reader": SessionReader, "open": SessionWriter}.get(name)
        return found if kind is None else lambda *args, **options: Only(kind, found(*args, **options))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._inner.close()


def make(settings):
    return Only(SessionStore, SqliteStore(Path(os.environ["ELSEWHERE"])))
"""
CONFIG = """
model = "test"
[sessions]
store = "elsewhere"
"""


async def test_a_store_of_another_package_keeps_all_there_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ELSEWHERE", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    workspace = tmp_path / "workspace"
    (workspace / ".freeact").mkdir(parents=True)
    (workspace / ".freeact/config.toml").write_text(CONFIG, encoding="utf-8")
    with installed(tmp_path / "site", "elsewhere = other_kernels:make", group=SESSION_STORES.name, module=MODULE):
        config = Config(workspace=workspace, mode="full", sessions={"store": "elsewhere"})
        model = ScriptedModel(lambda messages, _: f"answer {len(messages)}")
        async with Agent(config, model=model, kernel_provider=FakeKernelProvider(), session="new") as agent:
            assert (await agent.run("first prompt").result()).status == "completed"
            copy = await agent.fork()
            store = session_store(config.sessions)
        async with Agent.resume(agent.session_id, config, model=model, kernel_provider=FakeKernelProvider()) as again:
            assert len(again.history) == 2
            assert (await again.run("second prompt").result()).output == "answer 3"
        assert {session.session_id for session in store.sessions(workspace)} == {agent.session_id, copy}
        assert newest(store, workspace).session_id == agent.session_id
        assert "answer 3" in export_session(agent.session_id, "md", store=store)
        monkeypatch.chdir(workspace)
        assert main(["sessions", "list", "--trust"]) == 0
        assert copy in capsys.readouterr().out
        assert main(["sessions", "rm", copy]) == 0
        assert [session.session_id for session in store.sessions()] == [agent.session_id]
        assert main(["sessions", "prune"]) == 0
        assert list_sessions() == []  # nothing is where it would be by default
        assert not (tmp_path / "state/freeact").exists()


def test_a_store_that_is_not_installed_is_told_with_the_near_ones():
    with pytest.raises(ConfigError, match="the session store '.*' is not installed: did you mean `sqlite`"):
        Config(sessions={"store": "sqlit"})
    assert type(session_store()).__name__ == "SqliteStore"
