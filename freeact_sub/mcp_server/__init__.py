"""`freeact-sub mcp-server`: agents and their kernels as tools of an MCP server, for other agents and editors.

- `served`: the agents that the server has open, the run of each, and their questions.
- `pending`: a call of a tool, until it ends or asks; questions as forms of the protocol.
- `reports`: results of tools; transcripts and outputs as resources.
- `server`: the tools for agents and for kernels; it serves, over HTTP to clients that have the token.

It uses the public library only.
"""

from freeact_sub.mcp_server.server import serve_http, serve_stdio

__all__ = ["serve_http", "serve_stdio"]
