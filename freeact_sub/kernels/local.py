"""Kernels of this machine: `LocalKernelProvider` starts each as a subprocess; `forkserver/` forks them.

Each kernel has its own folder (mode 0700) with its connection file, its sockets and its log: another kernel's key can
not be read from it. No TCP port serves a kernel.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from jupyter_client.kernelspec import KernelSpec as JupyterKernelSpec
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.session import Session
from zmq.constants import DEALER, SUB
from zmq.sugar.context import Context

from freeact_sub.config.schema import KernelConfig
from freeact_sub.errors import KernelBranchError, KernelStartError
from freeact_sub.kernels.files import OwnFiles
from freeact_sub.kernels.forkserver.branches import Branches
from freeact_sub.kernels.jupyter import JupyterKernel
from freeact_sub.kernels.kernel import AuditSettings, HostRequestHandler, KernelPlace, KernelSpec
from freeact_sub.kernels.launch import Launcher, home_of, make_private_folders, private_environment
from freeact_sub.kernels.provision import GuardedProvisioner
from freeact_sub.kernels.wall import sandbox
from freeact_sub.kernels.wall.repositories import Repositories
from freeact_sub.kernels.wall.sandbox import Gaps
from freeact_sub.kernels.wire.channels import CHANNELS, ChannelName, KernelChannels, ZmqChannels, ZmqContext, ZmqSocket
from freeact_sub.modes import Mode
from freeact_sub.pythons.about import for_model, lent
from freeact_sub.system.private_folders import VARIABLE, KernelFolder, make_folder, sweep
from freeact_sub.system.process import missing_for_forks

KERNEL_ARGUMENTS: Final = ("--HistoryManager.enabled=False",)
"""The agent keeps its own history; IPython's costs a database and a thread."""
RECONNECT_MILLISECONDS: Final = 10
"""The client connects before the kernel has bound its sockets, and would wait out the default of 100 ms."""
CONNECTION_FILE: Final = "kernel.json"
LOG_FILE: Final = "kernel.log"
LOG_TAIL_CHARS: Final = 2000
ENDS_OF_A_SOCKET: Final = 2
"""Sockets at the address of a kernel with one connection: the listening one, and the kernel's end of the connection."""

logger = logging.getLogger(__name__)


class _Manager(AsyncKernelManager):  # type: ignore[misc]  # jupyter_client is typed in part only
    """A manager whose kernelspec is given: a user's own `python3` must not be picked up."""

    spec: JupyterKernelSpec | None = None

    @property
    def kernel_spec(self) -> JupyterKernelSpec | None:
        """The given kernelspec."""
        return self.spec


