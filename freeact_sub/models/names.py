"""Names of models: suggestions for wrong names, the message if none is set, and the models that are ready to use.

Those are found by keys in the environment, and on servers of this machine. Servers are asked for their models on loopback
only, side by side, and for a bounded time. It is quick to import.
"""

import difflib
import http.client
import json
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from freeact_sub.config.schema import Config, user_folder
from freeact_sub.errors import ConfigError, way
from freeact_sub.extras import is_installed

LOCAL: Final = "Ollama, LM Studio, llama-server or vLLM"
NAME_HINT: Final = "a model is named `PROVIDER:NAME`, for example `anthropic:claude-sonnet-5-5`"
EXAMPLES: Final[Mapping[str, str]] = {
    "ANTHROPIC_API_KEY": "anthropic:claude-sonnet-5-5",
    "OPENAI_API_KEY": "openai:gpt-6.1-terra",
    "GOOGLE_API_KEY": "google:gemini-3.8-flash",
    "GEMINI_API_KEY": "google:gemini-3.8-flash",
    "MISTRAL_API_KEY": "mistral:mistral-large-latest",
    "DEEPSEEK_API_KEY": "deepseek:deepseek-v4-pro",
    "GROQ_API_KEY": "groq:openai/gpt-oss-120b",
    "XAI_API_KEY": "xai:grok-4.7",
    "OPENROUTER_API_KEY": "openrouter:openrouter/auto",
    "CEREBRAS_API_KEY": "cerebras:gpt-oss-120b",
    "CO_API_KEY": "cohere:command-a-plus-05-2026",
    "HF_TOKEN": "huggingface:openai/gpt-oss-120b",
    "MOONSHOTAI_API_KEY": "moonshotai:kimi-k3",
    "ZAI_API_KEY": "zai:glm-5.3",
}
"""A model of each provider, by the environment variable with the provider's key."""
_PROVIDERS: Final = (
    "alibaba anthropic azure azure-responses bedrock bedrock-mantle cerebras cohere crusoe deepseek fireworks github "
    "github-copilot google google-cloud groq heroku huggingface litellm meta mistral moonshotai nebius ollama openai "
    "openai-chat openai-chatgpt openai-codex openai-responses openrouter ovhcloud sambanova snowflake system-one "
    "together typesafe vercel vllm xai zai"
)
PROVIDERS: Final = frozenset(_PROVIDERS.split())
"""The providers of pydantic-ai whose models answer prompts: known here without its import, which is slow."""
PACKAGES: Final[Mapping[str, tuple[str, str]]] = {
    "anthropic": ("anthropic", "anthropic"),
    "bedrock": ("boto3", "bedrock"),
    "cohere": ("cohere", "cohere"),
    "google": ("google.genai", "google"),
    "google-cloud": ("google.genai", "google"),
    "groq": ("groq", "groq"),
    "huggingface": ("huggingface_hub", "huggingface"),
    "mistral": ("mistralai", "mistral"),
    "xai": ("xai_sdk", "xai"),
}
"""The package that a provider's models need besides OpenAI's: its name in `import`, and pydantic-ai's extra with it."""
FAMILIES: Final[Mapping[str, str]] = {
    "openai": r"gpt-|chatgpt-|codex-|o\d",
    "anthropic": r"claude-",
    "google": r"gemini-",
    "mistral": r"(mi|mini|magi|code|dev)stral-",
    "deepseek": r"deepseek-",
    "xai": r"grok-",
    "cohere": r"command-",
}
"""The beginning of the names of a provider's models."""
SERVERS: Final[Mapping[str, int]] = {"Ollama": 11434, "LM Studio": 1234, "llama-server": 8080, "vLLM": 8000}
"""Programs that serve models, with their default ports."""
PATHS: Final = ("/v1/models", "/api/tags")
"""Where a server lists its models: by OpenAI's protocol, and by that of old versions of Ollama."""
SECONDS: Final = 1.0
"""The seconds that all servers together may take to respond."""
MAX_BYTES: Final = 1_000_000
MAX_MODELS: Final = 6
"""Of one server."""
NAME_CHARS: Final = 200


def require_model(config: Config) -> None:
    """Check that the settings name a model.

    Raises:
        ConfigError: They do not; the message names the ways to set one.
    """
    if not config.model:
        file = user_folder() / "config.toml"
        raise ConfigError(
            way(
                f"no model is set: give Agent(model='PROVIDER:NAME'), or Config(model=...), or set `model` in {file}, which "
                "load_config() reads",
                f"no model is set: set a provider's key, such as ANTHROPIC_API_KEY, start a local server ({LOCAL}), or pass "
                f"--model PROVIDER:NAME; to save it, set `model` in {file}",
            )
        )


