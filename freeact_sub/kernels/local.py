"""`LocalKernelProvider`: one subprocess per kernel, under an `AsyncKernelManager`, over ipc sockets in a private folder.

Each kernel has a folder of its own (mode 0700) with its connection file, its sockets and its log: another kernel's key can
not be read from it. No TCP port serves a kernel.
"""

import asyncio
import contextlib
import logging
import secrets
import signal
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import zmq.asyncio
from jupyter_client.kernelspec import KernelSpec as JupyterKernelSpec
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.session import Session

from freeact_sub.cells import CellOutput, ExecuteReply
from freeact_sub.closing import carry_out
from freeact_sub.config import SETTINGS_FOLDER
from freeact_sub.errors import KernelBranchError, KernelStartError
from freeact_sub.kernels import sandbox
from freeact_sub.kernels.branch import Branches, check_branch, choose_connection
from freeact_sub.kernels.bridge import Bridge
from freeact_sub.kernels.client import KernelClient
from freeact_sub.kernels.folders import SOCKET_PATH_CHARS, VARIABLE, KernelFolder, make_folder, sweep
from freeact_sub.kernels.forkserver import ForkServer
from freeact_sub.kernels.guest import guest_source
from freeact_sub.kernels.kernel import HostRequestHandler, KernelSpec
from freeact_sub.kernels.output import CellClock, CellOutputBuffer
from freeact_sub.kernels.provision import ForkProvisioner, GuardedProvisioner

KERNEL_ARGUMENTS: Final = ("--HistoryManager.enabled=False",)
"""The agent keeps its own history; IPython's costs a database and a thread."""
RECONNECT_MILLISECONDS: Final = 10
"""The client connects before the kernel has bound its sockets; the default of 100 ms would be waited out in full."""
CONNECTION_FILE: Final = "kernel.json"
LOG_FILE: Final = "kernel.log"
LOG_TAIL_CHARS: Final = 2000
ENDS_OF_A_SOCKET: Final = 2
"""Of a kernel's socket with one connection: the one that listens, and the kernel's end of the connection."""

logger = logging.getLogger(__name__)


class LocalKernelProvider:
    """Starts each kernel as a subprocess."""

    def __init__(self, *, on_notice: Callable[[str], None] | None = None) -> None:
        """Args: on_notice: told once what of a kernel's sandbox this machine cannot enforce. None: the log is told."""
        self._on_notice = on_notice or logger.warning
        self._noticed: set[str] = set()
        self._context = zmq.asyncio.Context()
        self._context.reconnect_ivl = RECONNECT_MILLISECONDS
        sweep()

    async def start(self, spec: KernelSpec, handler: HostRequestHandler) -> "LocalKernel":
        """See `KernelProvider.start`."""
        await self._check_sandbox(spec)
        return await self._open(LocalKernel(spec, self._context, handler), spec)

    async def _check_sandbox(self, spec: KernelSpec) -> None:
        """Refuse a kernel whose sandbox is required and cannot be had whole; tell once what is missing."""
        if spec.sandbox is None:
            return
        if spec.sandbox.protected:
            with contextlib.suppress(OSError):  # what the host cannot make there, a kernel cannot make either
                (spec.workspace / SETTINGS_FOLDER).mkdir(mode=0o755, exist_ok=True)  # the wall protects what is there
        missing = sandbox.check(spec.sandbox, await asyncio.to_thread(sandbox.support))
        new = [what for what in missing if what not in self._noticed]
        self._noticed.update(new)
        if new:
            self._on_notice(f"the sandbox of mode `{spec.sandbox.mode}` does not cover: {'; '.join(new)}")

    async def _open(self, kernel: "LocalKernel", spec: KernelSpec) -> "LocalKernel":
        """Start the kernel within the spec's time; what does not become ready is closed."""
        try:
            async with asyncio.timeout(spec.start_timeout_seconds):
                await kernel.open()
        except BaseException as error:
            log = kernel.log_tail()
            await kernel.aclose()
            if isinstance(error, TimeoutError):
                raise not_ready(spec, log) from error
            if isinstance(error, KernelStartError) and log:
                raise KernelStartError(f"{error}: {log.strip().splitlines()[-1]}", log=log) from error
            raise
        return kernel

    async def aclose(self) -> None:
        """See `KernelProvider.aclose`."""
        self._context.destroy(linger=0)


