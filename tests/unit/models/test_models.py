"""Building models from settings: what is built, and one clear line for all that can be wrong."""

import importlib.metadata
import subprocess
import sys

import pytest
from pydantic_ai.models.openai import OpenAIChatModel
from support.tables import each

from freeact_sub.config.schema import Config
from freeact_sub.errors import ConfigError
from freeact_sub.models import build_model, build_model_settings


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_BASE_URL", "GROQ_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_builds_the_model_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    model = build_model(Config(model="anthropic:claude-sonnet-5-5"))
    from pydantic_ai.models.anthropic import AnthropicModel  # not above: it takes longer than all tests of this file

    assert isinstance(model, AnthropicModel)
    assert model.model_name == "claude-sonnet-5-5"


def test_a_local_server_needs_no_key() -> None:
    model = build_model(Config(model="openai-chat:some/model:7b", base_url="http://127.0.0.1:9999/v1"))
    assert isinstance(model, OpenAIChatModel)
    assert model.model_name == "some/model:7b"
    assert model.base_url == "http://127.0.0.1:9999/v1/"


@each(
    ("settings", "text"),
    [
        ({}, "no model is set: give Agent"),
        ({"model": ""}, "no model is set"),
        ({"model": "openai-chat:"}, "'openai-chat:' names only its provider"),
        (
            {"model": "claude-sonnet-4-5"},
            r"^unknown model 'claude-sonnet-4-5': did you mean 'anthropic:claude-sonnet-4-5'\?$",
        ),
        ({"model": "antropic:claude-sonnet-5-5"}, r"did you mean 'anthropic:claude-sonnet-5-5'\?$"),
        ({"model": "nonsense"}, "unknown model 'nonsense': a model is named `PROVIDER:NAME`, for example"),
        ({"model": "foo:bar", "base_url": "http://127.0.0.1/v1"}, r"^unknown model 'foo:bar': .*'openai-chat:foo:bar'\?$"),
        ({"model": "qwen", "base_url": "http://127.0.0.1/v1"}, r"^unknown model 'qwen': .*'openai-chat:qwen'\?$"),
        ({"model": "claude-sonnet-4-5", "base_url": "http://127.0.0.1/v1"}, r"'openai-chat:claude-sonnet-4-5'\?$"),
        ({"model": "anthropic:x"}, "'anthropic:x' needs the environment variable ANTHROPIC_API_KEY: set it$"),
        ({"model": "openai-chat:x"}, "needs the environment variable OPENAI_API_KEY: .* server of your own, set `base_u"),
        ({"model": "ollama:x"}, "environment variable OLLAMA_BASE_URL: set it; for a server of your own, set `base_url`"),
        ({"model": "openai-chat:x", "base_url": "localhost:80"}, "`base_url`: 'localhost:80' is not a web address"),
        ({"model": "deepseek:x", "base_url": "http://h/v1"}, "models of 'deepseek' take none; remove it, or name"),
    ],
)
def test_says_what_is_wrong_in_one_line(settings: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        build_model(Config(**settings))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("provider", "package"),
    [("anthropic", "anthropic"), ("google", "google.genai"), ("groq", "groq")],
)
def test_names_the_extra_that_is_missing(provider: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith((f"pydantic_ai.providers.{provider}", package))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(ConfigError) as caught:
        build_model(Config(model=f"{provider}:x"))
    what = f"pydantic-ai-slim[{provider}]=={importlib.metadata.version('pydantic-ai-slim')}"
    assert str(caught.value) == (
        f"the model '{provider}:x' needs a package that is not installed: run `{sys.executable} -m pip install '{what}'`"
    )


def test_settings_get_their_types() -> None:
    config = Config(model_settings={"temperature": "0.2", "max_tokens": "10", "thinking": "low", "stop_sequences": ["a"]})
    expected = {"temperature": 0.2, "max_tokens": 10, "thinking": "low", "stop_sequences": ["a"]}
    assert build_model_settings(config).items() >= expected.items()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"first_event_timeout": 600}),
        ({"first_event_timeout_seconds": 900}, {"first_event_timeout": 900, "timeout": 900}),
        (
            {"first_event_timeout_seconds": 900, "model_settings": {"timeout": 5, "first_event_timeout": 6}},
            {"first_event_timeout": 6, "timeout": 5},
        ),
    ],
)
def test_the_client_is_as_patient_as_we_are(settings: dict[str, object], expected: dict[str, object]) -> None:
    assert build_model_settings(Config(**settings)) == expected


def test_settings_of_one_provider_are_passed_on() -> None:
    settings = {"openai_reasoning_effort": "low"}
    assert build_model_settings(Config(model_settings=settings)).items() >= settings.items()


@each(
    ("settings", "text"),
    [
        ({"temprature": 1}, "unknown setting `model_settings.temprature`: did you mean `temperature`?"),
        ({"temperature": "hot"}, r"setting `model_settings.temperature`: .* number .*\(got a text\)"),
        ({"xyz_abc": 1}, "unknown setting `model_settings.xyz_abc`: the known ones are cache, .*top_p"),
        ({"a.b_c": 1}, "unknown setting"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        build_model_settings(Config(model_settings=settings))


@pytest.mark.process
def test_importing_it_is_cheap() -> None:
    program = "import sys, freeact_sub.models; print('pydantic_ai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
