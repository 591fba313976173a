"""The effects of a named type on an agent: its tools, its MCP servers, the agents it may start, its instructions.

A child without a type has its parent's. What a type forbids (`tools.deny`, `mcp`, `skills`, its mode) also holds for all
descendants; what it selects (`tools.allow`) applies to its own agents only, so that a coordinator may start workers.

What is chosen for one child stands here too: its model, its tools. A choice never gives it more.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from pydantic_ai import ToolDefinition
from pydantic_ai.models import Model

from freeact_sub.agents.runs.present_run import no_kernel_left
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.agents.types.files import AgentType, ToolNames, unknown_name, unknown_tool
from freeact_sub.agents.types.output_types import schema_output_type
from freeact_sub.calls import Call, CodeAction, McpCall, SpawnCall, ToolCall
from freeact_sub.cells import CELL_TOOL
from freeact_sub.config.budget import Budget
from freeact_sub.config.schema import McpServerConfig
from freeact_sub.errors import (
    ApprovalDeniedError,
    ConfigError,
    InvalidRequestError,
    LimitReachedError,
    SpawnForbiddenError,
)
from freeact_sub.modes import INHERIT, narrower
from freeact_sub.skills import Skill
from freeact_sub.tools import TOOL_NAMES, ChildRequest

T = TypeVar("T")

SPAWNING: Final = ("task", "delegate", "subagents")
"""The tools that start and manage children. Denying `task` denies them all."""


def startable(agent: TreeAgent) -> dict[str, AgentType]:
    """Return the types that an agent may start, by name."""
    allowed = [
        agent.shared.config.subagents.allow_agents,
        *(above.agent_type.allow_agents for above in agent.ancestors() if above.agent_type),
    ]
    lists = [names for names in allowed if names is not None]
    types = agent.shared.types.types
    return {name: types[name] for name in types if all(name in names for names in lists)}


def resolved(request: ChildRequest, agent: TreeAgent) -> tuple[ChildRequest, AgentType | None]:
    """Complete a request from the child's type, and return it with that type.

    Args:
        request: The child as requested.
        agent: The requesting agent.

    Raises:
        InvalidRequestError: The type does not exist.
        SpawnForbiddenError: This agent may not start it.
    """
    agent_type = agent.agent_type
    if request.agent is not None:
        agent_type = agent.shared.types.types.get(request.agent)
        if agent_type is None:
            raise InvalidRequestError(unknown_name("agent type", request.agent, startable(agent)))
        if agent_type.name not in startable(agent):
            others = ", ".join(sorted(startable(agent))) or "none"
            raise SpawnForbiddenError(
                f"this agent may not start agents of type {agent_type.name!r} (`allow_agents`); it may start: {others}"
            )
    if agent_type is None:
        return request, None
    mode = agent_type.mode if request.mode is None else request.mode
    output_type = request.output_type
    if output_type is str and agent_type.output is not None:
        output_type = schema_output_type(agent_type.output)
        request = request.replace(output_schema=agent_type.output)
    request = request.replace(
        thinking=request.thinking or agent_type.thinking,
        own_files=request.own_files or agent_type.own_files,
        mode=mode if mode is None or agent_type.mode is None else narrower(mode, agent_type.mode),
        budget=request.budget.over(agent_type.budget).over(_depth(agent_type, agent)),
        output_type=output_type,
    )
    return request, agent_type


def _depth(agent_type: AgentType, agent: TreeAgent) -> Budget:
    """Return how many levels a type's `max_depth` allows below its agents."""
    return Budget() if agent_type.max_depth is None else Budget(depth=max(0, agent_type.max_depth - agent.depth - 1))


def servers_of(agent: TreeAgent) -> dict[str, McpServerConfig]:
    """Return the MCP servers that an agent may use."""
    return _narrowed(agent.shared.config.mcp_servers, agent, lambda agent_type: (agent_type.mcp, agent_type.found_servers))


def skills_of(agent: TreeAgent) -> dict[str, Skill]:
    """Return the skills that an agent may load, by name."""
    return _narrowed(agent.shared.skills.skills, agent, lambda agent_type: (agent_type.skills, {}))


def _narrowed(
    found: Mapping[str, T], agent: TreeAgent, effect: Callable[[AgentType], tuple[Collection[str] | None, Mapping[str, T]]]
) -> dict[str, T]:
    """What the types of an agent and of its ancestors leave. Args: effect: names that a type lists, or None; its own."""
    for above in reversed([*agent.ancestors()]):
        if above.agent_type is not None:
            names, own = effect(above.agent_type)
            found = {name: each for name, each in found.items() if names is None or name in names} | dict(own)
    return dict(found)


def has_tool(agent: TreeAgent, name: str) -> bool:
    """Whether an agent's type grants it a tool."""
    denied = agent.denied_by(name) or (agent.denied_by("task") if name in SPAWNING else None)
    listed = all(ToolNames(allow=above.choices.tools).allows(name) for above in agent.ancestors())
    return denied is None and listed and (agent.agent_type is None or agent.agent_type.tools.allows(name))


def begins_as(agent: TreeAgent) -> TreeAgent:
    """The agent with whose tools and system prompt an agent's requests begin: itself, or whom it continues."""
    return begins_as(agent.parent) if agent.continues and agent.parent is not None else agent


