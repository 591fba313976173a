"""Outside tools: the connections of one agent to its MCP servers."""

from freeact_sub.mcp.offers import McpResult, McpTool
from freeact_sub.mcp.servers import McpCatalogue, McpServers

__all__ = ["McpCatalogue", "McpResult", "McpServers", "McpTool"]
