"""`freeact-sub mcp-server`: agents and kernels for MCP clients."""

import argparse
import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freeact_sub.cli.commands import Settings


def serve(options: argparse.Namespace, settings: "Settings") -> int:
    """Serve until the client has left."""
    config = settings()
    config = config.model_copy(update={"subagents": config.subagents.model_copy(update={"detach": False})})
    from freeact_sub.mcp_server import serve_http, serve_stdio  # noqa: PLC0415  # slow to import

    port: int | None = getattr(options, "http", None)
    asyncio.run(serve_stdio(config) if port is None else serve_http(config, port))
    return 0
