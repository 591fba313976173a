"""Collects the secrets that the program knows, which are never written into a session."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from freeact_sub.config.schema import Config, McpServerConfig
from freeact_sub.errors import McpError

MIN_CHARS: Final = 8
"""Smallest length of a secret; removing shorter values would damage ordinary words."""
NAMES: Final = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|AUTH|AUTHORIZATION|COOKIE)$", re.IGNORECASE)
"""Endings of the names of settings, variables and headers with secret values."""


def known_secrets(
    config: Config, servers: Mapping[str, McpServerConfig], environment: Mapping[str, str] = os.environ
) -> list[str]:
    """Return all secret values: of settings, MCP servers and their sign-ins, and environment variables named like keys."""
    found = {*_named(environment), *_of_settings(config), *_of_servers(servers)}
    return sorted(value for value in found if len(value) >= MIN_CHARS)


def _of_settings(config: Config) -> Iterator[str]:
    yield from _named(config.kernel.env)
    yield from _named(config.kernel.gateway.model_dump())
    yield from _named(config.kernel.options)
    yield from _named(config.model_settings)
    yield from _headers(config.model_settings.get("extra_headers"))
    yield from _password(config.base_url)


def _of_servers(servers: Mapping[str, McpServerConfig]) -> Iterator[str]:
    for name, server in servers.items():
        yield from _headers(server.headers)
        yield from _named(server.env)
        yield from _named(server.oauth.model_dump())
        yield from _password(server.url)
        yield from _sign_in(name, server.url)


def _named(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values whose names mark them as secrets."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _named(value)
        elif NAMES.search(str(name)):
            secret = value.get_secret_value() if hasattr(value, "get_secret_value") else value
            if isinstance(secret, str):
                yield secret


def _headers(headers: Any) -> Iterator[str]:
    """Yield the header values of a server, any of which may be secret, and the KEY of `Bearer KEY`."""
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


def _sign_in(server: str, url: str | None) -> Iterator[str]:
    """Yield the tokens with which a person is signed in now."""
    if url is None:
        return
    from freeact_sub.mcp.tokens import TokenFile  # noqa: PLC0415  # few agents have such servers

    with suppress(McpError):  # a file that cannot be used: its server tells, when it is called
        kept = TokenFile(server, url).read()
        if kept is not None:
            yield from (*_named(kept.tokens), *_named(kept.client))
