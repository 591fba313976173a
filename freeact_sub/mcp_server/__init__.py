"""`freeact-sub mcp-server`: agents and their kernels as tools of an MCP server, for other agents and editors.

- `served`: the agents that the server has open, the run of each, and what they ask.
- `pending`: a call of a tool, until it ends or asks; `questions`: what is asked, as forms of the protocol.
- `agent_tools` and `kernel_tools`: the tools; `reports`: what they return; `resources`: transcripts and outputs.
- `server` puts them together and serves; over HTTP to whoever has the token.

It uses the public library only.
"""

from freeact_sub.mcp_server.server import serve_http, serve_stdio

__all__ = ["serve_http", "serve_stdio"]
