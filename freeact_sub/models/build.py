"""Builds the model that the settings name, and its settings; errors in them become one clear `ConfigError`.

Importing this module is cheap. pydantic-ai (0.6 s, and up to 2 s more for a provider) is imported when a model is built.
"""

import difflib
import importlib.util
import inspect
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast, get_type_hints

from pydantic import TypeAdapter, ValidationError

from freeact_sub.config.network_variables import check_network_variables
from freeact_sub.config.parsing import kind_of
from freeact_sub.config.schema import Config
from freeact_sub.errors import ConfigError, ContextOverflowError
from freeact_sub.extras import how_to_install_provider
from freeact_sub.models.names import NAME_HINT, check_name, require_model

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.providers import Provider
    from pydantic_ai.settings import ModelSettings

    from freeact_sub.models.sending import Traffic

CLIENT_TIMEOUT_SECONDS: Final = 600
"""The timeouts of the providers' own clients."""
_KEY: Final = re.compile(r"(?:KEY|TOKEN)(?:_BEDROCK)?$")
"""How the environment variables of providers' keys end."""


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
    """Providers read keys inside: without blanks around them, as a copied key may have them; an empty one is not set.

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
    """Builds a model as agents use it, with its fallback models.

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
    """Wraps a model as agents use it (`code_actions`).

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
    """The state that all requests of a root share."""
    from freeact_sub.models.sending import Traffic  # noqa: PLC0415  # slow, see above

    return Traffic(max_concurrent=config.models.max_concurrent, patience_seconds=config.rate_limit_seconds)


def build_model_settings(config: Config) -> "ModelSettings":
    """The settings for every model request, each converted to its type: settings from the environment are text.

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
    """Whether pydantic-ai knows the provider of the name."""
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
    """Return the proposal of `check_name`, or else pydantic-ai's message, which may name models."""
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
