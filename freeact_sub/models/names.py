"""Names of models: suggestions for wrong names, and the message if none is set. It is quick to import."""

import difflib
import re
from collections.abc import Mapping
from typing import Final

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