class LocalLauncher(Launcher, Protocol):
    """A launcher of this machine, with the parts that all of them share: a folder for the kernel's sockets, and a wall."""

    has_guest: bool = False
    greets: bool = False
    exited: asyncio.Future[str] | None = None
    spec: KernelSpec
    context: ZmqContext
    folder: KernelFolder
    wall: Mapping[str, Any] | None = None
    """The openings of the started kernel's wall (`sandbox.wire`)."""
    kept: Repositories = sandbox.NOTHING_KEPT
    """The paths in writable folders that the wall protects."""
    _manager: "_Manager"

    def __init__(self, spec: KernelSpec, context: ZmqContext, folder: KernelFolder) -> None:
        self.spec, self.context, self.folder = spec, context, folder
        self._manager = _Manager(
            transport="ipc",
            ip=str(folder.path / "k"),
            session=Session(key=secrets.token_hex(32).encode()),
        )
        self._manager.connection_file = str(folder.path / CONNECTION_FILE)

    @property
    def own_files(self) -> OwnFiles | None:
        """The kernel's copy of the workspace, if any."""
        return None

    @property
    def scratch(self) -> Path:
        """The kernel's own writable folder."""
        return self.folder.path / "tmp"

    _process: tuple[int, asyncio.Future[int]] | None = None
    """The process id of a forked kernel, and a future that is done when it has ended."""

    @property
    def pid(self) -> int | None:
        """Process id of the kernel, or of its guard: the leader of its process group."""
        return None if self._process is None else self._process[0]

    async def interrupt(self) -> None:
        """Interrupts the kernel."""
        if self._process is not None and not self._process[1].done():
            # not through a server or a guard: a signal that arrives late would interrupt the next cell
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process[0], signal.SIGINT)

    async def settle(self) -> None:
        """Removes the key and the sockets after connecting, so that no other process can connect.

        Raises:
            KernelStartError: Somebody else connected first.
        """
        if self.spec.sandbox is None:
            return
        for name in (CONNECTION_FILE, *(name for name in self.folder.names() if name.startswith("k-"))):
            self.folder.remove_file(name)
        ends = _ends_of({self._address(channel): channel for channel in CHANNELS})
        # any subscriber to iopub reads the output; the other sockets do nothing without the key
        if ends["iopub"] > ENDS_OF_A_SOCKET:
            raise KernelStartError("another process connected to the kernel while it started")
        if ends and any(ends[channel] < ENDS_OF_A_SOCKET for channel in CHANNELS):  # it never will be: its address is gone
            raise KernelStartError("a channel of the kernel was not connected while it started")

    async def aclose(self, *, lost: bool) -> None:
        """Gives up the kernel's folder, after `kill`. Args: lost: the process had ended by itself."""
        if lost:
            # perhaps its guard was killed with it, so nobody ended what its cells had started
            await asyncio.to_thread(self.folder.end_processes)
        self.folder.give_up()

    def log_tail(self) -> str:
        """Returns the tail of the kernel's log."""
        return self.folder.tail(LOG_FILE, LOG_TAIL_CHARS)

    def branch(self, spec: KernelSpec, branches: Branches) -> Launcher:
        """Raises KernelBranchError: only a forked kernel can be branched."""
        del spec, branches
        why = f"this system has no {lacks}" if (lacks := missing_for_forks()) else "it needs kernel.provider = 'fork'"
        raise KernelBranchError(f"only a forked kernel can be branched: {why}")

    async def _prepare(self) -> dict[str, str]:
        """Makes the kernel's folders and its wall, and returns the environment of its process."""
        environment = {**self.spec.environment, VARIABLE: str(self.folder.path)}
        if self.spec.sandbox is not None or self.spec.audit is not None:
            private = private_environment(self.spec, self.scratch)
            make_private_folders(private, home_of(self.spec))  # small, in memory or on a local disk
            environment |= private
        if self.spec.sandbox is not None:
            machine, self.kept = await asyncio.to_thread(sandbox.look, self.spec.sandbox)
            self.wall = sandbox.wire(self.spec.sandbox, machine, self.folder.path, self.spec.workspace, self.kept)
        return environment

    def _started(self, exited: asyncio.Future[int]) -> KernelChannels:
        """Notes the running process. Args: exited: receives its exit code, negative for a signal."""
        ended = self.exited = asyncio.get_running_loop().create_future()

        def report(exited: asyncio.Future[int]) -> None:
            if not (exited.cancelled() or ended.done()):
                code = exited.result()
                how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
                ended.set_result(f"its process {how}")

        exited.add_done_callback(report)
        return ZmqChannels(self._manager.session, {channel: self._connected(channel) for channel in CHANNELS})

    def _connected(self, channel: ChannelName) -> ZmqSocket:
        """Connects a socket as the manager does, whose sockets are those of `zmq.asyncio`."""
        socket = self.context.socket(SUB if channel == "iopub" else DEALER)
        socket.sndhwm = 0  # messages wait for the kernel, however many
        if channel == "iopub":
            socket.subscribe(b"")
        socket.connect(f"ipc://{self._address(channel)}")
        return socket

    def _address(self, channel: ChannelName) -> str:
        manager: Any = self._manager
        return f"{manager.ip}-{getattr(manager, f'{channel}_port')}"


