"""Builds the model that the settings name, and its settings; errors in them become one clear `ConfigError`.

Also here: suggestions for wrong names, the message if none is set, and the models that are ready to use. Those are found by
keys in the environment, and on servers of this machine, which are asked on loopback only, side by side, and for a bounded
time.

Importing this module is cheap. pydantic-ai (0.6 s, and up to 2 s more for a provider) is imported when a model is built.
"""

import difflib
import http.client
import importlib.util
import inspect
import json
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from freeact_sub.config.network_variables import check_network_variables
from freeact_sub.config.parsing import kind_of
from freeact_sub.config.schema import Config, user_folder
from freeact_sub.errors import ConfigError, ContextOverflowError, way
from freeact_sub.extras import how_to_install_provider, is_installed

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.providers import Provider
    from pydantic_ai.settings import ModelSettings

    from freeact_sub.models.sending import Traffic

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
"""Example models, by the environment variable with the provider's key."""
_PROVIDERS: Final = (
    "alibaba anthropic azure azure-responses bedrock bedrock-mantle cerebras cohere crusoe deepseek fireworks github "
    "github-copilot google google-cloud groq heroku huggingface litellm meta mistral moonshotai nebius ollama openai "
    "openai-chat openai-chatgpt openai-codex openai-responses openrouter ovhcloud sambanova snowflake system-one "
    "together typesafe vercel vllm xai zai"
)
PROVIDERS: Final = frozenset(_PROVIDERS.split())
"""Providers of pydantic-ai whose models answer prompts: known here without its import, which is slow."""
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
"""Packages that a provider's models need besides OpenAI's: the name in `import`, and pydantic-ai's extra with it."""
FAMILIES: Final[Mapping[str, str]] = {
    "openai": r"gpt-|chatgpt-|codex-|o\d",
    "anthropic": r"claude-",
    "google": r"gemini-",
    "mistral": r"(mi|mini|magi|code|dev)stral-",
    "deepseek": r"deepseek-",
    "xai": r"grok-",
    "cohere": r"command-",
}
"""Beginnings of the names of a provider's models."""
SERVERS: Final[Mapping[str, int]] = {"Ollama": 11434, "LM Studio": 1234, "llama-server": 8080, "vLLM": 8000}
"""Programs that serve models, with their default ports."""
PATHS: Final = ("/v1/models", "/api/tags")
"""Paths at which servers list their models: by OpenAI's protocol, and by that of old versions of Ollama."""
SECONDS: Final = 1.0
"""Seconds that all servers together may take to respond."""
MAX_BYTES: Final = 1_000_000
MAX_MODELS: Final = 6
"""Maximum models of one server, or in one sentence."""
NAME_CHARS: Final = 200


def require_model(config: Config) -> None:
    """Check that the settings name a model.

    Raises:
        ConfigError: No model is set; the message names the ways to set one.
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


def is_full_name(name: str) -> bool:
    """Return whether a model's name has a known provider."""
    provider, _, model = name.partition(":")
    return name == "test" or bool(model and (provider in PROVIDERS or provider.startswith("gateway/")))


def check_name(config: Config) -> None:
    """Check that the model's name has a known provider, without the slow import of pydantic-ai.

    Raises:
        ConfigError: The provider is unknown; the message suggests a name.
    """
    name = str(config.model)
    if is_full_name(name):
        return
    provider, found, _ = name.partition(":")
    if found and provider in PROVIDERS:
        raise ConfigError(f"the model {name!r} names only its provider: {NAME_HINT}")
    if config.base_url is not None:
        meant: str | None = f"openai-chat:{name}"
    else:
        meant = name_meant(name)
    hint = f"did you mean {meant!r}?" if meant else NAME_HINT
    raise ConfigError(f"unknown model {name!r}: {hint}")


def missing_extra(model: str) -> str | None:
    """Return the extra of pydantic-ai that a model needs and that is not installed."""
    provider = model.partition(":")[0].removeprefix("gateway/")
    package, extra = PACKAGES.get(provider, ("", ""))
    return extra if package and not is_installed(package) else None


