"""`NotebookCopy`: the kernel of an agent that works on a copy of the notebook's kernel; a newer copy can take its place.

`CopyProvider` gives a root agent such a copy, and its children kernels of another provider.
"""

import asyncio
import contextlib
import os
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, Protocol

from zmq.sugar.context import Context

from freeact_sub.config.schema import KernelConfig
from freeact_sub.errors import KernelBranchError, KernelLostError, KernelSnapshotError, KernelStartError
from freeact_sub.kernels.files import OwnFiles
from freeact_sub.kernels.forkserver.branches import choose_connection
from freeact_sub.kernels.handover import own_cell
from freeact_sub.kernels.kernel import AuditSettings, HostRequestHandler, Kernel, KernelPlace, KernelProvider, KernelSpec
from freeact_sub.kernels.launch import private_environment
from freeact_sub.kernels.local import LOG_FILE, RECONNECT_MILLISECONDS, LocalKernel, LocalLauncher
from freeact_sub.kernels.snapshot_reports import RestoreReport, SnapshotReport
from freeact_sub.kernels.wall.sandbox import Gaps
from freeact_sub.kernels.wire.channels import KernelChannels, ZmqContext
from freeact_sub.kernels.wire.output import CellClock, CellOutputBuffer, CellRun
from freeact_sub.modes import Mode
from freeact_sub.system.closing import carry_out, end_task
from freeact_sub.system.private_folders import KernelFolder, make_folder

KILL_SECONDS: Final = 3.0


class Origin(Protocol):
    """The notebook's kernel, as the process of its agents knows it. Its end is `CopyMaker` (`making.py`)."""

    async def fork(self, request: Mapping[str, Any]) -> tuple[int, int]:
        """Fork a copy. Args: request: as for `become_copy`. Return the process ids of its guard and of the copy.

        Raises:
            KernelStartError: It cannot be copied now; the message says why.
        """
        ...

    async def exit_code(self, guard: int) -> int:
        """Wait for the end of a guard. Return its exit code, negative for a signal."""
        ...


class CopyLauncher(LocalLauncher):
    """A launcher that lets the notebook's kernel fork. Its folder outlives the copy, and serves the agent's next one."""

    has_guest = True

    def __init__(self, spec: KernelSpec, context: ZmqContext, folder: KernelFolder, origin: Origin) -> None:
        """Args: origin: the kernel to copy."""
        super().__init__(spec, context, folder)
        self._origin = origin
        self._guard: int | None = None

    async def launch(self) -> KernelChannels:
        """Fork the copy, and return its channels."""
        environment = await self._prepare()
        private = private_environment(self.spec, self.scratch)
        request = {
            "connection": choose_connection(self._manager),
            "connection_file": self._manager.connection_file,
            "attach": False,
            "folder": str(self.folder.path),
            "log": str(self.folder.path / LOG_FILE),
            "environment": {**environment, **private},
            "folders": list(private.values()),
            "cwd": str(self.spec.workspace),
            "wall": self.wall,
            "servers": self.spec.mcp_servers,
            "skills": [asdict(module) for module in self.spec.skills],
            "audit": self.spec.hook_settings(self.scratch),
        }
        self._guard, copy = await self._origin.fork(request)
        self._process = copy, asyncio.ensure_future(self._origin.exit_code(self._guard))
        return self._started(self._process[1])

    async def kill(self) -> None:
        """End the guard, and so the copy."""
        if self._guard is None or self._process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self._process[1].done():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._guard, number)
                await asyncio.wait({self._process[1]}, timeout=KILL_SECONDS)

    async def aclose(self, *, lost: bool) -> None:
        """Let the copy end. The folder belongs to its giver."""
        if lost:
            await asyncio.to_thread(self.folder.end_processes)


START_SECONDS: Final = 10.0
"""Seconds for a copy to be ready. A later one hangs at a lock of another thread; the agent gets an empty kernel."""
OWN_CELL_SECONDS: Final = 60.0
HOST_GUEST: Final = "freeact_sub.kernels.guest"
"""The guest's package in the notebook's kernel, and so in a copy: values go from one to the other by its names."""
UNTRIED: Final = (
    "it runs in the agent's copy of your notebook, which is the trial: your variables stay as they are until you take over "
    "the copy's (%agent_diff, %agent_adopt). Files that it writes are the real ones"
)


