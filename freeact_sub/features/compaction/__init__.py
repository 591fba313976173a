"""`CompactionFeature`: shortens a conversation before the context window of the model is full.

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
from freeact_sub.agents.requested_call import FeatureAgent
from freeact_sub.agents.root import Root, whole_root
from freeact_sub.agents.runs.run import Run
from freeact_sub.agents.tree_agent import tree_agent
from freeact_sub.events import Compacted
from freeact_sub.features.compaction.by_hand import CompactionByHand
from freeact_sub.features.compaction.compactor import CompactionHooks, Compactor, RefusesCompaction
from freeact_sub.tools import SpawnRequest

__all__ = ["CompactionFeature", "RefusesCompaction"]


class CompactionPart(RunPart):
    """Shortens the conversation of one run."""

    def __init__(self, compactor: Compactor) -> None:
        self._compactor, self._prompt = compactor, ""

    def begins(self, prompt: str, request: SpawnRequest | None) -> None:
        """Note the task of a child: it stays where its prompt is summarised."""
        del request
        self._prompt = prompt

    def capability(self) -> AbstractCapability[Any]:
        """Shorten the conversation before a request that would be too long."""
        return CompactionHooks(compactor=self._compactor.for_task(self._prompt))


class CompactionFeature(Feature):
    """Shortens the conversations of a tree of agents."""

    name = "compaction"

    def __init__(self) -> None:
        self._of_root: Compactor | None = None

    def run(self, agent: FeatureAgent) -> RunPart:
        """Keep an eye on the conversation; the root's goes on from run to run."""
        whole = tree_agent(agent)
        if whole.parent is not None:
            return CompactionPart(Compactor(agent=whole))
        self._of_root = self._of_root or Compactor(agent=whole)
        return CompactionPart(self._of_root)

    @property
    def of_root(self) -> Compactor:
        """Shortens the root's conversation."""
        return self._of_root or Compactor(agent=tree_agent(self.root.agent))

    async def compact(self, keep: str = "") -> Compacted | None:
        """Summarise the conversation now, as `Agent.compact` says."""
        return await CompactionByHand(self._whole_root, self.of_root).compact(keep)

    def run_compaction(self, keep: str = "") -> Run[str]:
        """Make a run that does what `compact` does."""
        return CompactionByHand(self._whole_root, self.of_root).run_compaction(keep)

    @property
    def _whole_root(self) -> Root:
        return whole_root(self.root)