def name_meant(name: str) -> str | None:
    """Return the full name that a wrong one may mean, if one is similar."""
    for mark in (":", "/"):
        provider, found, model = name.partition(mark)
        if found and model:
            near = difflib.get_close_matches(provider.lower(), PROVIDERS, n=1, cutoff=0.75)
            return f"{near[0]}:{model}" if near else None
    family = next((provider for provider, beginning in FAMILIES.items() if re.match(beginning, name)), None)
    return family and f"{family}:{name}"


@dataclass(frozen=True, kw_only=True)
class FoundModel:
    """A model that can be used, and the reason."""

    model: str
    """The full name, as in the setting `model`."""
    because: str
    """The key or the server, in words."""
    base_url: str | None = None
    """The address of the server. None: the provider's own."""

    def __str__(self) -> str:
        return self.model if self.base_url is None else f"{self.model} ({self.because})"


def find_models(environment: Mapping[str, str]) -> list[FoundModel]:
    """Return all found models, first those with a key."""
    return [*models_of_keys(environment), *models_of_servers(SERVERS)]


def known_models(config: Config, environment: Mapping[str, str]) -> list[FoundModel]:
    """Return the models that a person may choose, each once: the named and the found ones, their siblings, the present one.

    Importing pydantic-ai, which has the siblings, takes a moment.
    """
    known: dict[tuple[str, str | None], FoundModel] = {}
    present = [FoundModel(model=config.model, because="", base_url=config.base_url)] if config.model else []
    for found in (*_ready(config, environment), *_siblings(environment), *present):
        known.setdefault((found.model, found.base_url), found)
    return list(known.values())


def model_meant(config: Config, name: str, environment: Mapping[str, str]) -> FoundModel:
    """Return the model that a person means by a full name, by a name in `models`, or by a part of one known name.

    Raises:
        ConfigError: Several known models have such a name; the message says which.
    """
    meant = FoundModel(model=config.models.names.get(name, name), because="")
    if meant.model != name or is_full_name(name):
        return meant
    matches = _with_part(name, _ready(config, environment))
    if all(known.base_url is not None for known in matches):  # what a server calls so takes no provider's place
        matches += _with_part(name, _siblings(environment))
    addresses = {known.base_url for known in matches}
    named = [known for known in matches if known.base_url is None or len(addresses) == 1]
    matches = [known for known in named if known.model.partition(":")[2] == name] or matches
    if len(matches) > 1:
        listed = " or ".join(map(str, matches[:MAX_MODELS]))
        more = f" or {len(matches) - MAX_MODELS} more" if len(matches) > MAX_MODELS else ""
        and_where = ", with `base_url`" if len(addresses) > 1 else ""
        raise ConfigError(f"the model {name!r} could be {listed}{more}: name one of them{and_where}")
    return matches[0] if matches else meant


def _with_part(name: str, models: Iterable[FoundModel]) -> list[FoundModel]:
    """Return the models with such a part in their names, each once; one that is no server's stands for its namesakes."""
    matches: dict[tuple[str, str | None], FoundModel] = {}
    for known in models:
        if name.lower() in known.model.lower() and (known.model, None) not in matches:
            matches[known.model, known.base_url] = known
    return [*matches.values()]


def _ready(config: Config, environment: Mapping[str, str]) -> list[FoundModel]:
    """Return the models that the settings name, and the found ones."""
    names = config.models.names.items()
    named = [FoundModel(model=model, because=f"{name} in your settings") for name, model in names if isinstance(model, str)]
    return [*named, *find_models(environment)]


def _siblings(environment: Mapping[str, str]) -> list[FoundModel]:
    """Return all models that pydantic-ai knows of the providers whose key is set."""
    keys = models_of_keys(environment)
    if not keys:
        return []
    from pydantic_ai.models import KnownModelName  # noqa: PLC0415  # slow, see above

    names: tuple[str, ...] = get_args(getattr(KnownModelName, "__value__", KnownModelName))
    return [
        FoundModel(model=name, because=found.because)
        for found in keys
        for name in names
        if name.startswith(f"{found.model.partition(':')[0]}:")
    ]


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
    """Yield the names of one server's models."""
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


CLIENT_TIMEOUT_SECONDS: Final = 600
"""Timeouts of the providers' own clients."""
_KEY: Final = re.compile(r"(?:KEY|TOKEN)(?:_BEDROCK)?$")
"""End of the environment variables with providers' keys."""