def check_spawn(agent: TreeAgent) -> None:
    """Raise SpawnForbiddenError, naming the limit and its setting, if an agent may not start a child now."""
    shared = agent.shared
    if not shared.config.subagents.enabled:
        raise SpawnForbiddenError("starting children is disabled (setting `subagents.enabled`)")
    denied = agent.denied_by("task")
    if denied is not None:
        raise SpawnForbiddenError(
            f"agents of type {denied.name!r}, and those below them, may not start children (`tools.deny` of the type); "
            "do the work yourself"
        )
    if not agent.may_spawn:
        raise SpawnForbiddenError(
            f"this agent is at depth {agent.depth} and may not start children "
            "(setting `subagents.max_depth`, or `depth` of a budget); do the work yourself"
        )
    try:
        agent.run.account.check_spawn()
    except LimitReachedError as error:
        raise SpawnForbiddenError(str(error)) from error
    if shared.kernel_places.would_never_come(agent):
        raise no_kernel_left(shared.kernel_places)


def check_has_tool(agent: TreeAgent, call: Call) -> None:
    """Refuse a request of code in a cell if the agent does not have the tool.

    Raises:
        ApprovalDeniedError: The agent does not have the tool.
    """
    name = _tool_of(call)
    if name is not None and not has_tool(agent, name):
        types = [above.agent_type.name for above in agent.ancestors() if above.agent_type]
        who = f"agents of type {types[0]!r} do" if types else "this agent does"
        raise ApprovalDeniedError(f"{who} not have the tool {name}")


def granted(agent: TreeAgent, tools: Sequence[ToolDefinition]) -> list[ToolDefinition]:
    """Return the tools that an agent's type grants it, of all that there are.

    Raises:
        ConfigError: The type names a tool that does not exist.
    """
    agent_type = agent.agent_type
    if agent_type is not None:
        known = {*TOOL_NAMES, *(tool.name for tool in tools)}
        for name in (*(agent_type.tools.allow or ()), *agent_type.tools.deny):
            if problem := unknown_tool(name, known, agent.shared.servers):
                raise ConfigError(f"agent type {agent_type.name!r} ({agent_type.file}): {problem}")
    return [tool for tool in tools if has_tool(agent, tool.name)]


def _tool_of(call: Call) -> str | None:
    match call:
        case McpCall():
            from freeact_sub.tools.mcp import mcp_tool_name  # noqa: PLC0415  # few agents have servers

            return mcp_tool_name(call.server, call.tool)
        case SpawnCall():
            return "task"
        case ToolCall():
            return call.tool_name
        case CodeAction():
            return CELL_TOOL
        case _:  # what a running cell does
            return None


def chosen_model(named: str | Model | None, agent_type: AgentType | None, parent: TreeAgent) -> str | Model | None:
    """Return the model that a child gets: the call names it, else its type, else the setting. None: its parent's."""
    of_type = agent_type.model if agent_type is not None else None
    chosen = named or of_type or parent.shared.config.subagents.model
    return None if chosen == INHERIT else chosen


def check_model_name(named: str | Model | None, parent: TreeAgent) -> None:
    """Refuse a model that a model, or its code, has named and no setting: who pays names the models.

    Raises:
        InvalidRequestError: No setting has the name.
    """
    names = parent.shared.config.models.names
    if named is not None and named != INHERIT and named not in names:
        raise InvalidRequestError(f"{unknown_name('model', str(named), [*names, INHERIT])} (the setting `models`)")


def check_tools(request: ChildRequest, agent_type: AgentType | None, parent: TreeAgent) -> None:
    """Refuse a list of tools that names one which the child would not have anyway.

    Raises:
        InvalidRequestError: There is no such tool, or it would be more than the child has without the list.
    """
    shared = parent.shared
    own = shared.own_tools.names
    known = sorted({*TOOL_NAMES, *own})
    servers = servers_of(parent)
    for name in request.tools or ():
        if not (shared.toolsets or shared.capabilities) and (problem := unknown_tool(name, known, servers)):
            raise InvalidRequestError(problem)
        if "*" in name or any(name.startswith(f"{server}_") for server in servers):
            continue  # what it matches is known once its servers run, and is held against all lists then
        if not _would_have(name, agent_type, parent):
            had = ", ".join(each for each in known if _would_have(each, agent_type, parent)) or "none"
            raise InvalidRequestError(
                f"the child would not have the tool {name!r}, and `tools` can only take tools away: it has {had}"
            )


def _would_have(name: str, agent_type: AgentType | None, parent: TreeAgent) -> bool:
    if agent_type is parent.agent_type:
        return has_tool(parent, name)
    lists = [tools for above in parent.ancestors() if (tools := above.choices.tools) is not None]
    listed = all(ToolNames(allow=names).allows(name) for names in lists) and parent.denied_by(name) is None
    return listed and (agent_type is None or (agent_type.tools.allows(name) and not agent_type.tools.denies(name)))


def with_model_named(call: SpawnCall, parent: TreeAgent) -> SpawnCall:
    """Return the call with the model that the child gets, if it is not the usual one, so that people and rules judge it."""
    if call.resume:
        return replace(call, model="" if call.model == INHERIT else call.model)
    names = call.agent.split(", ") if call.agent else [""]  # a plan names a type for each of its children
    types = [parent.shared.types.types.get(name, parent.agent_type) if name else parent.agent_type for name in names]
    usual = parent.shared.config.subagents.model
    models = {chosen_model(call.model or None, agent_type, parent) for agent_type in types}
    if models == {usual}:
        return replace(call, model="")
    return replace(call, model=", ".join(sorted(str(model or INHERIT) for model in models)))
