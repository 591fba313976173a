"""The tools of an agent's MCP servers for its model, and what servers tell of calls, of the model and of code."""

from functools import partial
from typing import Final

from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.events import Notice, ToolProgress
from freeact_sub.events.call_progress import CallProgress
from freeact_sub.mcp import McpServers
from freeact_sub.tools import McpToolset

USUAL_WINDOW: Final = 128_000
"""The window of a model in tokens where nobody knows it."""


def mcp_toolset(agent: TreeAgent, servers: McpServers) -> McpToolset:
    """The tools of an agent's servers for its model."""
    window = agent.window_tokens or USUAL_WINDOW
    return McpToolset(
        servers,
        on_error=lambda error: agent.emitter.put(Notice(content=str(error))),
        ask=agent.ask_person,
        on_progress=partial(tell_progress, agent),
        most_tokens=round(window * agent.shared.config.context.mcp_tools),
    )


def tell_progress(
    agent: TreeAgent, name: str, progress: CallProgress, *, call_id: str = "", tool_call_id: str | None
) -> None:
    """Put what a server tells of a call on the stream of an agent."""
    event = ToolProgress(tool_name=name, call_id=call_id, **vars(progress))
    agent.emitter.put(event, tool_call_id=tool_call_id)