def build_model(config: Config) -> "Model":
    """Build the model that the settings name.

    With `base_url` requests go to that address: `openai-chat:NAME` talks to an OpenAI-compatible server, and a local
    one needs no key.

    Raises:
        ConfigError: There is no model, or its provider is unknown or not installed, or needs a key or another setting,
            or an environment variable of the network cannot be used.
    """
    from pydantic_ai.exceptions import UserError  # noqa: PLC0415  # slow, see above
    from pydantic_ai.models import infer_model  # noqa: PLC0415

    require_model(config)
    name = str(config.model)
    if name.endswith(":"):
        raise ConfigError(f"the model {name!r} names only its provider: {NAME_HINT}")
    check_network_variables()
    try:
        with _clean_keys():
            if config.base_url is None or not _is_known(name):
                model = infer_model(name)
            else:
                provider = _provider_at(config.base_url, name)
                model = infer_model(name, provider_factory=lambda _: provider)
    except UserError as error:
        raise ConfigError(_what_to_set(name, error) if _is_known(name) else _what_is_meant(config, error)) from error
    except ImportError as error:
        raise ConfigError(_what_to_install(name, error)) from error
    _check_key(model)
    return model


@contextmanager
def _clean_keys() -> Iterator[None]:
    """Clean the keys that providers read inside: no blanks around a copied key, and an empty one is not set.

    Providers have a name of their own for each key and for its argument, but all of them read the environment.
    """
    keys = {name: value for name, value in os.environ.items() if _KEY.search(name) and (value != value.strip() or not value)}
    for name, value in keys.items():
        if value.strip():
            os.environ[name] = value.strip()
        else:
            del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(keys)


def _check_key(model: "Model") -> None:
    from freeact_sub.models.failures import key_of  # noqa: PLC0415  # slow, see above

    name = key_of(model) or ""
    key = os.environ.get(name, "").strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError(f"the environment variable {name} has characters that no key has: copy the key again")


def usable_model(config: Config, traffic: "Traffic", wanted: "str | Model | None" = None) -> "Model":
    """Build a model as agents use it, with its fallback models.

    Args:
        config: All settings.
        traffic: The state that all requests of a root share.
        wanted: A name of `config.models`, `PROVIDER:NAME`, or a model. None: the model that the settings name.

    Raises:
        ConfigError: The model or a fallback cannot be built.
    """
    from pydantic_ai.exceptions import ModelAPIError  # noqa: PLC0415  # slow, see above
    from pydantic_ai.models.fallback import FallbackModel  # noqa: PLC0415

    names = config.models.names
    first = config.model if wanted is None else names.get(wanted, wanted) if isinstance(wanted, str) else wanted
    others = [other for name in config.fallback_models if (other := names.get(name, name)) != first]
    primary = _usable(first, config, traffic, stands_in=False, is_last=not others)
    if not others:
        return primary
    try:
        fallbacks = [
            _usable(other, config, traffic, stands_in=True, is_last=number == len(others))
            for number, other in enumerate(others, 1)
        ]
    except ConfigError as error:
        raise ConfigError(f"setting `fallback_models`: {error}") from error
    return FallbackModel(primary, *fallbacks, fallback_on=(ModelAPIError, ContextOverflowError))


def _usable(wanted: "str | Model | None", config: Config, traffic: "Traffic", *, stands_in: bool, is_last: bool) -> "Model":
    """Wrap a model as agents use it (`code_actions`).

    Args:
        wanted: A full name, or a model. An address that is set for the root's model counts for others of its provider too.
        config: All settings.
        traffic: The state that all requests of a root share.
        stands_in: The model is a fallback.
        is_last: The model has no fallback.
    """
    from freeact_sub.models.code_actions import CodeActionsModel  # noqa: PLC0415  # slow, see above

    if isinstance(wanted, str | None):
        full = wanted or ""
        same = full.partition(":")[0] == (config.model or full).partition(":")[0]
        config = config.model_copy(update={"model": wanted, "base_url": config.base_url if same else None})
    model = build_model(config) if isinstance(wanted, str | None) else wanted
    # a server of one's own may tell how large the context is; the large providers' are large
    profile = config.profile or (None if config.base_url else "full")
    return CodeActionsModel(
        model,
        lane=traffic.lane(model, stands_in=stands_in),
        patience_seconds=config.rate_limit_seconds if is_last else 0,
        stall_seconds=config.stall_seconds,
        code_actions=config.code_actions,
        profile=profile,
    )