class NotebookCopy:
    """A kernel of copies. It has one folder, and one copy at a time."""

    def __init__(self, spec: KernelSpec, handler: HostRequestHandler, context: ZmqContext, origin: Origin) -> None:
        """Args: origin: the kernel to copy."""
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
        """Code that the agent has run in the present copy, each with whether it ended without an error."""

    @property
    def pid(self) -> int | None:
        """Process id of the copy. None: there is none at the moment."""
        return None if self._kernel is None or self._kernel.lost_reason is not None else self._kernel.pid

    @property
    def lost_reason(self) -> str | None:
        """The reason why the kernel is lost."""
        return self._lost.result() if self._lost.done() else None

    @property
    def unread(self) -> str:
        """The unread output."""
        return self.unread_before + (self._kernel.unread if self._kernel is not None else "")

    @property
    def may_be_replaced(self) -> bool:
        """Whether another kernel may take this one's place."""
        return True

    @property
    def scratch(self) -> Path:
        """The scratch folder."""
        return self._folder.path / "tmp"

    @property
    def own_files(self) -> OwnFiles | None:
        """None: a copy works in the workspace itself."""
        return None

    async def renew(self) -> None:
        """Make a copy of the kernel as it is now, in place of the present one.

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
        """End the copy, with all that it has started. The next cell makes another one."""
        kernel, self._kernel = self._kernel, None
        self.cells.clear()
        watching, self._watching = self._watching, None
        if watching is not None:
            await end_task(watching)
        if kernel is not None:
            await kernel.aclose()
            self.unread_before += kernel.unread

    @contextlib.asynccontextmanager
    async def execute(
        self, code: str, buffer: CellOutputBuffer, clock: CellClock, *, silent: bool = False
    ) -> AsyncIterator[CellRun]:
        """Run a cell in the copy, or in a new one."""
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
        """Interrupt the cell."""
        if self._kernel is not None:
            await self._kernel.interrupt()

    async def wait_lost(self) -> str:
        """Wait until the kernel is lost; return the reason."""
        return await asyncio.shield(self._lost)

    def ask_about(self, names: tuple[tuple[str, str], ...]) -> None:
        """Ask about changes of more files from now on."""
        self._asked = names
        if self._kernel is not None:
            self._kernel.ask_about(names)

    async def aclose(self) -> None:
        """End the copy."""
        self._closed = True
        await carry_out(self._close())

    async def branch(self, spec: KernelSpec, handler: HostRequestHandler) -> Kernel:
        """Raise KernelBranchError."""
        del handler
        if spec.trial is not None:
            raise KernelBranchError(UNTRIED)
        raise KernelBranchError("a copy of a notebook's kernel is not branched again: start the child without a branch")

    async def snapshot(self, folder: Path, *, max_bytes: int | None = None, keep: Collection[str] = ()) -> SnapshotReport:
        """Save nothing: the variables are the notebook's, and values that are not taken over are gone."""
        del max_bytes, keep
        folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240  # one call, as `Store` makes it
        return SnapshotReport(kept=(), lost=(), size_bytes=0, written_bytes=0, pause_seconds=0, not_forked="")

    async def restore(self, folder: Path, *, allow_more: bool = False) -> RestoreReport:
        """Raise KernelSnapshotError."""
        del folder, allow_more
        raise KernelSnapshotError("your kernel is a copy of the notebook's")

    async def write_state(self) -> str:
        """Let the copy describe its variables; return the name of a file in its scratch folder. Raises: as `own_cell`."""
        return await self._written(lambda name: f"state.report_to({name!r})")

    async def write_values(self, names: Sequence[str]) -> str:
        """Let the copy write variables; return the name of a file in its scratch folder. Raises: as `own_cell`."""
        return await self._written(lambda name: f"state.write_to({name!r}, {[*names]!r})")

    async def write_parts(self, names: Sequence[str]) -> str:
        """Let the copy write the parts of variables, to be compared; return the name of a file as `write_values` does."""
        variables = "freeact.state.variables(get_ipython())"
        return await self._written(lambda name: f"differences.write({name!r}, {[*names]!r}, {variables})")

    async def _written(self, call: Callable[[str], str]) -> str:
        if self._kernel is None or self._kernel.lost_reason is not None:
            raise KernelLostError("there is no copy any more")
        name = f"values-{uuid.uuid4().hex}"
        await own_cell(self._kernel, f"freeact.{call(name)}", OWN_CELL_SECONDS, module=HOST_GUEST)
        return name

    async def _watch(self, kernel: LocalKernel) -> None:
        reason = await kernel.wait_lost()
        if self._kernel is kernel:
            self._lose(reason)

    def give_up(self, reason: str) -> None:
        """Make no more copies: this kernel is lost, and its agent gets another one."""
        self._lose(reason)

    def _lose(self, reason: str) -> None:
        if not self._lost.done():
            self._lost.set_result(reason)

    async def _close(self) -> None:
        await self.drop()
        self._folder.give_up()