def not_ready(spec: KernelSpec, log: str = "") -> KernelStartError:
    """The error of a kernel that took too long."""
    seconds = spec.start_timeout_seconds
    return KernelStartError(
        f"the kernel was not ready after {seconds:g} s: raise kernel.start_timeout_seconds, or look at its log", log=log
    )


class LocalKernel:
    """A kernel in a subprocess of this machine."""

    def __init__(
        self,
        spec: KernelSpec,
        context: zmq.asyncio.Context,
        handler: HostRequestHandler,
        *,
        server: ForkServer | None = None,
        folder: KernelFolder | None = None,
    ) -> None:
        """Args: server: forks the kernel; None: it is started as a subprocess. folder: of its own; None: a new one."""
        self._spec = spec
        self._context = context
        self._folder = folder or KernelFolder(make_folder() if server is None else server.new_folder())
        self._manager = AsyncKernelManager(
            context=context,
            transport="ipc",
            ip=str(self._folder.path / "k"),
            session=Session(key=secrets.token_hex(32).encode()),
        )
        self._manager.connection_file = str(self._folder.path / CONNECTION_FILE)
        jupyter_spec = JupyterKernelSpec(
            argv=[spec.python, "-m", "ipykernel_launcher", *KERNEL_ARGUMENTS, "-f", "{connection_file}"],
            language="python",
            display_name="freeact-sub",
        )
        kind = GuardedProvisioner if server is None else ForkProvisioner
        self._provisioner = kind(kernel_id=spec.owner_id, kernel_spec=jupyter_spec, parent=self._manager)
        if server is None:
            self._provisioner.folder = self._folder.path
        else:
            self._provisioner.server, self._provisioner.servers = server, spec.mcp_servers
            self._provisioner.audit = self._audit()
        self._manager._kernel_spec = jupyter_spec  # noqa: SLF001  # a user's own `python3` kernelspec must not be picked up
        self._manager.provisioner = self._provisioner
        self.session = self._manager.session
        self._client = KernelClient(self, on_request=self._on_request)
        self._branches = Branches(self._client)
        self._handler = handler
        self._bridge = Bridge(self._answer, self._client.reply)
        self._closing: asyncio.Task[None] | None = None
        self._lost: str | None = None

    @property
    def lost_reason(self) -> str | None:
        """See `Kernel`."""
        return self._client.lost_reason

    @property
    def scratch(self) -> Path:
        """See `Kernel`."""
        return self._folder.path / "tmp"

    @property
    def pid(self) -> int | None:
        """Process id of the kernel's guard, the leader of its process group."""
        pid: int | None = self._provisioner.pid
        return pid

    @property
    def connection_file(self) -> Path:
        """For other Jupyter clients: `jupyter console --existing FILE`."""
        return Path(self._manager.connection_file)

    async def open(self) -> None:
        """Start the process, connect, and install what code finds as `agent`."""
        environment = {**self._spec.environment, VARIABLE: str(self._folder.path)}
        if self._spec.sandbox is not None or self._spec.audit is not None:
            environment |= self._private_folders()
        if self._spec.sandbox is not None:
            machine = await asyncio.to_thread(sandbox.support)
            self._provisioner.wall = sandbox.wire(self._spec.sandbox, machine, self._folder.path, self._spec.workspace)
        with (self._folder.path / LOG_FILE).open("ab") as log:
            command, options = await self._manager.pre_start_kernel(
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=str(self._spec.workspace),
                env=environment,
            )
            # all that `start_kernel` does besides is to open a control socket of its own, and to sleep for 10 ms
            await self._provisioner.launch_kernel(command, **options)
        await self._connect()

    async def _connect(self) -> None:
        self._provisioner.watch_exit().add_done_callback(self._on_exit)
        await self._client.open()
        if isinstance(self._provisioner, GuardedProvisioner):
            await self._install()
        if self._spec.sandbox is not None:
            self._hide()

    async def branch(self, spec: KernelSpec, handler: HostRequestHandler) -> "LocalKernel":
        """See `Kernel.branch`."""
        if not isinstance(self._provisioner, ForkProvisioner):
            raise KernelBranchError("only a forked kernel can be branched, on Linux, with kernel.provider = 'fork'")
        check_branch(spec, self._spec)
        if self._closing is not None or self.lost_reason is not None:
            raise KernelBranchError(f"a kernel that has ended cannot be branched: {self.lost_reason or 'it was closed'}")
        try:
            folder = self._folder.new_branch()
        except OSError as error:
            raise KernelBranchError(f"no private folder for a branch: {error}") from error
        kernel = LocalKernel(spec, self._context, handler, server=self._provisioner.server, folder=folder)
        try:
            async with asyncio.timeout(spec.start_timeout_seconds):
                await kernel._open_as_branch(self._provisioner.wall, self._fork)
        except BaseException as error:
            log = kernel.log_tail()
            await kernel.aclose()
            if isinstance(error, TimeoutError):
                seconds = spec.start_timeout_seconds
                raise KernelBranchError(
                    f"the kernel could not be branched within {seconds:g} s: it has to be idle, or its cell to wait", log=log
                ) from error
            if isinstance(error, KernelStartError) and log:
                raise KernelBranchError(f"{error}: {log.strip().splitlines()[-1]}", log=log) from error
            raise
        return kernel

    async def _fork(self, request: Mapping[str, Any]) -> tuple[int, asyncio.Future[int]]:
        """See `Branches.make`."""
        if self.pid is None or self._provisioner.server is None:
            raise KernelBranchError("a kernel that was not started cannot be branched")
        return await self._branches.make(self._provisioner.server, self.pid, request)

    async def _open_as_branch(
        self,
        wall: Mapping[str, Any] | None,
        fork: Callable[[Mapping[str, Any]], Awaitable[tuple[int, asyncio.Future[int]]]],
    ) -> None:
        """Become a kernel that another one forks of itself.

        All that the fork needs is sent to it. Nothing is written here: code in the origin can replace what is in our folder.

        Args:
            wall: The origin's.
            fork: Has the origin fork itself.
        """
        if len(f"ipc://{self.connection_file}-forks") > SOCKET_PATH_CHARS:
            raise KernelBranchError("the kernel is the branch of too many branches: its sockets would have too long a path")
        private: Mapping[str, str] = {}
        if self._spec.sandbox is not None or self._spec.audit is not None:
            private = sandbox.private_environment(self._spec.sandbox, self.scratch)
        if wall is not None:
            self._provisioner.wall = sandbox.wire_of_branch(wall, self._folder.path)
        request = {
            "connection_file": str(self.connection_file),
            "connection": choose_connection(self._manager),
            "attach": self._spec.sandbox is None,
            "log": str(self._folder.path / LOG_FILE),
            "environment": {VARIABLE: str(self._folder.path), **private},
            "folders": list(private.values()),
            "servers": self._spec.mcp_servers,
            "audit": self._audit(),
            "wall": self._provisioner.wall,
        }
        self._provisioner.pid, self._provisioner.exited = await fork(request)
        await self._connect()

    def _private_folders(self) -> Mapping[str, str]:
        """Make the folders that are the kernel's own; variables that name them to its process."""
        environment = sandbox.private_environment(self._spec.sandbox, self.scratch)
        for path in map(Path, environment.values()):
            path.mkdir(parents=True, exist_ok=True)  # a few folders in memory or on a local disk
        return environment

    def _audit(self) -> Mapping[str, Any] | None:
        """What code in the kernel does without asking, as the guest reads it."""
        settings = self._spec.audit
        if settings is None:
            return None
        folders = [str(path) for path in (*settings.writable, self.scratch)]
        return {"folders": folders, "asked": settings.asked, "no_network": settings.no_network}

    def _hide(self) -> None:
        """Take the key and the sockets away: we are connected, and nobody else is to be, least of all another kernel.

        Raises:
            KernelStartError: Somebody was quicker.
        """
        for name in (CONNECTION_FILE, *(name for name in self._folder.names() if name.startswith("k-"))):
            self._folder.remove_file(name)
        # whoever subscribes to iopub reads the output; the other sockets do nothing for who has not got the key
        address = f" {self._manager.ip}-{self._manager.iopub_port}"
        with contextlib.suppress(FileNotFoundError):  # not Linux
            lines = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()
            if sum(line.endswith(address) for line in lines) > ENDS_OF_A_SOCKET:
                raise KernelStartError("somebody else has connected to the kernel while it started")

    async def _install(self) -> None:
        """Have the kernel make what code finds as `agent`; a fork server has done it already."""
        buffer, clock = CellOutputBuffer(), CellClock(None)
        async for output in self._client.execute(
            _bootstrap(self._spec.mcp_servers, self._audit()), buffer, clock, silent=True
        ):
            if isinstance(output, ExecuteReply) and output.status != "ok":
                raise KernelStartError(
                    f"the kernel could not be prepared ({output.status}): {buffer.text[-LOG_TAIL_CHARS:]}"
                )

    def hand_out(self, handler: HostRequestHandler) -> None:
        """Give a kernel that was started ahead of demand to its agent."""
        self._handler = handler

    async def execute(
        self, code: str, buffer: CellOutputBuffer, clock: CellClock, *, silent: bool = False
    ) -> AsyncGenerator[CellOutput | ExecuteReply, None]:
        """See `Kernel.execute`."""
        outputs = self._client.execute(code, buffer, clock, silent=silent)
        try:
            async for output in outputs:
                yield output
        finally:
            await outputs.aclose()

    async def interrupt(self) -> None:
        """See `Kernel.interrupt`."""
        self._client.interrupt()

    async def wait_lost(self) -> str:
        """See `Kernel.wait_lost`."""
        return await self._client.wait_lost()

    async def send_interrupt(self) -> None:
        """See `KernelConnection`. What the cell waits for at the host ends first, or it would be waited for."""
        await self._bridge.cancel()
        await self._provisioner.send_signal(signal.SIGINT)

    async def kill(self, reason: str) -> None:
        """End the process at once."""
        self._lost = reason
        await self._provisioner.kill()

    def connect(self, channel: str) -> Any:
        """See `KernelConnection`."""
        return getattr(self._manager, f"connect_{channel}")()

    async def aclose(self) -> None:
        """See `Kernel.aclose`."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name=f"close kernel of {self._spec.owner_id}")
        await carry_out(_joined(self._closing))

    def log_tail(self) -> str:
        """The end of what the process wrote to its standard streams."""
        return self._folder.tail(LOG_FILE, LOG_TAIL_CHARS)

    async def _answer(self, method: str, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        return await self._handler(method, params, clock)

    def _on_request(self, content: dict[str, Any], clock: CellClock | None) -> None:
        self._bridge.receive(content, clock)

    def _on_exit(self, exited: asyncio.Future[int]) -> None:
        if not exited.cancelled():
            code = exited.result()
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            self._client.lose(self._lost or f"its process {how}")
            self._branches.lose(self._client.lost_reason or "")

    async def _close(self) -> None:
        lost = self._client.lost_reason is not None
        await self._bridge.aclose()
        self._branches.lose("it was closed")
        await self._provisioner.kill()
        if lost:
            # perhaps its guard was killed with it, and nobody has looked after what its cells had started
            await asyncio.to_thread(self._folder.end_processes)
        await self._client.aclose()
        self._folder.give_up()


async def _joined(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})
    task.result()


def _bootstrap(servers: tuple[str, ...], audit: Mapping[str, Any] | None) -> str:
    """The first, silent cell: makes the guest a package and installs it, leaving no names behind."""
    return (
        "def _freeact_install():\n"
        "    import asyncio, sys\n"
        f"    exec(compile({guest_source()!r}, '<freeact_guest>', 'exec'), {{}})\n"
        "    guest = sys.modules['freeact_guest.agent']\n"
        f"    guest.install(get_ipython(), {list(servers)!r}, asyncio.get_running_loop(), {audit!r})\n"
        "_freeact_install()\n"
        "del _freeact_install\n"
    )
