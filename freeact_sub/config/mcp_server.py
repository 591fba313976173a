"""`McpServerConfig`, the settings of one MCP server."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Self

from pydantic import Field, field_validator, model_validator

from freeact_sub.config.gateway import check_url
from freeact_sub.config.section import Given, Section, Table, Texts, default


def check_names(variables: dict[str, str]) -> dict[str, str]:
    """Raise ValueError unless all can be names of environment variables."""
    for name in variables:
        if not name or "=" in name:
            shown = name.partition("=")[0]  # behind it stands what may be secret
            raise ValueError(f"{shown!r} is not the name of an environment variable: it must be text without `=`")
    return variables


class OAuthConfig(Section):
    """How a person signs in to an HTTP server (docs/mcp.md); most servers need none of it."""

    client_id: str | None = None
    """The id of a client that you have registered with the server's provider. By default the program registers itself."""
    client_secret: str | None = None
    """Its secret, if it has one: `${VAR}` takes it from the environment."""
    scope: str | None = None
    """The rights to ask for, with blanks between them. By default those that the server names."""
    callback_port: int | None = Field(default=None, ge=1, le=65535)
    """The port of `http://localhost:PORT/callback`, to which the browser returns. By default any free one."""


class McpServerConfig(Section):
    """One server of `mcp.json`: either `command` (stdio) or `url` (streamable HTTP)."""

    command: str | None = None
    """The program of a stdio server."""
    args: Texts = default(())
    """Its arguments."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables; only a few others are passed on."""
    cwd: str | None = None
    """Its working directory."""
    url: str | None = None
    """The address of a streamable HTTP server, instead of `command`."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers that are sent with every request to the URL."""
    oauth: Given[OAuthConfig, OAuthConfig | Table] = default(OAuthConfig())
    type: str | None = None
    """The transport's name, as other programs write it: `stdio`, `http` or `streamable-http`."""
    disabled: bool = False
    """`true`: the server is left out, and needs neither of the others."""
    shared: bool = False
    """`true`: all agents use the root's connection, and what the server keeps for it. By default each has its own."""
    init_timeout_seconds: float = Field(default=30, gt=0)
    """The time that the server may take to start."""
    call_timeout_seconds: float = Field(default=300, gt=0)
    """The time that a call may take. It begins anew when the server tells of its progress, up to 12 times in all."""
    max_message_bytes: int = Field(default=10_000_000, ge=1_000)
    """A larger message from the server is refused, and its call fails."""
    only_tools: Given[tuple[str, ...] | None, Sequence[str] | None] = default(None)
    """The tools to offer, by the server's names. By default all."""
    without_tools: Texts = default(())
    """Tools that are not offered."""
    unread: Texts = default(())
    """Keys of its file that mean nothing here: a notice names them at the start."""
    notice: str = ""
    """A sentence for the start of a session: its entry cannot be used, or its name is another one here."""

    def offers(self, tool: str) -> bool:
        """Whether agents may see a tool of the server."""
        return tool not in self.without_tools and (self.only_tools is None or tool in self.only_tools)

    _names_of_variables = field_validator("env")(check_names)

    @model_validator(mode="after")
    def _one_transport(self) -> Self:
        if self.disabled and self.command is None and self.url is None:
            return self
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either `command` or `url`")
        if self.url is not None:
            check_url(self.url, "http://127.0.0.1:8000/mcp")
        return self


INNER: Final = frozenset({"unread", "notice"})
"""What the reader of a file notes; no key of the file has this meaning."""


def is_server_name(name: str) -> bool:
    """Whether a server may have this name."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name) is not None


def notices_on(servers: Mapping[str, McpServerConfig]) -> tuple[str, ...]:
    """What is to be told of servers at the start: see `McpServerConfig.notice`, and the keys that mean nothing here."""
    return (*(server.notice for server in servers.values() if server.notice), *unread_keys(servers))


def unread_keys(servers: Mapping[str, McpServerConfig]) -> tuple[str, ...]:
    """One sentence on the keys of files with servers that mean nothing here; none if all do."""
    found = [f"{', '.join(server.unread)} of {name!r}" for name, server in servers.items() if server.unread]
    return (f"keys of MCP servers that mean nothing here are not used: {'; '.join(found)}",) if found else ()