NETWORK: Final = (
    "the network that kernel.network gives to code in mode `{mode}` includes programs of this machine: the copy does not "
    "know the key of your kernel, but it can read the outputs of a kernel whose transport is TCP"
)


class CopyProvider:
    """A provider of copies for a root, and of empty kernels for its children."""

    def __init__(self, empty: KernelProvider, *, on_notice: Callable[[str], None], origin: Origin) -> None:
        """Nothing is started yet.

        Args:
            empty: Starts the kernels of children, and the root's where no copy can be made. It is closed with this one.
            on_notice: Called with news for a person: why there is no copy, and what the wall cannot hold.
            origin: The kernel to copy.
        """
        self._empty = empty
        self._on_notice = on_notice
        self._origin = origin
        self._gaps = Gaps(on_notice)
        self._context: Any = Context()
        self._context.reconnect_ivl = RECONNECT_MILLISECONDS
        self.root_id: str | None = None
        self.copy: NotebookCopy | None = None
        """The root's kernel. None: it is an empty one, or not started yet."""
        self._told_of_network = False
        self._refused = ""
        """The reason why no copy can be made now. Empty: one can be."""

    async def refuse(self, reason: str) -> None:
        """Set the reason against copies, or none. The agent of a present copy gets an empty kernel."""
        self._refused = reason
        copy, self.copy = (self.copy, None) if reason else (None, self.copy)
        if copy is not None:
            copy.give_up(f"no other copy of this kernel can be made: {reason}")
            await copy.aclose()

    def place(self, mode: Mode, settings: KernelConfig, workspace: Path) -> KernelPlace:
        """Return the place of a kernel."""
        return self._empty.place(mode, settings, workspace)

    def hook(self, settings: AuditSettings) -> AuditSettings | None:
        """Return the settings of the audit hook."""
        return self._empty.hook(settings)

    async def start(self, spec: KernelSpec, handler: HostRequestHandler) -> Kernel:
        """Start a kernel: a copy for the root, an empty one for others."""
        if spec.owner_id != self.root_id or self._refused:
            return await self._empty.start(spec, handler)
        await self._gaps.check(spec)
        if spec.sandbox is not None and spec.sandbox.walled and spec.sandbox.network and not self._told_of_network:
            self._told_of_network = True
            self._on_notice(NETWORK.format(mode=spec.sandbox.mode))
        copy = NotebookCopy(spec, handler, self._context, self._origin)
        try:
            await copy.renew()
        except KernelStartError as error:
            await copy.aclose()
            self._on_notice(f"the agent works in an empty kernel: a copy of this one could not be made: {error}")
            return await self._empty.start(spec, handler)
        except BaseException:
            await copy.aclose()
            raise
        self.copy = copy
        return copy

    async def aclose(self) -> None:
        """End all kernels."""
        self._context.destroy(linger=0)
        await self._empty.aclose()
