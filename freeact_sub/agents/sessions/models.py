"""The model of a session: what its name means. A conversation goes on where it was held, or where somebody says so now.

A name alone is not enough: `openai-chat:NAME` is a model of one's own server with `base_url`, and one of a provider without.
So a session keeps the settings that give its model a meaning, and the addresses that they led to.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic_ai.models import Model

from freeact_sub.config.schema import Config
from freeact_sub.errors import SessionError
from freeact_sub.models.inner import models_in
from freeact_sub.sessions import StoredSession

SECRET: Final = "[secret]"  # noqa: S105  # what stands in place of one
SETTINGS: Final = ("model", "base_url", "fallback_models", "model_settings", "code_actions", "answer_check", "profile")
"""The settings that are kept, besides the names in `models`."""


def model_json(config: Config, model: Model) -> str:
    """What a session keeps of its model. Args: model: the one that the settings have led to, or that a program has given."""
    settings = {name: getattr(config, name) for name in SETTINGS}
    names = {name: other for name, other in config.models.names.items() if isinstance(other, str)}
    return json.dumps({"settings": {**settings, "models": names}, "addresses": addresses(model)}, default=str)


def addresses(model: Model) -> list[str]:
    """Where requests go: the name and the server of the model, and of its fallbacks."""
    return [address_of(each) for each in models_in(model)]


def address_of(model: Model) -> str:
    """The name and the server of one model, without a password."""
    try:
        parts = urlsplit(str(model.base_url or ""))
    except ValueError:
        return f"{model.model_id} at {SECRET}"
    server = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
    return f"{model.model_id} at {server}" if parts.netloc else model.model_id


def with_model_of(stored: StoredSession, config: Config, chosen: Collection[str]) -> Config:
    """The settings with which a session goes on: with its model, unless another one is chosen.

    Args:
        stored: The session.
        config: The settings of now.
        chosen: The names of those that somebody has chosen for this; the session's count before all others.

    Raises:
        SessionError: The session does not say which model it had.
    """
    kept: Mapping[str, Any] = stored.model_settings
    if "model" in chosen and config.model is not None and config.model != stored.model:
        same = config.model.partition(":")[0] == stored.model.partition(":")[0]
        if same and config.base_url is None and "base_url" not in chosen and kept.get("base_url"):
            return config.model_copy(update=_without_secrets(stored, {"base_url": kept["base_url"]}))
        return config
    if not stored.model:
        had = f" ({', '.join(stored.addresses)})" if stored.addresses else ""
        raise SessionError(
            f"a program gave the session {stored.session_id} its model{had}, which no session can keep: name a model, by "
            "--model or Agent.resume(ID, model=...)"
        )
    if not kept:
        raise SessionError(
            f"the session {stored.session_id} does not say at which address its model {stored.model} is: name a model, by "
            "--model or Agent.resume(ID, model=...)"
        )
    update = {name: value for name, value in kept.items() if name in SETTINGS and name not in chosen}
    update = _without_secrets(stored, update)
    if "fallback_models" in update:
        update["fallback_models"] = tuple(update["fallback_models"])
    if "models" not in chosen:
        names = {**kept.get("models", {}), **config.models.names}
        update["models"] = config.models.model_copy(update=names)
    return config.model_copy(update=update)


def check_addresses(stored: StoredSession, config: Config, model: Model) -> None:
    """Refuse a model that has the settings of the session's and is at another address: the environment has changed.

    Raises:
        SessionError: The conversation would go to somebody else.
    """
    same = all(json.loads(json.dumps(getattr(config, name))) == stored.model_settings.get(name) for name in _OF_ADDRESS)
    others = [address for address in addresses(model) if address not in stored.addresses]
    if same and others and SECRET not in "".join(stored.addresses):
        raise SessionError(
            f"the session {stored.session_id} was held with {_listed(stored.addresses)}, and would go on with "
            f"{_listed(others)}: set `base_url` (--base-url) to one of them, or name another model"
        )


_OF_ADDRESS: Final = ("model", "base_url", "fallback_models")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _without_secrets(stored: StoredSession, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings. Raises: SessionError: A secret was left out of them."""
    for name, value in settings.items():
        if SECRET in json.dumps(value):
            raise SessionError(
                f"the setting `{name}` of the session {stored.session_id} has a secret, which no session keeps: set it "
                "again, or name a model"
            )
    return settings
