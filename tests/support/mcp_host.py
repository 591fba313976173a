"""What tests of MCP connections share."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support import plain_mcp_server
from support.waiting import is_running

from freeact_sub.config.schema import McpServerConfig
from freeact_sub.mcp import McpCatalogue, McpServers


class McpHost:
    """What one agent has of MCP, and what its servers note."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.catalogue = McpCatalogue()

    def servers(self, **configs: McpServerConfig) -> McpServers:
        return McpServers(configs, catalogue=self.catalogue, log_folder=self.folder / "logs", log_root=self.folder)

    def plain(self, *behaviour: str, **settings: object) -> McpServerConfig:
        environment = {"PID_FILE": str(self.folder / "pids")}
        arguments = (plain_mcp_server.__file__, *behaviour)
        return McpServerConfig(command=sys.executable, args=arguments, env=environment, **settings)

    def pids(self) -> list[int]:
        """Of all processes that the servers have noted, in order of their start."""
        file = self.folder / "pids"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def running(self) -> list[int]:
        return [pid for pid in self.pids() if is_running(pid)]


@contextmanager
def http_server(script: str, *arguments: object) -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, script, *map(str, arguments or (0,))], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()
