"""Names of models: the one that a person may have meant by a wrong one, and the way out without one. Quick to import."""

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Final

from freeact_sub.config.schema import Config, user_folder
from freeact_sub.errors import ConfigError

NAME_HINT: Final = "a model is named `PROVIDER:NAME`, for example `anthropic:claude-sonnet-5-5`"
EXAMPLES: Final[Mapping[str, str]] = {
    "ANTHROPIC_API_KEY": "anthropic:claude-sonnet-5-5",
    "OPENAI_API_KEY": "openai:gpt-5",
    "GOOGLE_API_KEY": "google:gemini-2.5-pro",
    "GEMINI_API_KEY": "google:gemini-2.5-pro",
    "MISTRAL_API_KEY": "mistral:mistral-large-latest",
    "DEEPSEEK_API_KEY": "deepseek:deepseek-chat",
    "GROQ_API_KEY": "groq:openai/gpt-oss-120b",
    "XAI_API_KEY": "xai:grok-4",
}
"""A model of each provider, by the environment variable with the provider's key."""
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
        ConfigError: They do not. The sentence proposes a model whose key is in the environment.
    """
    if config.model:
        return
    found = next(((key, name) for key, name in EXAMPLES.items() if os.environ.get(key)), None)
    example = f"{found[0]} is set, so `--model {found[1]}` can be used" if found else NAME_HINT
    own = user_folder() / "config.toml"
    raise ConfigError(f"no model is set: pass --model, or set `model` in .freeact/config.toml or {own}; {example}")


def name_meant(name: str, providers: Iterable[str]) -> str | None:
    """The full name that a person may have meant by a wrong one. None: there is no near one.

    Args:
        name: The wrong name.
        providers: The names of all providers.
    """
    known = list(providers)
    for mark in (":", "/"):
        provider, found, model = name.partition(mark)
        if found and model:
            near = difflib.get_close_matches(provider.lower(), known, n=1, cutoff=0.75)
            return f"{near[0]}:{model}" if near else None
    family = next((provider for provider, beginning in FAMILIES.items() if re.match(beginning, name)), None)
    return family and f"{family}:{name}"
