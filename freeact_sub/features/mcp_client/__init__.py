"""MCP servers of agents: connections beside their kernels, tools for their models, `agent.mcp` for their code (docs/mcp.md).

`client.py` takes part in agents; `toolset.py` has the tools for models, and is loaded for agents with servers only. The
connections themselves are in `freeact_sub.mcp`.
"""
