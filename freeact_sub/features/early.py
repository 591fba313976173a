"""The question to a model that ends early (`EarlyFeature`): something of its work is left, as far as the host can see.

Facts decide, no words: open steps of its plan, a last cell that failed, files in the answer that do not exist. Parts of
other features that are `KnowsLeft` tell them (`features/plan.py`, `features/files.py`). A run is asked once; what it answers
then counts. A run at a limit, and one that is cancelled, is not asked: `RunPart.answer` is not called then.
"""

from collections.abc import Sequence
from typing import Final, Protocol, runtime_checkable

from freeact_sub.agents.feature import Feature, FeatureAgent, RunPart
from freeact_sub.agents.life import TreeAgent, tree_agent
from freeact_sub.events import Notice

LEFT: Final = (
    "Before your answer counts, the host has found this:\n{facts}\nFinish what is left, or mend it; if something cannot be "
    "done, or is right as it is, say so. Then give your whole final answer again, as only your last reply counts."
)


@runtime_checkable
class KnowsLeft(Protocol):
    """A part of a run that knows what the run leaves undone."""

    async def left(self, answer: str) -> Sequence[str]:
        """Return facts, each in a few words, at the moment in which the model would end with this answer."""


class EarlyPart(RunPart):
    """The question to the model of one run."""

    def __init__(self, agent: TreeAgent) -> None:
        self._agent, self._was_asked = agent, False

    async def answer(self, text: str) -> str:
        """Ask once, if there are facts."""
        if self._was_asked:
            return ""
        parts = self._agent.run.features.all(KnowsLeft)  # type: ignore[type-abstract]  # it only calls isinstance
        facts = [fact for part in parts for fact in await part.left(text)]
        if not facts:
            return ""
        self._was_asked = True
        self._agent.emitter.put(Notice(content=f"the model is asked once more before its answer counts: {'; '.join(facts)}"))
        return LEFT.format(facts="\n".join(f"- {fact}" for fact in facts))


class EarlyFeature(Feature):
    """Early ends of the runs of one tree."""

    def run(self, agent: FeatureAgent) -> RunPart:
        """Look at the end of each run."""
        return EarlyPart(tree_agent(agent))
