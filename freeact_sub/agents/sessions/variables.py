"""`Variables`: saves the variables of the root's kernel after each cell, in the background, and restores them.

One snapshot is made at a time; cells that end meanwhile go into the next one. The time of the last cell in a snapshot is
kept beside it, so that after a crash the model reads that later changes are missing.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from freeact_sub.agents.runs.prompt import KERNEL_IS_NEW
from freeact_sub.errors import KernelError
from freeact_sub.events import AgentEvent, CodeExecutionOutput, KernelLost, ToolOutput
from freeact_sub.kernels import Kernel
from freeact_sub.kernels.snapshots import RestoreReport
from freeact_sub.system.closing import end_task
from freeact_sub.text import one_line
from freeact_sub.tools import KernelAccess

SAVED_UP_TO: Final = "saved-up-to"
MARK_CHARS: Final = 32
"""The width of a number, so that each overwrites the previous one."""
END_SECONDS: Final = 20.0
"""How long closing the agent waits for the last snapshot."""
NAMED: Final = 30
"""How many variables a sentence names."""

_OF_KERNELS: Final = (CodeExecutionOutput, KernelLost, ToolOutput)

logger = logging.getLogger(__name__)


class Variables:
    """The variables of one agent in one session."""

    def __init__(self, folder: Path, agent_id: str, kernel: KernelAccess, notice: Callable[[str], None]) -> None:
        """Args: folder: holds the session's variables. notice: shows a text to people."""
        self._folder = folder / agent_id
        self._mark = folder / f"{agent_id}.{SAVED_UP_TO}"
        self._agent_id = agent_id
        self._kernel = kernel
        self._notice = notice
        self._wanted: float | None = None
        """The end of the last unsaved cell."""
        self._saving: asyncio.Task[None] | None = None
        self._told = False

    def observe(self, event: AgentEvent) -> None:
        """See `Tap`. The end of a cell or of a kernel triggers a snapshot."""
        if event.agent_id != self._agent_id or not isinstance(event, _OF_KERNELS):
            return
        if not isinstance(event, ToolOutput) or event.tool_name == "reset_kernel":
            self._wanted = event.time
            if self._saving is None:
                self._saving = asyncio.create_task(self._save(), name="saves variables")

    async def aclose(self) -> None:
        """Wait for the last snapshot, for a bounded time."""
        saving = self._saving
        if saving is not None:
            await asyncio.wait({saving}, timeout=END_SECONDS)
            await end_task(saving)

    async def restore(self, kernel: Kernel, last_cell: float) -> str:
        """Restore the variables, and return what the model reads about it.

        Args:
            kernel: A new kernel.
            last_cell: When the session's last cell ended.
        """
        if not self._folder.is_dir():
            return KERNEL_IS_NEW
        try:
            report = await kernel.restore(self._folder)
        except KernelError as error:
            logger.info("variables of %s are not restored: %s", self._agent_id, error)
            return f"{KERNEL_IS_NEW[:-1]} They could not be brought back: {one_line(str(error), 300)}]"
        saved_up_to = 0.0
        with suppress(OSError, ValueError):
            saved_up_to = float(self._mark.read_text(encoding="ascii"))
        self._notice(f"{len(report.restored)} variables came back{_lost(report, len(report.lost))}")
        return f"[Your kernel is new. {_told(report)}{_later(saved_up_to, last_cell)}]"

    async def _save(self) -> None:
        """Save until nothing new is left."""
        try:
            while self._wanted is not None:
                wanted, self._wanted = self._wanted, None
                kernel = await self._kernel.get()
                await kernel.snapshot(self._folder)
                self._set_mark(wanted)
        except (KernelError, OSError) as error:
            if not self._told:
                self._notice(f"the session does not have the variables of now: {one_line(str(error), 300)}")
            self._told = True  # the next cell triggers another attempt
        finally:
            self._saving = None

    def _set_mark(self, cell_ended: float) -> None:
        """Write the mark in place: ext4 waits for the disk when a file is replaced or truncated."""
        descriptor = os.open(self._mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, f"{cell_ended!r:<{MARK_CHARS}}".encode("ascii"), 0)
        finally:
            os.close(descriptor)


def _told(report: RestoreReport) -> str:
    lines = "\n".join(f"- {one_line(variable.line, 200)}" for variable in report.restored[:NAMED])
    more = len(report.restored) - NAMED
    back = f"These variables came back:\n{lines}" if lines else "No variables came back."
    more_text = f"\n- and {more} more" if more > 0 else ""
    lost = "\n".join(
        f"- {one_line(item.name, 80)} ({one_line(item.type, 80)}{'' if item.cell is None else f', of cell {item.cell}'}): "
        f"{one_line(item.reason, 200)}"
        for item in report.lost[:NAMED]
    )
    return f"{back}{more_text}" + (f"\nThese did not, and are to be made again where you need them:\n{lost}" if lost else "")


def _lost(report: RestoreReport, number: int) -> str:
    names = ", ".join(one_line(item.name, 40) for item in report.lost[:NAMED])
    return f", {number} did not: {names}" if number else ""


def _later(saved_up_to: float, last_cell: float) -> str:
    """Return the sentence on cells whose changes are not in the snapshot."""
    if last_cell <= saved_up_to:
        return ""
    return "\nThe program ended before the last cell was saved: what it changed in the variables is not in them."
