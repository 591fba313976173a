"""Settings of an MCP server as other programs write them, read as ours.

What narrows has its meaning here too. What only another program knows is told once, and nothing of it approves a call: a
file that came with a project must not.
"""

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Final

APPROVALS: Final = frozenset({"autoApprove", "alwaysAllow", "autoAllow", "trust"})
"""Keys by which other programs ask nobody."""
URLS: Final = ("httpUrl", "serverUrl")
LEFT_OUT: Final = ("disabledTools", "disabled_tools", "excludeTools")
ONLY: Final = ("enabledTools", "enabled_tools", "includeTools", "tools")
TRANSPORTS: Final = {
    "streamableHttp": "http",
    "streamable_http": "http",
    "streamable": "http",
    "remote": "http",
    "local": "stdio",
}
OAUTH: Final = {"clientId": "client_id", "clientSecret": "client_secret", "callbackPort": "callback_port"}
MILLISECONDS: Final = 10_000
"""A `timeout` from here on is in milliseconds."""


def as_ours(server: Mapping[str, Any], known: frozenset[str], known_oauth: frozenset[str]) -> dict[str, Any]:
    """The settings of a server, by our names.

    Args:
        server: What the file has.
        known: The names of our settings of a server.
        known_oauth: Those of its `oauth`.
    """
    ours = {name: value for name, value in server.items() if name in known}
    unread: list[str] = []
    for name, value in server.items():
        if name in known:
            continue
        if (read := _READERS.get(name)) is None or not read(ours, value):
            unread.append(_about(name, known))
    kind = ours.get("type")
    if isinstance(kind, str) and kind in TRANSPORTS:
        ours["type"] = TRANSPORTS[kind]
    elif kind == "sse":
        del ours["type"]
        unread.append("`type` (sse is the older transport: the newer one is tried at its URL)")
    if isinstance(oauth := ours.get("oauth"), Mapping):
        ours["oauth"], more = _oauth(oauth, known_oauth)
        unread += more
    return ours | {"unread": [*ours.get("unread", ()), *unread]} if unread else ours


def _about(name: str, known: frozenset[str]) -> str:
    if name in APPROVALS:
        return f"`{name}` (a rule allows calls: docs/approvals.md)"
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.75)
    return f"`{name}` (did you mean `{near[0]}`?)" if near else f"`{name}`"


def _oauth(oauth: Mapping[str, Any], known: frozenset[str]) -> tuple[dict[str, Any], list[str]]:
    ours: dict[str, Any] = {}
    unread = []
    for name, value in oauth.items():
        if name == "scopes" and isinstance(value, list) and all(isinstance(scope, str) for scope in value):
            ours.setdefault("scope", " ".join(value))
        elif name == "scopes" and isinstance(value, str):
            ours.setdefault("scope", value)
        elif (by_our_name := OAUTH.get(name, name)) in known:
            ours.setdefault(by_our_name, value)
        else:
            unread.append(f"`oauth.{name}`")
    return ours, unread


def _seconds(ours: dict[str, Any], value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return False
    ours.setdefault("call_timeout_seconds", value / 1000 if value >= MILLISECONDS else value)
    return True


def _switch(ours: dict[str, Any], value: Any) -> bool:
    if isinstance(value, bool):
        ours["disabled"] = not value or ours.get("disabled", False)
    return isinstance(value, bool)


def _url(ours: dict[str, Any], value: Any) -> bool:
    ours.setdefault("url", value)
    return True


def _names(setting: str) -> Callable[[dict[str, Any], Any], bool]:
    def read(ours: dict[str, Any], value: Any) -> bool:
        if setting == "only_tools" and value == ["*"]:
            return True
        ours.setdefault(setting, value)  # a wrong value is refused: it would narrow
        return True

    return read


_READERS: Final[dict[str, Callable[[dict[str, Any], Any], bool]]] = {
    "timeout": _seconds,
    "enabled": _switch,
    "isActive": _switch,
    **dict.fromkeys(URLS, _url),
    **dict.fromkeys(LEFT_OUT, _names("without_tools")),
    **dict.fromkeys(ONLY, _names("only_tools")),
}
