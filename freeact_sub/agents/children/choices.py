"""What is chosen for a child: its model, its tools, what it reads of the conversation. A choice never gives it more."""

from dataclasses import replace
from typing import get_args

from pydantic_ai.models import Model

from freeact_sub.agents.children.type_effects import has_tool, servers_of
from freeact_sub.agents.tree import TreeAgent
from freeact_sub.agents.types.files import AgentType, ToolNames, unknown_name, unknown_tool
from freeact_sub.calls import SpawnCall
from freeact_sub.errors import InvalidRequestError
from freeact_sub.modes import INHERIT, Thinking
from freeact_sub.tools import TOOL_NAMES, SpawnRequest


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


def checked_choices(request: SpawnRequest) -> SpawnRequest:
    """Return a request whose choices have the right form; a child with files of its own is a branch.

    Raises:
        InvalidRequestError: One has another form.
    """
    history, tools = request.history, request.tools
    if not (history in ("none", "all") or (type(history) is int and history >= 0)):
        raise InvalidRequestError(f"`history` is 'none', 'all' or the number of the last exchanges, not {history!r:.100}")
    if request.thinking is not None and request.thinking not in get_args(Thinking):
        raise InvalidRequestError(unknown_name("level of thinking", str(request.thinking), get_args(Thinking)))
    if tools is not None and (isinstance(tools, str) or not all(isinstance(name, str) for name in tools)):
        raise InvalidRequestError(f"`tools` is a list of names of tools, not {tools!r:.100}")
    return replace(
        request,
        tools=None if tools is None else tuple(tools),
        history="none" if history == 0 else history,
        branch=request.branch or (request.own_files and request.branch_of is None and request.resume is None),
    )


def check_tools(request: SpawnRequest, agent_type: AgentType | None, parent: TreeAgent) -> None:
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
                f"the child would not have the tool {name!r}, and a list gives it no more: it has {had}"
            )


def _would_have(name: str, agent_type: AgentType | None, parent: TreeAgent) -> bool:
    """Whether a child would have a tool without a list of its own."""
    if agent_type is parent.agent_type:
        return has_tool(parent, name)
    lists = [above.tools for above in parent.ancestors() if above.tools is not None]
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
