"""What the agents of a tree have in common in a provider's cache: the prefix of their requests."""

import logging
from collections.abc import Hashable
from typing import Final

from freeact_sub.agents.tree import TreeAgent
from freeact_sub.models.observers import bills_cache_writes

UNREAD_TURNS: Final = 6
"""The log warns of a run that has read nothing from its cache after this many turns."""

logger = logging.getLogger(__name__)


def prefix_of(agent: TreeAgent) -> Hashable | None:
    """Return what tells the prefix of a child's first request from others. None: it has no sibling that could write it."""
    if agent.parent is None or not bills_cache_writes(agent.model, agent.shared.model_settings):
        return None
    if agent.run.record.history and not agent.continues:
        return None
    kind = agent.agent_type.name if agent.agent_type is not None else None
    policy = (agent.policy.mode, agent.may_spawn, agent.in_background, agent.thinking)
    return (agent.parent.agent_id, id(agent.model), kind, agent.tools, policy, agent.continues)


def warn_of_unread_cache(agent: TreeAgent) -> None:
    """Log it, once, if a run of several turns has read nothing from a cache that its provider has."""
    account = agent.run.account
    if account.taken("turns") != UNREAD_TURNS or account.own_usage.cache_read_tokens:
        return
    if bills_cache_writes(agent.model, agent.shared.model_settings):
        logger.warning(
            "%s has made %d requests to %s and read nothing from its cache: something changes the beginning of its requests "
            "(a capability, a tool, or a proxy)",
            agent.label,
            UNREAD_TURNS,
            agent.model.model_id,
        )
