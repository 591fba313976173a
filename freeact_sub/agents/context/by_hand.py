"""`CompactionByHand`: a conversation is summarised because somebody asks for it, not because it is long."""

from freeact_sub.agents.children.spawn import Work
from freeact_sub.agents.root import Root
from freeact_sub.agents.runs.run import Run
from freeact_sub.errors import FreeactError
from freeact_sub.events import Compacted


class CompactionByHand:
    """See above."""

    def __init__(self, root: Root) -> None:
        self._root = root

    async def compact(self, keep: str) -> Compacted | None:
        """See `Agent.compact`."""
        made: list[Compacted] = []
        async with self.run(keep, made) as run:
            result = await run.result()
        if result.status != "completed":
            raise FreeactError(f"the conversation was not summarised: {result.error}")
        return made[0] if made else None

    def run(self, keep: str, made: list[Compacted]) -> Run[str]:
        """Make a run that summarises. Args: keep: what to keep above all. made: takes its event."""
        loop = self._root.opened

        async def summarise() -> str:
            shortened = await loop.compactor.on_request(loop.history, keep)
            if shortened is None:
                return "The conversation is too short to be summarised."
            loop.rewrite(shortened.messages)
            made.append(shortened.event)
            await loop.agent.emitter.emit(shortened.event)
            return "The conversation was summarised."

        return self._root.begin(Work(prompt="[summary of the conversation]", program=summarise))
