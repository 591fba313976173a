"""`stored_agent`: an agent as its session keeps it."""

from freeact_sub.agents.life import TreeAgent
from freeact_sub.agents.sessions.models import addresses
from freeact_sub.sessions import StoredAgent


def stored_agent(agent: TreeAgent) -> StoredAgent:
    """Return the row of an agent in the session."""
    return StoredAgent(
        agent_id=agent.agent_id,
        key=agent.key,
        parent_id=agent.parent_id,
        depth=agent.depth,
        tool_call_id=agent.tool_call_id,
        description=agent.description,
        agent_type=agent.rights.type_name,
        model=agent.model.model_id,
        address=addresses(agent.model)[0],
        mode=agent.policy.mode,
        in_background=agent.in_background,
        choices=agent.choices.kept,
    )
