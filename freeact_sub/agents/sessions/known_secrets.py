"""The secrets that the program knows: they are written into no session."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from freeact_sub.config.schema import Config

MIN_CHARS: Final = 8
"""Shorter values are no secrets, and would be taken out of the middle of words."""
NAMES: Final = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|AUTH|AUTHORIZATION|COOKIE)$", re.IGNORECASE)
"""How the names of settings, variables and headers end whose values are secrets."""


def known_secrets(config: Config, environment: Mapping[str, str] = os.environ) -> list[str]:
    """All values that are to be left out: of the settings, and of variables that are named as keys are."""
    found = {*_named(environment), *_of_settings(config)}
    return sorted(value for value in found if len(value) >= MIN_CHARS)


def _of_settings(config: Config) -> Iterator[str]:
    yield from _named(config.kernel.env)
    yield from _named(config.kernel.gateway.model_dump())
    yield from _named(config.kernel.options)
    yield from _named(config.model_settings)
    yield from _headers(config.model_settings.get("extra_headers"))
    yield from _password(config.base_url)
    for server in config.mcp_servers.values():
        yield from _headers(server.headers)
        yield from _named(server.env)
        yield from _password(server.url)


def _named(values: Mapping[str, Any]) -> Iterator[str]:
    """Values whose names say what they are."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _named(value)
        elif NAMES.search(str(name)):
            secret = value.get_secret_value() if hasattr(value, "get_secret_value") else value
            if isinstance(secret, str):
                yield secret


def _headers(headers: Any) -> Iterator[str]:
    """Every header of a server may be one; of `Bearer KEY` the key is one by itself."""
    for value in headers.values() if isinstance(headers, Mapping) else ():
        yield str(value)
        yield str(value).rpartition(" ")[2]


def _password(url: str | None) -> Iterator[str]:
    try:
        password = urlsplit(url or "").password
    except ValueError:
        return
    if password:
        yield from (password, unquote(password))
