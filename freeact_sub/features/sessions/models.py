"""The model of a session, and the meaning of its name. A conversation goes on where it was held, or where a person says now.

A name alone is not enough: `openai-chat:NAME` is a model of one's own server with `base_url`, and one of a provider without.
So a session keeps the settings that give its model a meaning, and the addresses that they led to.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic_ai.models import Model

from freeact_sub.config.schema import Config, ModelsConfig
from freeact_sub.errors import SessionError, way
from freeact_sub.models.observers import SECRET, addresses
from freeact_sub.sessions import StoredSession

OF_ADDRESS: Final = ("base_url", "fallback_models")
SETTINGS: Final = ("model", "base_url", "fallback_models", "model_settings", "code_actions", "answer_check", "profile")
"""Settings that are kept, besides the names in `models`."""


def model_json(config: Config, model: Model) -> str:
    """Return the session's record of its model. Args: model: from the settings, or given by a program."""
    settings = {name: getattr(config, name) for name in SETTINGS}
    names = {name: other if isinstance(other, str) else None for name, other in config.models.names.items()}
    return json.dumps({"settings": {**settings, "models": names}, "addresses": addresses(model)}, default=str)


def with_model_of(stored: StoredSession, config: Config) -> Config:
    """Return the settings with which a session goes on: with its model, unless another one was chosen for it.

    A choice is a setting that a program gives to `Config`, or an argument of `load_config`. Settings of files and variables
    are for new sessions: they do not decide where this conversation may go.

    Raises:
        SessionError: The session does not say which model it had.
    """
    kept: Mapping[str, Any] = stored.model_settings
    other = has_other_model(stored, config)
    if not other and not stored.model:
        had = f" ({', '.join(stored.addresses)})" if stored.addresses else ""
        raise SessionError(
            f"the session {stored.session_id} used a model object of a program{had}, which cannot be stored: name a model "
            f"with {way('Agent.resume(ID, model=...)', '--model')}"
        )
    if not other and not kept:
        raise SessionError(
            f"the session {stored.session_id} does not record the address of its model {stored.model}: name a model with "
            f"{way('Agent.resume(ID, model=...)', '--model')}"
        )
    update: dict[str, Any] = {name: kept[name] for name in SETTINGS if name in kept}
    if other:
        same_provider = _provider(config.model) == _provider(stored.model)
        wanted = OF_ADDRESS if same_provider and kept.get("base_url") else ()
        update = {name: value for name, value in update.items() if name in wanted} if wanted else {"fallback_models": ()}
    update = {name: value for name, value in update.items() if name not in config.model_fields_set}
    if "fallback_models" in update:
        update["fallback_models"] = tuple(update["fallback_models"])
    if "models" not in config.model_fields_set:
        update["models"] = _models(config.models, kept.get("models", {}))
    kept_config = config.model_copy(update=_without_secrets(stored, update, config))
    return kept_config.choosing(config.model_fields_set)


def has_other_model(stored: StoredSession, config: Config) -> bool:
    """Whether another model than its own was chosen for the session."""
    return "model" in config.model_fields_set and config.model is not None and config.model != stored.model


def check_addresses(stored: StoredSession, config: Config, model: Model) -> None:
    """Refuse an unchosen model at another address than the session's: the environment has changed.

    Raises:
        SessionError: The conversation would go to somebody else.
    """
    chosen = config.model_fields_set
    first, *others = addresses(model)
    if has_other_model(stored, config) or "base_url" in chosen:
        first = ""
    if not chosen.isdisjoint(("base_url", "fallback_models", "models")):
        others = []
    new = [address for address in (first, *others) if address and address not in stored.addresses]
    if new and SECRET not in "".join(stored.addresses):
        raise SessionError(
            f"the session {stored.session_id} used {_listed(stored.addresses)}, and the current settings name "
            f"{_listed(new)}: set `base_url` to one of them, or name another model"
        )


def _models(now: ModelsConfig, kept: Mapping[str, str | None]) -> ModelsConfig:
    """Return the present names with the session's meanings. One that meant an object of a program means nothing."""
    names = {name: value for name, value in {**now.names, **kept}.items() if value is not None}
    return ModelsConfig(max_concurrent=now.max_concurrent, **names)


def _provider(name: str | None) -> str:
    return (name or "").partition(":")[0]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _without_secrets(stored: StoredSession, settings: dict[str, Any], now: Config) -> dict[str, Any]:
    """Return the settings, with the secrets of those present settings that are otherwise equal.

    Raises:
        SessionError: A secret was left out of a setting that has changed.
    """
    for name, value in settings.items():
        if SECRET not in (kept := _json(value)):
            continue
        if not re.fullmatch(re.escape(kept).replace(re.escape(SECRET), '[^"]+'), _json(getattr(now, name))):
            raise SessionError(
                f"the setting `{name}` of the session {stored.session_id} held a secret, which is never stored: set it "
                "again, or name a model"
            )
        settings = {**settings, name: getattr(now, name)}
    return settings


def _json(value: Any) -> str:
    return json.dumps(value, default=str, sort_keys=True)
