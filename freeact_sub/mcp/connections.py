"""`Connections`: those of one agent to MCP servers, one for each."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from freeact_sub.config.mcp_server import McpServerConfig
from freeact_sub.errors import McpError
from freeact_sub.mcp.connection import McpConnection
from freeact_sub.system.closing import carry_out

CLOSE_SECONDS: Final = 7.0
"""Longer than a connection takes to kill its server."""


class Connections:
    """They are opened on first use, and anew when they were lost."""

    def __init__(self, *, log_folder: Path, log_root: Path, on_change: Callable[[str, McpConnection], None]) -> None:
        """Opens none yet.

        Args:
            log_folder: Gets a file `mcp-SERVER.log` for each stdio server that is started.
            log_root: The folder from which `log_folder` is reached without following a link.
            on_change: Called with a server and the connection on which it has told that its tools have changed.
        """
        self._log_folder, self._log_root, self._on_change = log_folder, log_root, on_change
        self._current: dict[str, McpConnection] = {}
        self._all: list[McpConnection] = []
        self.closed = False

    def __contains__(self, server: str) -> bool:
        return server in self._current

    def opened(self, server: str, config: McpServerConfig) -> McpConnection:
        """The connection that there is, or a new one. Raises: McpError: `aclose` was called."""
        if self.closed:
            raise McpError(f"the connection to MCP server {server!r} is closed: its agent has ended", server=server)
        connection = self._current.get(server)
        if connection is None or not connection.usable:
            connection = McpConnection(
                server,
                config,
                log_file=self._log_folder / f"mcp-{server}.log",
                log_root=self._log_root,
                on_change=lambda changed: self._on_change(server, changed),
            )
            self._all = [other for other in self._all if not other.done]
            self.take(server, connection)
        return connection

    def take(self, server: str, connection: McpConnection) -> None:
        """Have a connection to a server from now on."""
        self._current[server] = connection
        self._all.append(connection)

    def hand_over(self, server: str) -> McpConnection | None:
        """Leave the connection to a server to another agent; None: there is none, or it has ended, or is being closed."""
        connection = None if self.closed else self._current.get(server)
        if connection is None or not connection.usable:
            return None
        del self._current[server]
        self._all.remove(connection)
        return connection

    async def aclose(self) -> None:
        """Close all within a few seconds, even if the closing task is cancelled."""
        self.closed = True
        await carry_out(self._close(), timeout_seconds=CLOSE_SECONDS)

    async def _close(self) -> None:
        await asyncio.gather(*(connection.aclose() for connection in self._all))
