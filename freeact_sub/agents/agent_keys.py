"""Agent keys: an agent's durable name, which shows the chain above it, and the only source of its depth.

`agent:ROOT` is a root, `agent:ROOT:subagent:ID` a child of it, and each further level adds `:sub:ID`. The host makes all
keys. What is no such key has depth 0 and no parent, so that a damaged one never gains rights.
"""

import re
import uuid
from typing import Final

_KEY: Final = re.compile(r"agent:[^:\s]+(?P<chain>:subagent:[^:\s]+(?::sub:[^:\s]+)*)?")


def root_key(agent_id: str) -> str:
    """The key of a root agent, by its id."""
    return f"agent:{agent_id}"


def child_key(parent: str) -> str:
    """A new key below a parent's."""
    return f"{parent}:{'sub' if depth_of(parent) else 'subagent'}:{uuid.uuid4()}"


def depth_of(key: str) -> int:
    """How many agents stand above; 0 for a root, and for what is no key."""
    found = _KEY.fullmatch(key)
    return len((found["chain"] or "").split(":")) // 2 if found else 0


def parent_of(key: str) -> str | None:
    """The key of the agent that started this one; None for a root, and for what is no key."""
    return key.rsplit(":", 2)[0] if depth_of(key) else None