def check_name(config: Config) -> None:
    """Check that the model's name has a known provider, without the slow import of pydantic-ai.

    Raises:
        ConfigError: It has none; the message suggests a name.
    """
    name = str(config.model)
    provider, found, model = name.partition(":")
    if name == "test" or (found and model and (provider in PROVIDERS or provider.startswith("gateway/"))):
        return
    if found and provider in PROVIDERS:
        raise ConfigError(f"the model {name!r} names only its provider: {NAME_HINT}")
    if config.base_url is not None:
        meant: str | None = f"openai-chat:{name}"
    else:
        meant = name_meant(name)
    hint = f"did you mean {meant!r}?" if meant else NAME_HINT
    raise ConfigError(f"unknown model {name!r}: {hint}")


def missing_extra(model: str) -> str | None:
    """The extra of pydantic-ai that a model needs and that is not installed."""
    provider = model.partition(":")[0].removeprefix("gateway/")
    package, extra = PACKAGES.get(provider, ("", ""))
    return extra if package and not is_installed(package) else None


def name_meant(name: str) -> str | None:
    """Return the full name that a wrong one may mean. None: no name is similar."""
    for mark in (":", "/"):
        provider, found, model = name.partition(mark)
        if found and model:
            near = difflib.get_close_matches(provider.lower(), PROVIDERS, n=1, cutoff=0.75)
            return f"{near[0]}:{model}" if near else None
    family = next((provider for provider, beginning in FAMILIES.items() if re.match(beginning, name)), None)
    return family and f"{family}:{name}"


@dataclass(frozen=True, kw_only=True)
class FoundModel:
    """A model, and what makes it usable."""

    model: str
    """Its full name, as in the setting `model`."""
    because: str
    """The key or the server, in words."""
    base_url: str | None = None
    """The address of its server. None: its provider's own."""


def find_models(environment: Mapping[str, str]) -> list[FoundModel]:
    """Return all found models, those of keys first."""
    return [*models_of_keys(environment), *models_of_servers(SERVERS)]


def models_of_keys(environment: Mapping[str, str]) -> list[FoundModel]:
    """Return a model of each provider whose key is set."""
    found: dict[str, FoundModel] = {}
    for key, name in EXAMPLES.items():
        if environment.get(key, "").strip():
            found.setdefault(name, FoundModel(model=name, because=f"{key} is set"))
    return list(found.values())


def models_of_servers(servers: Mapping[str, int]) -> list[FoundModel]:
    """Return the models of the servers that respond in time, in the order of the servers. Args: servers: ports by name."""
    served: dict[str, list[str]] = {}

    def ask(name: str, port: int) -> None:
        served[name] = list(_models_at(port))

    # a daemon: a server that sends a byte now and then keeps nobody waiting
    asking = [threading.Thread(target=ask, args=server, daemon=True) for server in servers.items()]
    for thread in asking:
        thread.start()
    deadline = time.monotonic() + SECONDS
    for thread in asking:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [
        FoundModel(
            model=f"openai-chat:{model}",
            because=f"{name} at 127.0.0.1:{port}",
            base_url=f"http://127.0.0.1:{port}/v1",
        )
        for name, port in servers.items()
        for model in served.get(name, [])[:MAX_MODELS]
    ]


def _models_at(port: int) -> Iterator[str]:
    """Return the names of one server's models; empty if it serves no models."""
    for path in PATHS:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        try:
            connection.request("GET", path, headers={"Accept": "application/json"})
            response = connection.getresponse()
            content = json.loads(response.read(MAX_BYTES)) if response.status == http.client.OK else None
        except ConnectionRefusedError:
            return
        except (OSError, http.client.HTTPException, ValueError, RecursionError):
            continue
        finally:
            connection.close()
        names = list(dict.fromkeys(_names_in(content)))
        if names:
            yield from names
            return


def _names_in(content: Any) -> Iterable[str]:
    """Return the names in a list of models that can answer a prompt; names with line breaks are left out."""
    models = (content.get("data") or content.get("models")) if isinstance(content, dict) else None
    for model in models if isinstance(models, list) else ():
        name = (model.get("id") or model.get("name")) if isinstance(model, dict) else None
        if isinstance(name, str) and 0 < len(name) <= NAME_CHARS and name.isprintable() and "embed" not in name.lower():
            yield name
