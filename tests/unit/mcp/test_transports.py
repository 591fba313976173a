"""A server's settings choose its transport; `TRANSPORTS` is the one list of them."""

from pathlib import Path

import pytest

from freeact_sub.config.schema import McpServerConfig
from freeact_sub.errors import ConfigError
from freeact_sub.mcp import transports
from freeact_sub.mcp.servers import McpCatalogue, McpServers
from freeact_sub.mcp.transports import HttpTransport, StdioTransport, transport_for

URL = "http://127.0.0.1:1/mcp"


class PipeTransport(StdioTransport):
    names = frozenset({"pipe"})

    @classmethod
    def serves(cls, config: McpServerConfig) -> bool:
        return config.type in cls.names


def test_the_settings_choose_the_transport():
    assert transport_for("a", McpServerConfig(command="x")) is StdioTransport
    assert transport_for("a", McpServerConfig(command="x", type="stdio")) is StdioTransport
    assert transport_for("a", McpServerConfig(url=URL, type="streamable-http")) is HttpTransport
    assert transport_for("a", McpServerConfig(url=URL, type="stdio")) is HttpTransport  # the name decides nothing


def test_a_name_that_no_transport_has_is_refused_before_anything_starts():
    servers = {"a": McpServerConfig(command="x", type="pipe")}
    with pytest.raises(ConfigError, match="`type` of MCP server 'a' is 'pipe': write one of 'http', 'stdio'"):
        McpServers(servers, catalogue=McpCatalogue(), log_folder=Path(), log_root=Path())


def test_a_new_transport_is_a_class_in_the_list(monkeypatch):
    monkeypatch.setattr(transports, "TRANSPORTS", (PipeTransport, *transports.TRANSPORTS))
    assert transport_for("a", McpServerConfig(command="x", type="pipe")) is PipeTransport
    assert transport_for("a", McpServerConfig(command="x")) is StdioTransport
