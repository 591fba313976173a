"""A session goes on with its model at its address, or says that it cannot."""

import json

import pytest
from pydantic_ai.models.test import TestModel
from support.agents import of_kind, read
from support.waiting import soon

from freeact_sub import Agent
from freeact_sub.config.load import load_config
from freeact_sub.config.schema import Config
from freeact_sub.errors import SessionError
from freeact_sub.events import Notice
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
    monkeypatch.setenv("OPENAI_API_KEY", "no-key-at-all")
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
        SessionError, match=f"used openai:m at {PUBLIC}, and the current settings name openai:m at {LOCAL}: set"
    ):
        Agent.resume(session)
    Agent.resume(session, Config(model="openai-chat:m", base_url=LOCAL))


LEAKS = {
    "another model": 'model = "openai-chat:public"',
    "another address": f'base_url = "{PUBLIC}"',
    "another model at its address": f'model = "openai-chat:m"\nbase_url = "{PUBLIC}"',
    "another fallback": 'fallback_models = ["openai-chat:public"]',
    "another meaning of a name": '[models]\nsmall = "openai-chat:public"',
    "other headers": '[model_settings.extra_headers]\nX-Forward-To = "public"',
    "another way": 'profile = "full"\ncode_actions = "tool"',
}


@pytest.mark.parametrize("settings", LEAKS.values(), ids=LEAKS)
async def test_files_and_variables_do_not_lead_a_session_elsewhere(settings, begun, tmp_path):
    session = await begun(**KEPT)
    (tmp_path / ".freeact").mkdir(exist_ok=True)
    (tmp_path / ".freeact/config.toml").write_text(settings)
    here = {
        f"FREEACT_{name.upper()}": str(value) for name, value in {"model": "openai-chat:public", "base_url": PUBLIC}.items()
    }
    for config in (load_config(tmp_path), load_config(tmp_path, environment=here)):
        assert of(Agent.resume(session, config)) == of(Agent(config, session=session)) == KEPT
    agent = Agent.resume(session, load_config(tmp_path, arguments={"model": "openai-chat:other"}))
    assert (agent.config.model, agent.config.base_url) == ("openai-chat:other", LOCAL)
    assert agent.config.fallback_models == KEPT["fallback_models"]
    agent = Agent.resume(session, load_config(tmp_path, arguments={"model": "test", "base_url": None}))
    assert (agent.config.model, agent.config.fallback_models) == ("test", ())


async def test_it_is_told_which_model_the_settings_name(begun, tmp_path):
    session = await begun(**KEPT)
    config = load_config(tmp_path, environment={"FREEACT_MODEL": "openai-chat:public"})
    async with Agent.resume(session, config, kernel_provider=FakeKernelProvider()) as agent:
        events, _ = await read(agent.run_program(lambda: soon(None)))
    assert any(
        "keeps its model openai-chat:m: that of the settings, openai-chat:public" in event.content
        for event in of_kind(events, Notice)
    )


async def test_a_name_that_meant_a_model_of_a_program_means_nothing_else_later(make, store, tmp_path, begun):
    session = await begun(**{**KEPT, "fallback_models": (), "models": {"small": TestModel(), "other": "openai-chat:s"}})
    config = load_config(tmp_path, arguments={}, environment={"FREEACT_MODELS__SMALL": "openai-chat:public"})
    assert Agent.resume(session, config).config.models.names == {"other": "openai-chat:s"}
    again = Config(workspace=tmp_path, models={"small": "openai-chat:s"})
    assert Agent.resume(session, again).config.models.names == {"small": "openai-chat:s"}


async def test_a_secret_of_the_settings_counts_where_all_else_is_the_same(begun, tmp_path):
    headers = {"extra_headers": {"X-Team": "a-long-header"}}
    session = await begun(model="openai-chat:m", base_url=LOCAL, model_settings=headers)
    same = {"FREEACT_MODEL_SETTINGS": json.dumps(headers)}
    assert Agent.resume(session, load_config(tmp_path, environment=same)).config.model_settings == headers
    other = {"FREEACT_MODEL_SETTINGS": json.dumps({"extra_headers": {"X-Other": "a-long-header"}})}
    with pytest.raises(SessionError, match="held a secret, which is never stored"):
        Agent.resume(session, load_config(tmp_path, environment=other))


async def test_a_model_that_a_program_gave_has_to_be_given_again(make, store, tmp_path):
    async with make(["done"], session="new") as agent:
        await read(agent.run("begin"))
    with pytest.raises(SessionError, match="used a model object of a program .*: name a model with Agent.resume"):
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
    with pytest.raises(SessionError, match=f"the setting `{name}` of the session {session} held a secret"):
        Agent.resume(session)
    assert getattr(Agent.resume(session, Config(**{name: value})).config, name) == value


async def test_a_session_that_does_not_say_where_its_model_is_is_refused(begun, store):
    import sqlite3

    session = await begun(model="openai-chat:m", base_url=LOCAL)
    with sqlite3.connect(store.folder / "sessions.db") as connection:
        for damaged in ("{}", "{", "[]", "@sha256:0"):
            connection.execute("UPDATE sessions SET model_facts = ?", (damaged,))
            connection.commit()
            with pytest.raises(SessionError, match="does not record the address of its model openai-chat:m"):
                Agent.resume(session)
    connection.close()
