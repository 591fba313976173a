"""Who an agent is: its key.

The host decides ids, keys, depth and parenthood; it never reads them from a kernel. A key is a durable name that shows an
agent's ancestors, and the only source of its depth: `agent:ROOT` is a root, `agent:ROOT:subagent:ID` a child of it, and each
further level adds `:sub:ID`. A malformed key has depth 0 and no parent, so it never gains rights.
"""

import re
import uuid
from typing import Final

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
