"""`UndoFeature`: restores conversation, variables and files as they were before a prompt.

It costs a branch of the kernel before each prompt, so it is off until `keep_undo`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from freeact_sub.agents.feature import Feature, RunPart
from freeact_sub.agents.requested_call import FeatureAgent
from freeact_sub.agents.root import Root, whole_root
from freeact_sub.errors import AgentBusyError, FreeactError
from freeact_sub.events.effects import Effects
from freeact_sub.features.undo.undo import Undo, UndoReport

__all__ = ["UndoFeature", "UndoReport"]

NOTHING_KEPT: Final = "nothing is kept of earlier prompts: call agent.keep_undo() before the first one"


class UndoPart(RunPart):
    """Keeps the state before the prompt of one run."""

    def __init__(self, feature: "UndoFeature") -> None:
        self._feature = feature

    async def opening(self, said: str, *, is_prompt: bool) -> str:
        """Keep the present state: what hooks and the session have done before the prompt stays when it is undone."""
        if is_prompt:
            await self._feature.keep(said)
        return ""


class UndoFeature(Feature):
    """The prompts of a root that can be undone and redone, once `keep_undo` was called."""

    name = "undo"

    def __init__(self) -> None:
        self._undo: Undo | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Forget everything with the root."""
        try:
            yield
        finally:
            undo, self._undo = self._undo, None
            if undo is not None:
                await undo.aclose()

    def run(self, agent: FeatureAgent) -> RunPart | None:
        """Keep the state before each prompt of the root."""
        return UndoPart(self) if agent.parent_id is None else None

    @property
    def _whole_root(self) -> Root:
        return whole_root(self.root)

    async def keep(self, prompt: str) -> None:
        """Keep the present state, if anything is kept."""
        if self._undo is not None:
            await self._undo.keep(prompt)

    def keep_undo(self) -> None:
        """Make each prompt of `run` undoable, from now on until the agent is closed. Further calls do nothing.

        Before each prompt, git stores the files of the workspace in its own repository, and the kernel is branched. A
        state that is not stored cannot be undone, redone or compared: such a call raises FreeactError.
        """
        if self._undo is None:
            self._undo = Undo(self._whole_root.opened, self.root.agent.config.workspace)

    @property
    def undoable(self) -> tuple[str, ...]:
        """The prompts that can be undone, oldest first."""
        return self._undo.undoable if self._undo is not None else ()

    @property
    def redoable(self) -> tuple[str, ...]:
        """The prompts that can be redone, the next one first; a new prompt forgets them."""
        return self._undo.redoable if self._undo is not None else ()

    async def undo(self, prompts: int = 1) -> UndoReport:
        """Restore conversation, variables and files as they were before the last prompt, or the last few.

        This covers the files in the workspace that `.gitignore` does not name, including children's changes. Effects
        elsewhere and spending stay. The report says what could not be restored, and why. Raises AgentBusyError if a run is
        live.
        """
        return await (await self._at_rest()).move(-prompts)

    async def redo(self, prompts: int = 1) -> UndoReport:
        """Go forward again, to the state before `undo`. Nothing runs, and no model is asked."""
        return await (await self._at_rest()).move(prompts)

    async def undo_previews(self, most: int = 10) -> list[UndoReport]:
        """Return what `undo` would restore, for the last prompt, for the last two, and so on up to `most` prompts."""
        return await self._kept().previews(most)

    async def diff(self, prompts: int = 1) -> str:
        """Return what has changed of the workspace's files since before the last prompt, or the last few, as a unified diff.

        It includes changes by any program, and a run may be live. Files that `.gitignore` names are left out.
        """
        return await self._kept().diff(prompts)

    async def line_changes(self) -> list[tuple[str, tuple[int, int] | None]]:
        """Return the files that `diff` shows, each with its numbers of added and removed lines. None: it is not text."""
        return await self._kept().line_changes()

    async def effects(self, prompts: int = 1) -> Effects:
        """Return what has changed since before the last prompt, or the last few: variables and files, as a trial tells them.

        `reason` says what could not be compared. Raises AgentBusyError if a run is live.
        """
        return await (await self._at_rest()).effects(prompts)

    def _kept(self) -> Undo:
        """Return what is kept. Raises: FreeactError: Nothing is."""
        if self._undo is None:
            raise FreeactError(NOTHING_KEPT)
        return self._undo

    async def _at_rest(self) -> Undo:
        """Return what is kept. Raises: AgentBusyError: A run is live."""
        loop = self._whole_root.opened
        if await self._whole_root.is_busy() or loop.agent.run.is_live:
            raise AgentBusyError("the agent is at work: wait for its run to end, or cancel it, then undo")
        return self._kept()
