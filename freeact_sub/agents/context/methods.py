"""`ContextMethods`: the methods of `Agent` that deal with the model's context window."""

from freeact_sub.agents.agent_base import AgentBase
from freeact_sub.agents.children.spawn import Work
from freeact_sub.agents.context.sizes import ContextUse
from freeact_sub.agents.runs.results import NO_BOUNDS
from freeact_sub.agents.runs.run import Run
from freeact_sub.errors import FreeactError
from freeact_sub.events import Compacted


class ContextMethods(AgentBase):
    """See above."""

    async def compact(self, keep: str = "") -> Compacted | None:
        """Summarise the conversation now, except the first prompt and the last turn. This counts as a run.

        Args:
            keep: What the summary must keep above all.

        Returns:
            The event. None: the conversation is too short.

        Raises:
            AgentBusyError: The previous run has not ended.
            FreeactError: The agent is not open, or the summary could not be made; the conversation is unchanged.
        """
        made: list[Compacted] = []
        async with self._compaction(keep, made) as run:
            result = await run.result()
        if result.status != "completed":
            raise FreeactError(f"the conversation was not summarised: {result.error}")
        return made[0] if made else None

    def run_compaction(self, keep: str = "") -> Run[str]:
        """Begin a run that does what `compact` does, to read its events or cancel it. Its output says what was done.

        Raises:
            AgentBusyError: The previous run has not ended.
            FreeactError: The agent is not open.
        """
        return self._compaction(keep, [])

    def _compaction(self, keep: str, made: list[Compacted]) -> Run[str]:
        loop = self._opened

        async def summarise() -> str:
            shortened = await loop.compactor.on_request(loop.history, keep)
            if shortened is None:
                return "The conversation is too short to be summarised."
            loop.rewrite(shortened.messages)
            made.append(shortened.event)
            await loop.node.emitter.emit(shortened.event)
            return "The conversation was summarised."

        return self._begin(Work(prompt="[summary of the conversation]", program=summarise), NO_BOUNDS)

    def context(self) -> ContextUse:
        """Return what fills the model's context window, with the instructions and tools of the last request.

        Raises:
            FreeactError: The agent is not open: use `async with`.
        """
        return self._opened.compactor.use(self._opened.history)
