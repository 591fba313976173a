"""`CompactionByHand`: the methods of `Agent` that summarise a conversation because somebody asks, not because it is long."""

from freeact_sub.agents.children.spawn import Work
from freeact_sub.agents.root import Root
from freeact_sub.agents.runs.run import Run
from freeact_sub.errors import FreeactError
from freeact_sub.events import Compacted
from freeact_sub.features.compaction.compactor import Compactor


class CompactionByHand:
    """Summarises the conversation of a root."""

    def __init__(self, root: Root, compactor: Compactor) -> None:
        self._root, self._compactor = root, compactor

    async def compact(self, keep: str = "") -> Compacted | None:
        """Summarise the conversation now, except the first prompt and the last turn. This counts as a run.

        `keep` says what the summary must keep above all. Returns None if the conversation is too short. Raises FreeactError
        if the summary could not be made; then the conversation is unchanged.
        """
        made: list[Compacted] = []
        async with self._run(keep, made) as run:
            result = await run.result()
        if result.status != "completed":
            raise FreeactError(f"the conversation was not summarised: {result.error}")
        return made[0] if made else None

    def run_compaction(self, keep: str = "") -> Run[str]:
        """Make a run that does what `compact` does, to read its events or cancel it. Its output says what was done."""
        return self._run(keep, [])

    def _run(self, keep: str, made: list[Compacted]) -> Run[str]:
        loop = self._root.opened

        async def summarise() -> str:
            shortened = await self._compactor.on_request(loop.history, keep)
            if shortened is None:
                return "The conversation is too short to be summarised."
            loop.rewrite(shortened.messages)
            made.append(shortened.event)
            await loop.agent.emitter.emit(shortened.event)
            return "The conversation was summarised."

        return self._root.begin(Work(prompt="[summary of the conversation]", program=summarise))
