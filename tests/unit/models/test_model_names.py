"""Without a model, and with a wrong name of one, the program says what to do."""

import importlib.metadata
import re
import sys
from contextlib import suppress

import pytest
from pydantic_ai.models import known_model_names
from pydantic_ai.providers import infer_provider_class
from support.tables import each

from freeact_sub import Config
from freeact_sub.errors import ConfigError, speaking_of_options
from freeact_sub.models.build import EXAMPLES, PACKAGES, PROVIDERS, check_name, missing_extra, name_meant, require_model


@each(
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
    assert name_meant(name) == meant


def test_without_a_model_the_ways_to_one_are_named() -> None:
    with pytest.raises(ConfigError) as error, speaking_of_options():
        require_model(Config())
    for way in ("ANTHROPIC_API_KEY", "Ollama", "--model PROVIDER:NAME", "freeact/config.toml"):
        assert way in str(error.value)
    with pytest.raises(
        ConfigError, match=r"Agent\(model='PROVIDER:NAME'\), or Config\(model=\.\.\.\), .*freeact/config\.toml"
    ):
        require_model(Config())
    require_model(Config(model="test"))


@each(
    ("name", "base_url", "words"),
    [
        ("gpt-5", None, "did you mean 'openai:gpt-5'?"),
        ("opnrouter:x/y", None, "did you mean 'openrouter:x/y'?"),
        ("qwen3:8b", "http://127.0.0.1:1/v1", "did you mean 'openai-chat:qwen3:8b'?"),
        ("llama3", None, "PROVIDER:NAME"),
        ("openai:", None, "names only its provider"),
    ],
)
def test_a_wrong_name_is_found_without_pydantic_ai(name: str, base_url: str | None, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_name(Config(model=name, base_url=base_url))
    assert words in str(error.value)


def test_the_providers_are_those_of_pydantic_ai() -> None:
    for provider in PROVIDERS:
        with suppress(ImportError):  # known, and not installed
            infer_provider_class(provider)
    of_models = {name.partition(":")[0] for name in known_model_names() if ":" in name}
    without_prompts = {provider for provider in of_models if provider.endswith("-decisions")} | {"test"}
    assert {name for name in of_models if not name.startswith("gateway/")} - without_prompts <= PROVIDERS
    for name in (*known_model_names(), *EXAMPLES.values()):
        if ":" in name and name.partition(":")[0] not in without_prompts:
            check_name(Config(model=name))


def test_the_models_that_are_proposed_exist() -> None:
    known = set(known_model_names())
    assert {name for name in EXAMPLES.values() if not name.startswith("openrouter:")} <= known


def test_the_packages_of_providers_are_those_that_pydantic_ai_names() -> None:
    needed = [text.partition(";") for text in importlib.metadata.requires("pydantic-ai-slim") or []]
    by_extra = {extra: what for what, _, marker in needed for extra in re.findall(r"extra == '([\w-]+)'", marker)}
    for package, extra in PACKAGES.values():
        assert re.split(r"[.<>=\[]", by_extra[extra])[0].replace("-", "_").partition("_")[0] in package.replace(".", "_")
    assert missing_extra("openai:x") is None


def test_a_missing_package_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for hidden in ("anthropic", "google"):
        monkeypatch.setitem(sys.modules, hidden, None)
    assert missing_extra("anthropic:x") == "anthropic"
    assert missing_extra("google:x") == missing_extra("gateway/google-cloud:x") == "google"
