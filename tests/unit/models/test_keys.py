"""Keys of providers: blanks around one are taken off, an empty one is not set, and no error shows one."""

import json

import pytest
from support.tables import each
from support.wire import CHAT, MESSAGES, RESPONSES, answered

from freeact_sub import Agent, Config
from freeact_sub.errors import ConfigError

pytestmark = pytest.mark.usefixtures("allow_model_requests")

KEYS = {
    "chat": (CHAT, "OPENAI_API_KEY"),
    "responses": (RESPONSES, "OPENAI_API_KEY"),
    "messages": (MESSAGES, "ANTHROPIC_API_KEY"),
}


@each("name", KEYS)
@each("key", ["sk-secret ", " sk-secret", "\tsk-secret\r\n", "sk-secret\n", "\u00a0sk-secret\u00a0"])
async def test_blanks_around_a_key_are_taken_off(name, key, tmp_path, monkeypatch):
    protocol, variable = KEYS[name]
    monkeypatch.setenv(variable, key)
    result, server = await answered(tmp_path, b"".join(protocol.texts(["It is 42."])) + protocol.end, protocol=protocol)
    assert result.output == "It is 42."
    sent = server.headers[0]
    assert "sk-secret" in (sent.get("authorization", "").removeprefix("Bearer "), sent.get("x-api-key"))


@pytest.mark.parametrize("key", ["", " ", "\n"])
async def test_an_empty_key_is_not_set(key, tmp_path, monkeypatch):
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GROQ_API_KEY"):
        monkeypatch.setenv(variable, key)
    result, _ = await answered(tmp_path, b"".join(CHAT.texts(["It is 42."])) + CHAT.end)
    assert result.output == "It is 42.", "a server of one's own needs none"
    for model, variable in (("openai:gpt-5", "OPENAI_API_KEY"), ("anthropic:claude-sonnet-5-5", "ANTHROPIC_API_KEY")):
        with pytest.raises(ConfigError, match=f"needs the environment variable {variable}: set it"):
            Agent(Config(workspace=tmp_path, model=model))


@each("key", ["sk-se cret", "sk-sécret", "sk-se\ncret", "Bearer sk-secret"])
def test_a_key_that_cannot_be_one_is_named_and_not_shown(key, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY has characters that no key has") as told:
        Agent(Config(workspace=tmp_path, model="openai:gpt-5"))
    assert "cret" not in str(told.value)


@each("status", [400, 401, 403, 500])
async def test_a_server_that_repeats_the_key_does_not_have_it_shown(status, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret ")
    body = json.dumps({"error": {"message": "Incorrect API key provided: sk-very-secret."}}).encode()
    refused = (status, {"Content-Type": "application/json"}, body)
    result, _ = await answered(tmp_path, refused, rate_limit_seconds=1)
    assert result.status == "failed"
    assert "provided: $OPENAI_API_KEY." in result.error
    assert "very-secret" not in result.error
