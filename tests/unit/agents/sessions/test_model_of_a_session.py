"""A session goes on with its model at its address, or says that it cannot."""

import pytest
from support.agents import read

from freeact_sub import Agent
from freeact_sub.config.schema import Config
from freeact_sub.errors import SessionError
from freeact_sub.sessions import list_sessions
from freeact_sub.testing import FakeKernelProvider

LOCAL, PUBLIC = "http://127.0.0.1:9/v1", "http://127.0.0.1:10/v1"
KEPT = {
    "model": "openai-chat:m",
    "base_url": LOCAL,
    "profile": "small",
    "code_actions": "block",
    "fallback_models": ("small",),
    "models": {"small": "openai-chat:s"},
    "model_settings": {"temperature": 0.5},
}


@pytest.fixture
def begun(store, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "no key at all")
    monkeypatch.setenv("OPENAI_BASE_URL", PUBLIC)

    async def begin(**settings):
        config = Config(workspace=tmp_path, **settings)
        async with Agent(config, session="new", kernel_provider=FakeKernelProvider()) as agent:
            return agent.session_id

    return begin


def of(agent):
    return {name: getattr(agent.config, name) for name in KEPT if name != "models"} | {"models": agent.config.models.names}


async def test_all_that_gives_a_model_its_meaning_is_kept(begun, tmp_path):
    session = await begun(**KEPT)
    assert of(Agent.resume(session)) == KEPT
    assert of(Agent(Config(workspace=tmp_path), session=session)) == KEPT
    assert of(Agent.resume(session, Config(workspace=tmp_path, model="openai-chat:m"))) == KEPT
    assert of(Agent.resume(session, model="openai-chat:m")) == KEPT
    async with Agent.resume(session, kernel_provider=FakeKernelProvider()) as agent:
        copy = await agent.fork()
    assert of(Agent.resume(copy)) == KEPT


async def test_another_model_can_be_chosen_and_one_of_the_same_provider_stays_at_the_address(begun):
    session = await begun(**KEPT)
    assert Agent.resume(session, model="openai-chat:other").config.base_url == LOCAL
    assert Agent.resume(session, Config(model="openai-chat:m", base_url=PUBLIC)).config.base_url == PUBLIC
    assert Agent.resume(session, model="test").config.base_url is None


async def test_an_address_of_the_environment_that_has_changed_is_refused(begun, monkeypatch):
    session = await begun(model="openai-chat:m")
    assert list_sessions()[0].addresses == (f"openai:m at {PUBLIC}",)
    Agent.resume(session)
    monkeypatch.setenv("OPENAI_BASE_URL", LOCAL)
    with pytest.raises(
        SessionError, match=f"was held with openai:m at {PUBLIC}, and would go on with openai:m at {LOCAL}: set"
    ):
        Agent.resume(session)
    Agent.resume(session, Config(model="openai-chat:m", base_url=LOCAL))


async def test_a_model_that_a_program_gave_has_to_be_given_again(make, store, tmp_path):
    async with make(["done"], session="new") as agent:
        await read(agent.run("begin"))
    with pytest.raises(SessionError, match="a program gave the session .* its model .*: name a model, by --model or"):
        Agent.resume(agent.session_id)
    Agent.resume(agent.session_id, model="test")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("base_url", "http://me:a-long-password@127.0.0.1:9/v1"),
        ("model_settings", {"extra_headers": {"X-Team": "a-long-header"}}),
    ],
)
async def test_a_secret_is_not_kept_and_is_asked_for(begun, store, name, value):
    session = await begun(**{"model": "openai-chat:m", "base_url": LOCAL, name: value})
    assert b"a-long-" not in b"".join(path.read_bytes() for path in store.folder.glob("sessions.db*"))
    with pytest.raises(SessionError, match=f"the setting `{name}` of the session {session} has a secret"):
        Agent.resume(session)
    assert getattr(Agent.resume(session, Config(**{name: value})).config, name) == value


async def test_a_session_that_does_not_say_where_its_model_is_is_refused(begun, store):
    import sqlite3

    session = await begun(model="openai-chat:m", base_url=LOCAL)
    with sqlite3.connect(store.folder / "sessions.db") as connection:
        for damaged in ("{}", "{", "[]", "@sha256:0"):
            connection.execute("UPDATE sessions SET model_facts = ?", (damaged,))
            connection.commit()
            with pytest.raises(SessionError, match="does not say at which address its model openai-chat:m is"):
                Agent.resume(session)
    connection.close()