class SubprocessLauncher(LocalLauncher):
    """A launcher of a kernel as a subprocess, by Jupyter's manager."""

    _provisioner: GuardedProvisioner | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the kernel's guard."""
        pid: int | None = None if self._provisioner is None else self._provisioner.pid
        return pid

    async def launch(self) -> KernelChannels:
        """Starts the process."""
        needs = await lent(self.spec.python)
        environment = await self._prepare()
        kernel_spec = JupyterKernelSpec(
            argv=[
                self.spec.python,
                str(sandbox.START),
                *([needs.wire()] if needs else ()),
                *KERNEL_ARGUMENTS,
                "-f",
                "{connection_file}",
            ],
            language="python",
            display_name="freeact-sub",
        )
        provisioner = self._provisioner = GuardedProvisioner(
            kernel_id=self.spec.owner_id,
            kernel_spec=kernel_spec,
            parent=self._manager,
            folder=str(self.folder.path),
            wall=self.wall,
        )
        self._manager.spec = kernel_spec
        self._manager.provisioner = provisioner
        with (self.folder.path / LOG_FILE).open("ab") as log:
            command, options = await self._manager.pre_start_kernel(
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=str(self.spec.workspace), env=environment
            )
            # besides, `start_kernel` would open a control socket of its own and sleep for 10 ms
            await provisioner.launch_kernel(command, **options)
        return self._started(provisioner.watch_exit())

    async def interrupt(self) -> None:
        """Interrupts the kernel."""
        if self._provisioner is not None:
            await self._provisioner.send_signal(signal.SIGINT)

    async def kill(self) -> None:
        """Ends the process and everything it has started."""
        if self._provisioner is not None:
            await self._provisioner.kill()


class LocalKernel(JupyterKernel):
    """A kernel of this machine."""

    def __init__(self, spec: KernelSpec, launcher: LocalLauncher, handler: HostRequestHandler) -> None:
        super().__init__(spec, launcher, handler)
        self.launcher = launcher

    @property
    def pid(self) -> int | None:
        """Process id of the kernel, or of its guard."""
        return self.launcher.pid

    @property
    def connection_file(self) -> Path:
        """The file for other Jupyter clients: `jupyter console --existing FILE`."""
        return self.launcher.folder.path / CONNECTION_FILE


class LocalKernelProvider:
    """A provider that starts each kernel as a subprocess."""

    def __init__(self, *, on_notice: Callable[[str], None] | None = None) -> None:
        """Args: on_notice: called once with the gaps of a kernel's sandbox on this machine. Default: a log entry."""
        self._gaps = Gaps(on_notice or logger.warning)
        self._context: ZmqContext = Context()
        self._context.reconnect_ivl = RECONNECT_MILLISECONDS
        sweep()

    def place(self, mode: Mode, settings: KernelConfig, workspace: Path) -> KernelPlace:
        """Describes this machine as the place of kernels."""
        return local_place(mode, settings, workspace)

    def hook(self, settings: AuditSettings) -> AuditSettings | None:
        """Returns the settings: all that the rules allow."""
        return settings

    async def start(self, spec: KernelSpec, handler: HostRequestHandler, *, gaps: Gaps | None = None) -> LocalKernel:
        """Starts a kernel. Args: gaps: tells of the wall's gaps; None: the provider's own."""
        await (gaps or self._gaps).check(spec)
        return await self._start_subprocess(spec, handler)

    async def aclose(self) -> None:
        """Closes the sockets to all kernels."""
        self._context.destroy(linger=0)

    async def _start_subprocess(self, spec: KernelSpec, handler: HostRequestHandler) -> LocalKernel:
        launcher = SubprocessLauncher(spec, self._context, KernelFolder(make_folder()))
        return await LocalKernel(spec, launcher, handler).open()


def local_place(mode: Mode, settings: KernelConfig, workspace: Path) -> KernelPlace:
    """Describes this machine as the place of kernels; see `KernelProvider.place`."""
    wall = sandbox.policy_for(mode, settings, workspace)
    description = f"Its working directory is {workspace}. {for_model(settings.python)}".strip()
    return KernelPlace(wall=wall, environment=settings.environment(), description=description)


def _ends_of(addresses: Mapping[str, ChannelName]) -> Counter[ChannelName]:
    """Returns how many sockets of this machine have the path of each channel; nothing if that is unknown."""
    with contextlib.suppress(FileNotFoundError):  # not Linux
        lines = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()
        ours = tuple(f" {address}" for address in addresses)
        return Counter(addresses[line.split(maxsplit=7)[7]] for line in lines if line.endswith(ours))
    return Counter()