def make_traffic(config: Config) -> "Traffic":
    """Return the state that all requests of a root share."""
    from freeact_sub.models.sending import Traffic  # noqa: PLC0415  # slow, see above

    return Traffic(max_concurrent=config.models.max_concurrent, patience_seconds=config.rate_limit_seconds)


def build_model_settings(config: Config) -> "ModelSettings":
    """Return the settings for every model request, each converted to its type: settings from the environment are text.

    Raises:
        ConfigError: A setting is unknown, or has a wrong value.
    """
    from pydantic_ai.settings import ModelSettings  # noqa: PLC0415  # slow, see above

    hints = get_type_hints(ModelSettings)
    settings = {name: _setting(name, value, hints) for name, value in config.model_settings.items()}
    patience = config.first_event_timeout_seconds
    waits = {"first_event_timeout": patience}
    if patience > CLIENT_TIMEOUT_SECONDS:
        waits["timeout"] = patience
    return cast("ModelSettings", {**waits, **settings})


def _setting(name: str, value: Any, hints: dict[str, Any]) -> Any:
    if name not in hints:
        if _is_setting_of_a_provider(name):
            return value
        near = difflib.get_close_matches(name, hints, n=1)
        known = f"did you mean `{near[0]}`?" if near else f"the known ones are {', '.join(sorted(hints))}"
        raise ConfigError(f"unknown setting `model_settings.{name}`: {known}")
    try:
        return TypeAdapter(hints[name]).validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise ConfigError(f"setting `model_settings.{name}`: {problem} (got {kind_of(value)})") from error


def _is_setting_of_a_provider(name: str) -> bool:
    """Whether a setting belongs to one provider; its name begins with the provider's: `openai_reasoning_effort`."""
    provider = name.partition("_")[0]
    return provider.isidentifier() and importlib.util.find_spec(f"pydantic_ai.models.{provider}") is not None


def _is_known(name: str) -> bool:
    from pydantic_ai.models import parse_model_id  # noqa: PLC0415  # slow, see above
    from pydantic_ai.providers import infer_provider_class  # noqa: PLC0415

    try:
        infer_provider_class(parse_model_id(name)[0] or "")
    except ValueError:
        return False
    except ImportError:
        pass  # known, and not installed
    return True


def _provider_at(base_url: str, name: str) -> "Provider[Any]":
    from pydantic_ai.models import parse_model_id  # noqa: PLC0415  # slow, see above
    from pydantic_ai.providers import infer_provider_class  # noqa: PLC0415

    if not re.match(r"https?://[^/]", base_url):
        shown = base_url.rpartition("@")[2].partition("?")[0]  # what stands around it may be secret
        raise ConfigError(f"setting `base_url`: {shown!r} is not a web address: write http://HOST:PORT/v1")
    provider = parse_model_id(name)[0] or ""
    provider_class: Any = infer_provider_class(provider)
    if "base_url" not in inspect.signature(provider_class).parameters:
        raise ConfigError(
            f"setting `base_url`: models of {provider!r} take none; remove it, or name the model `openai-chat:NAME` "
            "if the server speaks OpenAI's protocol"
        )
    return cast("Provider[Any]", provider_class(base_url=base_url))


def _what_is_meant(config: Config, error: Exception) -> str:
    check_name(config)
    words = str(error)
    return words if words.endswith("?") else f"{words}; {NAME_HINT}"


def _what_to_set(name: str, error: Exception) -> str:
    """Return the provider's message; for a missing variable without its advice to programmers."""
    missing = re.match(r"Set the `(\w+)` environment variable", str(error))
    if missing is None:
        return f"the model {name!r} cannot be used: {error}"
    may_be_local = name.startswith("openai") or missing[1].endswith("BASE_URL")
    local = "; for a server of your own, set `base_url`" if may_be_local else ""
    return f"the model {name!r} needs the environment variable {missing[1]}: set it{local}"


def _what_to_install(name: str, error: ImportError) -> str:
    named = re.search(r"pydantic-ai-slim\[([\w-]+)\]", str(error))
    if named is None:
        return f"the model {name!r} cannot be used: {error}"
    return f"the model {name!r} needs a package that is not installed: run `{how_to_install_provider(named[1])}`"
