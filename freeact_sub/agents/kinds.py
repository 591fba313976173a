"""What a named type does to an agent: which tools and MCP servers it has, whom it may start, and what it is told.

A plain child is an agent like its parent, so it has its parent's type. What a type forbids (`tools.deny`, `mcp`, its mode)
holds for all agents below as well; what it picks (`tools.allow`) is for its own agents alone, so that an agent which only
coordinates may start others that work.
"""

from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability

from freeact_sub.agents.definitions import AgentType, unknown_name, unknown_tool
from freeact_sub.agents.outputs import output_type_of
from freeact_sub.agents.tree import AgentNode
from freeact_sub.budget import Budget
from freeact_sub.calls import Call, CodeAction, McpCall, SpawnCall, ToolCall
from freeact_sub.config import McpServerConfig
from freeact_sub.errors import ApprovalDeniedError, ConfigError, InvalidRequestError, SpawnForbiddenError
from freeact_sub.modes import narrower
from freeact_sub.text import one_line
from freeact_sub.tools import TOOL_NAMES, SpawnRequest, mcp_tool_name


def startable(node: AgentNode) -> dict[str, AgentType]:
    """The named types that an agent may start, by name."""
    allowed = [
        node.tree.config.subagents.allow_agents,
        *(above.kind.allow_agents for above in node.ancestors() if above.kind),
    ]
    lists = [names for names in allowed if names is not None]
    return {name: kind for name, kind in node.tree.types.types.items() if all(name in names for names in lists)}


def resolved(request: SpawnRequest, node: AgentNode) -> tuple[SpawnRequest, AgentType | None]:
    """A request with what the child's type says where the request says nothing, and that type.

    Args:
        request: What is asked for.
        node: The agent that asks.

    Raises:
        InvalidRequestError: There is no such type.
        SpawnForbiddenError: This agent may not start it.
    """
    kind = node.kind
    if request.agent is not None:
        kind = node.tree.types.types.get(request.agent)
        if kind is None:
            raise InvalidRequestError(unknown_name("agent type", request.agent, startable(node)))
        if kind.name not in startable(node):
            others = ", ".join(sorted(startable(node))) or "none"
            raise SpawnForbiddenError(
                f"this agent may not start agents of type {kind.name!r} (`allow_agents`); it may start: {others}"
            )
    if kind is None:
        return request, None
    mode = kind.mode if request.mode is None else request.mode
    output_type = request.output_type
    if output_type is str and kind.output is not None:
        output_type = output_type_of(kind.output)
        request = replace(request, output_schema=kind.output)
    request = replace(
        request,
        mode=mode if mode is None or kind.mode is None else narrower(mode, kind.mode),
        budget=request.budget.over(kind.budget).over(_depth(kind, node)),
        output_type=output_type,
    )
    return request, kind


def _depth(kind: AgentType, node: AgentNode) -> Budget:
    """How many levels there may be below a child of a type, as far as its `max_depth` says."""
    return Budget() if kind.max_depth is None else Budget(depth=max(0, kind.max_depth - node.depth - 1))


def servers_of(node: AgentNode) -> dict[str, McpServerConfig]:
    """The MCP servers that an agent has."""
    servers = node.tree.config.mcp_servers
    for above in node.ancestors():
        if above.kind is not None and above.kind.mcp is not None:
            servers = {name: server for name, server in servers.items() if name in above.kind.mcp}
    return dict(servers)


def has_tool(node: AgentNode, name: str) -> bool:
    """Whether an agent's type lets it have a tool."""
    denied = any(above.kind.tools.denies(name) for above in node.ancestors() if above.kind)
    return not denied and (node.kind is None or node.kind.tools.allows(name))


def check_has_tool(node: AgentNode, call: Call) -> None:
    """Refuse what code in a cell asks for if it is a tool that the agent does not have.

    Raises:
        ApprovalDeniedError: The agent does not have it.
    """
    name = _tool_of(call)
    if name is not None and not has_tool(node, name):
        kind = next(above.kind.name for above in node.ancestors() if above.kind)
        raise ApprovalDeniedError(f"agents of type {kind!r} do not have the tool {name}")


def told_of_types(node: AgentNode) -> str:
    """What the system prompt says of the types that an agent may start; empty if there are none."""
    kinds = startable(node)
    if not kinds:
        return ""
    lines = [f"  - {kind.name}: {one_line(kind.description, 400)}" for kind in kinds.values()]
    return "\n- Types of child agents, for the argument `agent` of task:\n" + "\n".join(lines)


def kind_prompt(node: AgentNode) -> str:
    """What an agent's type adds to its system prompt."""
    return f"\n\n{node.kind.prompt}" if node.kind is not None and node.kind.prompt else ""


@dataclass(kw_only=True)
class ToolFilter(AbstractCapability[Any]):
    """Takes away the tools that an agent's type does not let it have."""

    node: AgentNode

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """See pydantic-ai.

        Raises:
            ConfigError: The type names a tool that is none.
        """
        del ctx
        kind = self.node.kind
        if kind is not None:
            known = {*TOOL_NAMES, *(tool.name for tool in tool_defs)}
            for name in (*(kind.tools.allow or ()), *kind.tools.deny):
                if problem := unknown_tool(name, known, self.node.tree.config.mcp_servers):
                    raise ConfigError(f"agent type {kind.name!r} ({kind.file}): {problem}")
        return [tool for tool in tool_defs if has_tool(self.node, tool.name)]


def _tool_of(call: Call) -> str | None:
    match call:
        case McpCall():
            return mcp_tool_name(call.server, call.tool)
        case SpawnCall():
            return "task"
        case ToolCall():
            return call.tool_name
        case CodeAction():
            return "execute_ipython_cell"
        case _:  # what a running cell does
            return None
