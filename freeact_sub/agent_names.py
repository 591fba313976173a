"""Names of agents: for people a short id, with the label of the work if there is one; for the host a key.

The id of an agent is `agent-` and eight hexadecimal digits. The first four are its short id. A root gives no short id twice
(`Tree`), so people can tell its agents apart by it, and type it wherever a command names an agent.

The host decides ids, keys, depth and parenthood; it never reads them from a kernel. A key is a durable name that shows an
agent's ancestors, and the only source of its depth: `agent:ROOT` is a root, `agent:ROOT:subagent:ID` a child of it, and each
further level adds `:sub:ID`. A malformed key has depth 0 and no parent, so it never gains rights.
"""

import re
import uuid
from collections.abc import Mapping
from typing import Final

from freeact_sub.text import label_of, one_line

PREFIX: Final = "agent-"
NAME_CHARS: Final = 60
MAX_CANDIDATES: Final = 8
_ID: Final = re.compile(rf"{PREFIX}([0-9a-f]{{4}})[0-9a-f]{{4}}")
_KEY: Final = re.compile(r"agent:[^:\s]+(?P<chain>:subagent:[^:\s]+(?::sub:[^:\s]+)*)?")


def root_key(agent_id: str) -> str:
    """Return the key of a root agent with this id."""
    return f"agent:{agent_id}"


def child_key(parent: str) -> str:
    """Return a new key below a parent's."""
    return f"{parent}:{'sub' if depth_of(parent) else 'subagent'}:{uuid.uuid4()}"


def depth_of(key: str) -> int:
    """Return the number of ancestors; 0 for a root and for a malformed key."""
    found = _KEY.fullmatch(key)
    return len((found["chain"] or "").split(":")) // 2 if found else 0


def parent_of(key: str) -> str | None:
    """Return the parent's key; None for a root and for a malformed key."""
    return key.rsplit(":", 2)[0] if depth_of(key) else None


def short_id(agent_id: str) -> str:
    """Return the first four digits of an agent's id; all of an id that has another form."""
    found = _ID.fullmatch(agent_id)
    return found[1] if found else one_line(agent_id, NAME_CHARS)


def agent_name(agent_id: str, label: str) -> str:
    """Return the short id, followed by the label if there is one."""
    return f"{short_id(agent_id)} {label_of(label, NAME_CHARS)}".rstrip()


def agents_meant(words: str, labels: Mapping[str, str]) -> list[str]:
    """Return the ids of the agents that a person means by a name.

    An id or a short id counts before a whole label, and both count before the beginning of an id or a part of a label.

    Args:
        words: The name, or a part of it.
        labels: The label of each agent, by id.
    """
    sought = words.strip().lower()
    if not sought:
        return []
    digits = sought.removeprefix(PREFIX)
    exact = [agent_id for agent_id in labels if agent_id == sought or short_id(agent_id) == digits]
    whole = [agent_id for agent_id, label in labels.items() if label.lower() == sought]
    parts = (
        agent_id
        for agent_id, label in labels.items()
        if agent_id.removeprefix(PREFIX).startswith(digits) or sought in agent_name(agent_id, label).lower()
    )
    return exact or whole or [*parts]


def candidates(agent_ids: list[str], labels: Mapping[str, str]) -> str:
    """Return the names of several agents that a person may mean, in one line."""
    names = [agent_name(agent_id, labels[agent_id]) for agent_id in agent_ids[:MAX_CANDIDATES]]
    more = len(agent_ids) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more > 0 else "")
