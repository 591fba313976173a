"""What is chosen for one child: by the request, and where that says nothing, by its type. A choice never gives it more."""

from dataclasses import replace

from pydantic_ai.models import Model

from freeact_sub.agents.answers import schema_output_type
from freeact_sub.agents.life import TreeAgent
from freeact_sub.agents.rights import AgentType, unknown_tool
from freeact_sub.calls import SpawnCall
from freeact_sub.config.budget import Budget
from freeact_sub.errors import InvalidRequestError, SpawnForbiddenError
from freeact_sub.modes import INHERIT, narrower
from freeact_sub.text import unknown_name
from freeact_sub.tools import TOOL_NAMES, ChildRequest


def resolved(request: ChildRequest, agent: TreeAgent) -> tuple[ChildRequest, AgentType | None]:
    """Complete a request from the child's type, and return it with that type.

    Args:
        request: The child as requested.
        agent: The requesting agent.

    Raises:
        InvalidRequestError: The type does not exist.
        SpawnForbiddenError: This agent may not start it.
    """
    agent_type, startable = agent.rights.agent_type, agent.rights.startable
    if request.agent is not None:
        agent_type = agent.shared.types.get(request.agent)
        if agent_type is None:
            raise InvalidRequestError(unknown_name("agent type", request.agent, startable))
        if agent_type.name not in startable:
            others = ", ".join(sorted(startable)) or "none"
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
    shared, rights = parent.shared, parent.rights.for_child(agent_type)
    known = sorted({*TOOL_NAMES, *shared.own_tools.names})
    servers = parent.rights.servers
    for name in request.tools or ():
        if not (shared.toolsets or shared.capabilities) and (problem := unknown_tool(name, known, servers)):
            raise InvalidRequestError(problem)
        if "*" in name or any(name.startswith(f"{server}_") for server in servers):
            continue  # what it matches is known once its servers run, and is held against all lists then
        if not rights.has_tool(name):
            had = ", ".join(filter(rights.has_tool, known)) or "none"
            raise InvalidRequestError(
                f"the child would not have the tool {name!r}, and `tools` can only take tools away: it has {had}"
            )


def with_model_named(call: SpawnCall, parent: TreeAgent) -> SpawnCall:
    """Return the call with the model that the child gets, if it is not the usual one, so that people and rules judge it."""
    if call.resume:
        return replace(call, model="" if call.model == INHERIT else call.model)
    names = call.agent.split(", ") if call.agent else [""]  # a plan names a type for each of its children
    types = [parent.shared.types.get(name, parent.rights.agent_type) for name in names]
    usual = parent.shared.config.subagents.model
    models = {chosen_model(call.model or None, agent_type, parent) for agent_type in types}
    if models == {usual}:
        return replace(call, model="")
    return replace(call, model=", ".join(sorted(str(model or INHERIT) for model in models)))
