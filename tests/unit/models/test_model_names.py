"""Without a model, and with a wrong name of one, the program says what to do."""

import pytest

from freeact_sub import Config
from freeact_sub.errors import ConfigError
from freeact_sub.models.names import EXAMPLES, name_meant, require_model

PROVIDERS = ("anthropic", "google", "openai", "openai-chat", "mistral", "deepseek", "xai")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gpt-5", "openai:gpt-5"),
        ("o3-mini", "openai:o3-mini"),
        ("claude-opus-9", "anthropic:claude-opus-9"),
        ("gemini-3-pro", "google:gemini-3-pro"),
        ("codestral-latest", "mistral:codestral-latest"),
        ("grok-4", "xai:grok-4"),
        ("opnai:gpt-5", "openai:gpt-5"),
        ("Anthropic:claude-opus-9", "anthropic:claude-opus-9"),
        ("openai/gpt-5", "openai:gpt-5"),
        ("foo:bar", None),
        ("llama3", None),
        ("", None),
        (":", None),
        ("openai:", None),
    ],
)
def test_the_name_that_is_meant(name: str, meant: str | None) -> None:
    assert name_meant(name, PROVIDERS) == meant


@pytest.mark.parametrize("key", [None, "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"])
def test_without_a_model_a_key_of_the_environment_proposes_one(key: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for known in EXAMPLES:
        monkeypatch.delenv(known, raising=False)
    if key is not None:
        monkeypatch.setenv(key, "x")
    with pytest.raises(ConfigError) as error:
        require_model(Config())
    words = str(error.value)
    assert "--model" in words
    assert "config.toml" in words
    assert (f"{key} is set, so `--model {EXAMPLES[key]}` can be used" if key else "PROVIDER:NAME") in words
    require_model(Config(model="test"))
