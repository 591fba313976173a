"""Finds the agent at work that a person names, the same in every front end."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from freeact_sub.agent_names import agent_name, agents_meant, candidates

if TYPE_CHECKING:  # slow to import: the caller does it, at its time
    from freeact_sub.agents import AgentInfo

AT_WORK: Final = ("queued", "starting", "running", "waiting")


def status_text(agent: "AgentInfo") -> str:
    """The status of an agent in words."""
    return agent.status.replace("_", " ")


def find_agent(agents: Sequence["AgentInfo"], name: str, known: Mapping[str, str] | None = None) -> "AgentInfo":
    """Finds an agent at work (`agents_meant`).

    Args:
        agents: All agents.
        name: What the person calls it.
        known: The labels by which people see them, by id. None: those that their parents gave.

    Raises:
        LookupError: There is none, or more than one; the text is for the person.
    """
    labels = {agent.agent_id: (known or {}).get(agent.agent_id) or agent.description for agent in agents}
    found = agents_meant(name, labels)
    at_work = [agent for agent in agents if agent.agent_id in found and agent.status in AT_WORK]
    if len(at_work) == 1:
        return at_work[0]
    if at_work:
        names = candidates([agent.agent_id for agent in at_work], labels)
        raise LookupError(f"{name} matches several agents: {names}; type the id of one")
    if len(found) == 1:
        ended = next(agent for agent in agents if agent.agent_id == found[0])
        raise LookupError(f"{agent_name(ended.agent_id, labels[ended.agent_id])} is not at work ({status_text(ended)})")
    raise LookupError(f"no agent {name} is at work (/agents lists them)")
