"""The context window of an agent's model: how a conversation is shortened before it is full.

- `summary`: replaces all but the beginning and the newest turns with a summary.
- `compactor`: decides when to do which, replaces old outputs with notes that name a file, and emits the event. Its hook is
  the first of a run, so that a user's capabilities see the shortened conversation.
- `by_hand`: summarises a conversation because somebody asks for it.

The summary is a `CompactionPart` of pydantic-ai in the request that begins the conversation; each provider's client knows
how to send it. The ready-made compaction of `pydantic-ai-harness` is not used: each of its releases pins one release of
pydantic-ai, it ignores our budgets and output files, and it reports nothing.
"""

from typing import Any

from pydantic_ai.capabilities import AbstractCapability

from freeact_sub.agents.feature import Feature, RunPart
from freeact_sub.agents.root import Root
from freeact_sub.agents.runs.run import Run
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.events import Compacted
from freeact_sub.features.compaction.by_hand import CompactionByHand
from freeact_sub.features.compaction.compactor import CompactionHooks, Compactor, RefusesCompaction

__all__ = ["Compaction", "RefusesCompaction"]


class _CompactionOfRun(RunPart):
    def __init__(self, compactor: Compactor) -> None:
        self._compactor, self._prompt = compactor, ""

    async def opening(self, prompt: str) -> str:
        """Note what a child has to do: it stays where its prompt is summarised."""
        self._prompt = prompt
        return ""

    def capability(self) -> AbstractCapability[Any]:
        """Shorten the conversation before a request that would be too long."""
        return CompactionHooks(compactor=self._compactor.for_task(self._prompt))


class Compaction(Feature):
    """See the module."""

    name = "compaction"

    def __init__(self) -> None:
        self._of_root: Compactor | None = None

    def run(self, agent: TreeAgent) -> RunPart:
        """Keep an eye on the conversation; the root's goes on from run to run."""
        if agent.parent is not None:
            return _CompactionOfRun(Compactor(agent=agent))
        self._of_root = self._of_root or Compactor(agent=agent)
        return _CompactionOfRun(self._of_root)

    @property
    def of_root(self) -> Compactor:
        """Shortens the root's conversation."""
        return self._of_root or Compactor(agent=self.root.agent)

    @property
    def _whole_root(self) -> Root:
        assert isinstance(self.root, Root)
        return self.root

    async def compact(self, keep: str = "") -> Compacted | None:
        """See `Agent.compact`."""
        return await CompactionByHand(self._whole_root, self.of_root).compact(keep)

    def run_compaction(self, keep: str = "") -> Run[str]:
        """See `Agent.run_compaction`."""
        return CompactionByHand(self._whole_root, self.of_root).run_compaction(keep)
