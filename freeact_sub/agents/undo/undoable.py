"""`Undoable`: the methods of `Agent` that undo and redo prompts."""

from typing import Final

from freeact_sub.agents.agent_base import AgentBase
from freeact_sub.agents.undo.undo import Undo, UndoReport
from freeact_sub.errors import AgentBusyError, FreeactError

NOTHING_KEPT: Final = "nothing is kept of earlier prompts: call agent.keep_undo() before the first one"


class Undoable(AgentBase):
    """Undo, for the root. It costs a branch of the kernel before each prompt, so it is off until `keep_undo`."""

    _undo: Undo | None = None

    def keep_undo(self) -> None:
        """Make each prompt of `run` undoable, from now on until the agent is closed. Further calls do nothing.

        Before each prompt, git stores the files of the workspace in its own repository, and the kernel is branched.

        Raises:
            FreeactError: The agent is not open.
        """
        if self._undo is None:
            loop = self._opened
            self._undo = Undo(loop, self.config.workspace)
            self._resources.push_async_callback(self._end_undo)

    @property
    def undoable(self) -> tuple[str, ...]:
        """The prompts that can be undone, oldest first."""
        return self._undo.undoable if self._undo is not None else ()

    @property
    def redoable(self) -> tuple[str, ...]:
        """The prompts that can be redone, the next one first; a new prompt forgets them."""
        return self._undo.redoable if self._undo is not None else ()

    async def undo(self, prompts: int = 1) -> UndoReport:
        """Restore conversation, variables and files as they were before a prompt.

        This covers the files in the workspace that `.gitignore` does not name, including children's changes. Effects
        elsewhere and spending stay. The report says what could not be restored, and why.

        Args:
            prompts: How many to undo, from the last one on.

        Raises:
            AgentBusyError: A run is live.
            FreeactError: Fewer can be undone: see `undoable` and `keep_undo`.
        """
        return await (await self._ready_undo()).move(-prompts)

    async def redo(self, prompts: int = 1) -> UndoReport:
        """Go forward again, to the state before `undo`. Nothing runs, and no model is asked.

        Args:
            prompts: How many to redo, from the next one on.

        Raises:
            AgentBusyError: A run is live.
            FreeactError: Fewer can be redone: see `redoable`.
        """
        return await (await self._ready_undo()).move(prompts)

    async def undo_previews(self, most: int = 10) -> list[UndoReport]:
        """Return what `undo` would restore, for the last prompt, for the last two, and so on; nothing is changed.

        Args:
            most: For how many numbers of prompts.

        Raises:
            FreeactError: Nothing is kept: see `keep_undo`.
        """
        return await self._kept.previews(most)

    async def diff(self, prompts: int = 1) -> str:
        """Returns what has changed of the workspace's files since before a prompt, as a unified diff; also during a run.

        Whoever has changed them. Files that `.gitignore` names are left out; empty: none has changed.

        Args:
            prompts: How many, from the last one on.

        Raises:
            FreeactError: Nothing is kept of so many prompts, or of the files: see `keep_undo`.
        """
        return await self._kept.diff(prompts)

    async def line_changes(self) -> list[tuple[str, tuple[int, int] | None]]:
        """Returns the files that have changed since the last prompt, each with its lines that came and went.

        None instead of the counts: it is not text, or too large. See `diff`.

        Raises:
            FreeactError: Nothing is kept of the prompt, or of the files: see `keep_undo`.
        """
        return await self._kept.line_changes()

    @property
    def _kept(self) -> Undo:
        if self._undo is None:
            raise FreeactError(NOTHING_KEPT)
        return self._undo

    async def _ready_undo(self) -> Undo:
        opened = self._opened
        await self._runs.settle()
        if opened.node.run.is_live or self._runs.live is not None:
            raise AgentBusyError("the agent is at work: wait for its run to end, or cancel it, then undo")
        return self._kept

    async def _end_undo(self) -> None:
        undo, self._undo = self._undo, None
        if undo is not None:
            await undo.aclose()
