"""`Undoable`: undo for a root. It costs a branch of the kernel before each prompt, so it is off until `keep`."""

from typing import Final

from freeact_sub.agents.root import Root
from freeact_sub.agents.undo.undo import Undo
from freeact_sub.errors import AgentBusyError, FreeactError

NOTHING_KEPT: Final = "nothing is kept of earlier prompts: call agent.keep_undo() before the first one"


class Undoable:
    """The prompts of a root that can be undone and redone."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._undo: Undo | None = None

    def keep(self) -> None:
        """See `Agent.keep_undo`."""
        if self._undo is None:
            self._undo = Undo(self._root.opened, self._root.tree.shared.config.workspace)
            self._root.on_close(self._end)

    @property
    def undoable(self) -> tuple[str, ...]:
        """See `Agent`."""
        return self._undo.undoable if self._undo is not None else ()

    @property
    def redoable(self) -> tuple[str, ...]:
        """See `Agent`."""
        return self._undo.redoable if self._undo is not None else ()

    @property
    def kept(self) -> Undo:
        """What is kept. Raises: FreeactError: Nothing is."""
        if self._undo is None:
            raise FreeactError(NOTHING_KEPT)
        return self._undo

    async def ready(self) -> Undo:
        """Return what is kept, while the agent is at rest. Raises: AgentBusyError: A run is live."""
        loop = self._root.opened
        if await self._root.is_busy() or loop.agent.run.is_live:
            raise AgentBusyError("the agent is at work: wait for its run to end, or cancel it, then undo")
        return self.kept

    async def _end(self) -> None:
        undo, self._undo = self._undo, None
        if undo is not None:
            await undo.aclose()
