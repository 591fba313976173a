"""`NotebookCopy`: the kernel of an agent that works on a copy of the notebook's kernel; a newer copy can take its place."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from freeact_sub.errors import KernelBranchError, KernelError, KernelLostError, KernelSnapshotError, KernelStartError
from freeact_sub.kernels.copies.launcher import CopyLauncher, Origin
from freeact_sub.kernels.kernel import HostRequestHandler, Kernel, KernelSpec
from freeact_sub.kernels.local import LocalKernel
from freeact_sub.kernels.snapshots.report import RestoreReport, SnapshotReport
from freeact_sub.kernels.wire.channels import ZmqContext
from freeact_sub.kernels.wire.output import CellClock, CellOutputBuffer, CellRun
from freeact_sub.kernels.workspaces import OwnFiles
from freeact_sub.system.closing import carry_out, end_task
from freeact_sub.system.private_folders import KernelFolder, make_folder

START_SECONDS: Final = 10.0
"""A copy that is not ready by then hangs at something that another thread held; the agent gets an empty kernel."""
OWN_CELL_SECONDS: Final = 60.0
ERROR_CHARS: Final = 1000
UNTRIED: Final = (
    "cells in a copy of your notebook are not tried before you decide; those in an empty kernel (`%%agent --here`) are"
)


class NotebookCopy:
    """See `Kernel`. It has one folder, and one copy at a time."""

    def __init__(self, spec: KernelSpec, handler: HostRequestHandler, context: ZmqContext, origin: Origin) -> None:
        """Args: origin: the kernel that is copied."""
        self._spec = replace(spec, start_timeout_seconds=min(spec.start_timeout_seconds, START_SECONDS))
        self._handler, self._context, self._origin = handler, context, origin
        self._folder = KernelFolder(make_folder())
        self._kernel: LocalKernel | None = None
        self._asked: tuple[tuple[str, str], ...] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._closed = False
        self.unread_before = ""
        self.cells: list[tuple[str, bool]] = []
        """The code that the agent has run in the present copy, each with whether it ended without an error."""

    @property
    def pid(self) -> int | None:
        """Process id of the copy. None: there is none at the moment."""
        return None if self._kernel is None or self._kernel.lost_reason is not None else self._kernel.pid

    @property
    def lost_reason(self) -> str | None:
        """See `Kernel`."""
        return self._lost.result() if self._lost.done() else None

    @property
    def unread(self) -> str:
        """See `Kernel`."""
        return self.unread_before + (self._kernel.unread if self._kernel is not None else "")

    @property
    def may_be_replaced(self) -> bool:
        """See `Kernel`."""
        return True

    @property
    def scratch(self) -> Path:
        """See `Kernel`."""
        return self._folder.path / "tmp"

    @property
    def own_files(self) -> OwnFiles | None:
        """See `BranchingKernel`."""
        return None

    async def renew(self) -> None:
        """Makes a copy of the kernel as it is now, in place of the one that there is.

        Raises:
            KernelStartError: None can be made; the message says why. There is none, then.
        """
        await self.drop()
        if self._closed:
            raise KernelStartError("it was closed")
        launcher = CopyLauncher(self._spec, self._context, self._folder, self._origin)
        kernel = self._kernel = await LocalKernel(self._spec, launcher, self._handler).open()
        if self._asked is not None:
            kernel.ask_about(self._asked)
        self._watching = asyncio.create_task(self._watch(kernel), name=f"watch copy of {self._spec.owner_id}")

    async def drop(self) -> None:
        """Ends the copy, with all that it has started. The next cell makes another one."""
        kernel, self._kernel = self._kernel, None
        self.cells.clear()
        watching, self._watching = self._watching, None
        if watching is not None:
            await end_task(watching)
        if kernel is not None:
            await kernel.aclose()
            self.unread_before += kernel.unread

    async def own_cell(self, call: str) -> None:
        """Runs a silent cell of ours in the copy that there is. Args: call: an expression on `state`.

        Raises:
            KernelError: It failed, or there is no copy.
        """
        if self._kernel is None or self._kernel.lost_reason is not None:
            raise KernelLostError("there is no copy any more")
        buffer = CellOutputBuffer()
        code = f"(lambda state: {call})(__import__('sys').modules['freeact_sub.kernels.guest.state'])"
        async with self._kernel.execute(code, buffer, CellClock(OWN_CELL_SECONDS), silent=True) as cell:
            reply = await cell.reply()
        if reply.status != "ok":
            last = (buffer.text.strip().splitlines() or [reply.status])[-1]
            raise KernelError(last[-ERROR_CHARS:])

    @contextlib.asynccontextmanager
    async def execute(
        self, code: str, buffer: CellOutputBuffer, clock: CellClock, *, silent: bool = False
    ) -> AsyncIterator[CellRun]:
        """See `Kernel`."""
        if self._kernel is None and not self._closed:
            try:
                await self.renew()
            except KernelStartError as error:
                self._lose(f"no other copy could be made: {error}")
        kernel = self._kernel
        if kernel is None:
            raise KernelLostError(self.lost_reason or "the copy was closed")
        number = len(self.cells)
        if not silent:
            self.cells.append((code, False))  # a run that is cancelled may end before its cell
        try:
            async with kernel.execute(code, buffer, clock, silent=silent) as run:
                yield run
        finally:
            if not silent and kernel is self._kernel:
                self.cells[number] = (code, buffer.ended is not None and buffer.ended.status == "ok")

    async def interrupt(self) -> None:
        """See `Kernel`."""
        if self._kernel is not None:
            await self._kernel.interrupt()

    async def wait_lost(self) -> str:
        """See `Kernel`."""
        return await asyncio.shield(self._lost)

    def ask_about(self, names: tuple[tuple[str, str], ...]) -> None:
        """See `Kernel`."""
        self._asked = names
        if self._kernel is not None:
            self._kernel.ask_about(names)

    async def aclose(self) -> None:
        """See `Kernel`."""
        self._closed = True
        await carry_out(self._close())

    async def branch(self, spec: KernelSpec, handler: HostRequestHandler) -> Kernel:
        """See `BranchingKernel`. Raises: KernelBranchError: always."""
        del handler
        if spec.trial is not None:
            raise KernelBranchError(UNTRIED)
        raise KernelBranchError("a copy of a notebook's kernel is not branched again: start the child without a branch")

    async def snapshot(self, folder: Path, *, max_bytes: int | None = None, keep: Collection[str] = ()) -> SnapshotReport:
        """See `BranchingKernel`. Nothing is saved: the variables are the notebook's, and what is not taken over is gone."""
        del max_bytes, keep
        folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240  # one call, as `Store` makes it
        return SnapshotReport(kept=(), lost=(), size_bytes=0, written_bytes=0, pause_seconds=0, not_forked="")

    async def restore(self, folder: Path, *, allow_more: bool = False) -> RestoreReport:
        """See `BranchingKernel`. Raises: KernelSnapshotError: always."""
        del folder, allow_more
        raise KernelSnapshotError("your kernel is a copy of the notebook's")

    async def write_state(self) -> str:
        """Has the copy describe its variables; the name of a file in its scratch folder. Raises: see `own_cell`."""
        return await self._written(lambda name: f"state.report_to({name!r})")

    async def write_values(self, names: Sequence[str]) -> str:
        """Has the copy write variables; the name of a file in its scratch folder. Raises: see `own_cell`."""
        return await self._written(lambda name: f"state.write_to({name!r}, {[*names]!r})")

    async def _written(self, call: Any) -> str:
        name = f"values-{uuid.uuid4().hex}"
        await self.own_cell(call(name))
        return name

    async def _watch(self, kernel: LocalKernel) -> None:
        reason = await kernel.wait_lost()
        if self._kernel is kernel:
            self._lose(reason)

    def give_up(self, reason: str) -> None:
        """No copy is made any more: this kernel is lost, and its agent gets another one."""
        self._lose(reason)

    def _lose(self, reason: str) -> None:
        if not self._lost.done():
            self._lost.set_result(reason)

    async def _close(self) -> None:
        await self.drop()
        self._folder.give_up()
