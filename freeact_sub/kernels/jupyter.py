"""`JupyterKernel`: an IPython kernel, wherever its process runs.

This module has the common part: cells, requests to the host, the guest (`agent` in code), branches, and the end. The
launcher has the rest: the start of the process and its resources on that machine.

`Bridge` replies to the requests of code, such as MCP calls, children and approvals. Each request has its own task, so that
ten calls of `asyncio.gather` in a cell run side by side. A request carries data only; the host's handler decides what it may
do and trusts nothing from the kernel.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Self

from freeact_sub.errors import (
    ApprovalDeniedError,
    FreeactError,
    InvalidRequestError,
    KernelBranchError,
    KernelSnapshotError,
    KernelStartError,
    SpawnForbiddenError,
    UnusablePythonError,
)
from freeact_sub.kernels.files import OwnFiles
from freeact_sub.kernels.forkserver.branches import Branches, check_branch
from freeact_sub.kernels.guest import guest_source
from freeact_sub.kernels.kernel import HostRequestHandler, KernelSpec
from freeact_sub.kernels.launch import Launcher
from freeact_sub.kernels.rights import KernelRights, rights_of
from freeact_sub.kernels.snapshot_reports import RestoreReport, SnapshotReport
from freeact_sub.kernels.snapshots import MAX_BYTES, Snapshots, Store
from freeact_sub.kernels.wire.channels import KernelChannels
from freeact_sub.kernels.wire.client import KernelClient
from freeact_sub.kernels.wire.output import CellClock, CellOutputBuffer, CellRun
from freeact_sub.system.closing import carry_out, joined

NOT_READY: Final = "the kernel was not ready after {seconds:g} s: raise kernel.start_timeout_seconds, or look at its log"
NOT_FORKED: Final = "the kernel could not be branched within {seconds:g} s: it has to be idle, or its cell to wait"
ERROR_CHARS: Final = 2000
INSTALL: Final = """
def _freeact_install():
    import asyncio, sys
    given = get_ipython().kernel.get_parent("shell")["content"]["given"]
    exec(compile(given["guest"], "<freeact_guest>", "exec"), {})
    sys.modules["freeact_guest.skills"].install(given["skills"])
    guest = sys.modules["freeact_guest.agent"]
    guest.install(get_ipython(), given["servers"], asyncio.get_running_loop(), given["hook"])
