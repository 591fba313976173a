"""`KeptResults`: what children have answered in this session, for whoever asks the same again (`subagents.cache`).

The same is: prompt, scope, types of the agent and of all above it, mode, model, and the JSON schema of the answer, by
content. What a child looks at (files, the web) is not part of it. Nothing is kept of a child that has not completed, has
written files, was given values or a copy of its parent's kernel, answers by itself, or hands over a Python type that only
the program knows.
"""

import copy
import hashlib
import json
from typing import TYPE_CHECKING, Final

from freeact_sub.agents.results import RunResult
from freeact_sub.tools import SpawnRequest

if TYPE_CHECKING:
    from freeact_sub.agents.tree import AgentNode  # the tree has the kept results

MAX_KEPT: Final = 200
"""Results of one root agent; the oldest is dropped for a new one."""


def reuse_key(request: SpawnRequest, child: "AgentNode") -> str | None:
    """What tells a request from others. None: its result is not to be used again.

    Args:
        request: With what the child's type says where it says nothing.
        child: Made for it.
    """
    typed = request.output_type is not str
    if request.branch or request.prepare is not None or (typed and request.output_schema is None):
        return None
    parts = {
        "prompt": request.prompt,
        "scope": request.scope,
        "types": [node.kind.name if node.kind is not None else None for node in child.ancestors()],
        "mode": child.policy.mode,
        "model": child.model.model_id,
        "may_spawn": child.may_spawn,
        "output": request.output_schema if typed else None,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


class KeptResults:
    """The results of one root's children, by key."""

    def __init__(self) -> None:
        self._results: dict[str, RunResult] = {}

    def get(self, key: str) -> RunResult | None:
        """An earlier result; None: there is none. Its output is nobody else's."""
        return copy.deepcopy(self._results.get(key))

    def keep(self, key: str, result: RunResult) -> None:
        """Keep a result, if it may be used again."""
        if result.status != "completed" or result.files_written:
            return
        self._results[key] = copy.deepcopy(result)
        if len(self._results) > MAX_KEPT:
            del self._results[next(iter(self._results))]