_freeact_install()
del _freeact_install
"""
"""The first, silent cell: makes the guest a package and installs it, leaving no names behind."""


class JupyterKernel:
    """A kernel that a launcher starts."""

    _install_code = INSTALL

    def __init__(self, spec: KernelSpec, launcher: Launcher, handler: HostRequestHandler) -> None:
        """Args: launcher: starts the process, and belongs to the kernel from now on."""
        self.spec = spec
        self._launcher = launcher
        self._client = KernelClient(self)
        self._branches = Branches(self._client)
        self._snapshots = Snapshots(self._client)
        self._bridge = Bridge(handler, self._client.reply)
        self._closing: asyncio.Task[None] | None = None
        self._killed: str | None = None
        self._asked = spec.audit.asked if spec.audit is not None else ()
        """Names that its hook asks about."""

    @property
    def lost_reason(self) -> str | None:
        """A sentence on how the kernel ended, if it has."""
        return self._client.lost_reason

    @property
    def unread(self) -> str:
        """The output of earlier cells since the last cell ended."""
        return self._client.unread

    @property
    def may_be_replaced(self) -> bool:
        """Whether the agent's run goes on with a new kernel when this one is lost."""
        return True

    @property
    def scratch(self) -> Path | None:
        """The kernel's own writable folder on this machine, if any."""
        return self._launcher.scratch

    @property
    def own_files(self) -> OwnFiles | None:
        """The kernel's copy of the workspace, if any."""
        return self._launcher.own_files

    async def open(self) -> Self:
        """Starts the process and waits for the kernel, for at most the spec's time. On failure nothing is left of it.

        Raises:
            KernelStartError: It did not become ready.
        """
        return await self._open(KernelStartError, NOT_READY, self._launcher)

    async def branch(self, spec: KernelSpec, handler: HostRequestHandler) -> Self:
        """Starts a copy of this kernel; see `BranchingKernel.branch`."""
        check_branch(spec, self.spec)
        if self._closing is not None or self.lost_reason is not None:
            raise KernelBranchError(f"a kernel that has ended cannot be branched: {self.lost_reason or 'it was closed'}")
        kernel = type(self)(spec, self._launcher.branch(spec, self._branches), handler)
        return await kernel._open(KernelBranchError, NOT_FORKED, self._launcher)  # noqa: SLF001  # another one of ours

    async def snapshot(self, folder: Path, *, max_bytes: int | None = None, keep: Collection[str] = ()) -> SnapshotReport:
        """Saves the variables into files; see `BranchingKernel.snapshot`."""
        scratch, rights = self._scratch_for_variables(), await self._rights()
        return await self._snapshots.save(scratch, Store(folder, rights, keep, max_bytes or MAX_BYTES))

    async def restore(self, folder: Path, *, allow_more: bool = False) -> RestoreReport:
        """Brings the variables of a snapshot back; see `BranchingKernel.restore`."""
        scratch, rights = self._scratch_for_variables(), await self._rights()
        return await self._snapshots.restore(scratch, folder, None if allow_more else rights)

    async def _rights(self) -> KernelRights:
        return await asyncio.to_thread(rights_of, self.spec, own_files=self.own_files is not None)

    def _scratch_for_variables(self) -> Path:
        if self._closing is not None or self.lost_reason is not None:
            raise KernelSnapshotError(f"a kernel that has ended has no variables: {self.lost_reason or 'it was closed'}")
        if self.scratch is None:
            raise KernelSnapshotError(
                "variables are not saved from a kernel on another machine, and not brought back to one"
            )
        return self.scratch

    async def _open(self, kind: type[KernelStartError], late: str, starter: Launcher) -> Self:
        """Args: late: the error if `launch` takes too long. starter: its log tells why until there is one of our own."""
        try:
            async with asyncio.timeout(self.spec.start_timeout_seconds):
                channels = await self._launcher.launch()
                late = NOT_READY
                await self._start(channels)
        except BaseException as error:
            log = (self._launcher.log_tail() or starter.log_tail()).strip()
            await self.aclose()
            because = f": {log.splitlines()[-1]}" if log else ""
            if isinstance(error, TimeoutError):
                raise kind(late.format(seconds=self.spec.start_timeout_seconds) + because, log=log) from error
            if isinstance(error, KernelStartError) and not isinstance(error, UnusablePythonError):
                raise kind(f"{error}{because}", log=log) from error
            raise
        return self

    async def _start(self, channels: KernelChannels) -> None:
        if self._launcher.exited is not None:
            self._launcher.exited.add_done_callback(self._on_exit)
        await self._client.open(channels, greets=self._launcher.greets)
        if not self._launcher.has_guest:
            await self._install()
        await self._launcher.settle()

    async def _install(self) -> None:
        """Installs the guest: the object that code sees as `agent`."""
        buffer = CellOutputBuffer()
        async with self._client.execute(
            self._install_code, buffer, CellClock(None), silent=True, given=self._given()
        ) as cell:
            reply = await cell.reply()
        if reply.status != "ok":
            last = (buffer.text.strip().splitlines() or [reply.status])[-1]
            raise KernelStartError(f"the kernel could not be prepared: {last[-ERROR_CHARS:]}", log=buffer.text)

    def _given(self) -> dict[str, Any]:
        hook = self.spec.hook_settings(*filter(None, (self.scratch,)))
        skills = [asdict(module) for module in self.spec.skills]
        return {"guest": guest_source(), "servers": self.spec.mcp_servers, "hook": hook, "skills": skills}

    def hand_out(self, handler: HostRequestHandler) -> None:
        """Gives a kernel that was started ahead of demand to its agent."""
        self._bridge.handler = handler

    def execute(
        self, code: str, buffer: CellOutputBuffer, clock: CellClock, *, silent: bool = False
    ) -> AbstractAsyncContextManager[CellRun]:
        """Runs a cell; see `Kernel.execute`."""
        return self._client.execute(code, buffer, clock, silent=silent)

    async def interrupt(self) -> None:
        """Interrupts the running cell, if any, and its open requests to the host."""
        self._client.interrupt()

    def ask_about(self, names: tuple[tuple[str, str], ...]) -> None:
        """Makes the hook ask about these names from now on."""
        if names != self._asked:
            self._asked = names
            self._client.send_control("freeact_rules", {"asked": names})

    async def wait_lost(self) -> str:
        """Waits until the kernel's process has ended, and returns the reason."""
        return await self._client.wait_lost()

    async def aclose(self) -> None:
        """Ends the kernel and all processes that its cells started, and removes its files. Can be called again."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name=f"close kernel of {self.spec.owner_id}")
        await carry_out(joined(self._closing))

    async def send_interrupt(self) -> None:
        """Interrupts the cell. Its open requests to the host end first, or the cell would wait for them."""
        await self._bridge.cancel()
        await self._launcher.interrupt()

    async def kill(self, reason: str) -> None:
        """Ends the kernel at once."""
        self._killed = reason
        await self._launcher.kill()

    def on_request(self, content: dict[str, Any], clock: CellClock | None) -> None:
        """Handles a request of code."""
        self._bridge.receive(content, clock)

    def on_branch(self, content: dict[str, Any]) -> None:
        """Passes a reply on to the branches."""
        self._branches.receive(content)

    def on_snapshot(self, content: dict[str, Any]) -> None:
        """Passes a reply on to the snapshots."""
        self._snapshots.receive(content)

    def _on_exit(self, exited: asyncio.Future[str]) -> None:
        if not exited.cancelled():
            self._client.lose(self._killed or exited.result())
            for waiting in (self._branches, self._snapshots):
                waiting.lose(self._client.lost_reason or "")

    async def _close(self) -> None:
        lost = self.lost_reason is not None
        async with AsyncExitStack() as steps:  # each is done, whatever becomes of another
            steps.push_async_callback(self._launcher.aclose, lost=lost)
            steps.push_async_callback(self._client.aclose)
            steps.push_async_callback(self._launcher.kill)
            self._branches.lose("it was closed")
            self._snapshots.lose("it was closed")
            await self._bridge.aclose()


logger = logging.getLogger(__name__)

GIVE_UP = "give_up"
"""The request that ends another one; it gets no reply."""
MAX_OPEN_REQUESTS = 1000
"""The bound on open requests of a kernel."""


CANCEL_SECONDS = 0.2
"""Seconds to wait for cancelled requests; after that their cell is interrupted."""


class Bridge:
    """The host's end of one kernel's requests."""

    def __init__(self, handler: HostRequestHandler, reply: Callable[[dict[str, Any]], None]) -> None:
        """Args: handler: gives the replies. reply: sends one to the kernel."""
        self.handler = handler
        self._reply = reply
        self._open: dict[asyncio.Task[None], Any] = {}
        """The open requests and their ids."""
        self._closed = False

    def receive(self, content: dict[str, Any], clock: CellClock | None) -> None:
        """Starts to handle a request."""
        if self._closed:
            return
        if "refused" in content:
            self._reply(_failure(content.get("id"), "ValueError", str(content["refused"])))
            return
        if content.get("method") == GIVE_UP:
            params = content.get("params")
            self._give_up(params.get("request") if isinstance(params, dict) else None)
            return
        if len(self._open) >= MAX_OPEN_REQUESTS:
            self._reply(_failure(content.get("id"), "RuntimeError", f"more than {MAX_OPEN_REQUESTS} open requests"))
            return
        # the context here is that in which the kernel was opened; the request belongs to the cell, whose run may be another
        context = clock.context.copy() if clock is not None else None
        name = f"host request {content.get('method')}"
        task = asyncio.create_task(self._handle_request(content, clock), name=name, context=context)
        self._open[task] = content.get("id")
        task.add_done_callback(self._open.pop)

    async def cancel(self) -> None:
        """Cancels all open requests; the code that waits for them gets an error."""
        tasks = tuple(self._open)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_SECONDS)

    def _give_up(self, request_id: Any) -> None:
        """Ends a request whose code no longer waits for the reply."""
        for task, open_id in tuple(self._open.items()):
            if open_id == request_id:
                task.cancel()

    async def aclose(self) -> None:
        """Cancels all open requests and refuses new ones."""
        self._closed = True
        await self.cancel()

    async def _handle_request(self, content: dict[str, Any], clock: CellClock | None) -> None:
        request_id = content.get("id")
        try:
            value = await self.handler(str(content.get("method")), dict(content.get("params") or {}), clock)
            if isinstance(value, AsyncGenerator):
                value = await self._show(request_id, value)
            json.dumps(value)  # the reply must survive the wire
            reply = {"id": request_id, "ok": True, "value": value}
        except (ApprovalDeniedError, SpawnForbiddenError) as error:
            reply = _failure(request_id, "PermissionError", str(error))
        except InvalidRequestError as error:
            reply = _failure(request_id, "ValueError", str(error))
        except FreeactError as error:
            reply = _failure(request_id, "RuntimeError", str(error))
        except Exception as error:  # border: whatever fails here must reach the code that waits for it
            logger.warning("host request %s failed", content.get("method"), exc_info=True)
            reply = _failure(request_id, "RuntimeError", f"{type(error).__name__}: {error}")
        except asyncio.CancelledError:
            self._reply(_failure(request_id, "CancelledError", "the request was cancelled"))
            raise
        except BaseException as error:  # it ends more than this request, but the code must not wait for ever
            self._reply(_failure(request_id, "RuntimeError", f"{type(error).__name__}: {error}"))
            raise
        self._reply(reply)

    async def _show(self, request_id: Any, items: AsyncGenerator[Any, None]) -> Any:
        """Shows the texts that come before the value, and returns the value."""
        value = None
        async with aclosing(items):
            async for item in items:
                if isinstance(item, str):
                    self._reply({"id": request_id, "output": item})
                else:
                    value = item
        return value


def _failure(request_id: Any, kind: str, message: str) -> dict[str, Any]:
    return {"id": request_id, "ok": False, "error": kind, "message": message}
