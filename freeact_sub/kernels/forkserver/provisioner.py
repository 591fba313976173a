"""`ForkProvisioner`: kernels that other Jupyter programs start by a kernelspec are forked (entry point `freeact-fork`).

The traits stand in `kernel.json` (`metadata.kernel_provisioner.config`) and so come from the person who runs that
program: nothing in the request for a kernel can widen them. `cli/serving.py` writes such a file.
"""

import asyncio
import atexit
import contextlib
import os
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from jupyter_client.provisioning import KernelProvisionerBase
from traitlets import Dict, List, Unicode

from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels.forkserver.branches import connection_of
from freeact_sub.kernels.forkserver.process import ForkKey, ForkServer, ServedKernel
from freeact_sub.kernels.kernel import KernelSpec
from freeact_sub.kernels.launch import private_environment
from freeact_sub.kernels.wall import sandbox
from freeact_sub.system.private_folders import VARIABLE, KernelFolder, make_folder, sweep

KILL_TIMEOUT_SECONDS: Final = 3.0
OF_ONE_KERNEL: Final = ("KERNEL_", "JPY_")
"""Beginnings of the variables that programs set for each kernel; they are no reason for another fork server."""


class ForkProvisioner(KernelProvisionerBase):  # type: ignore[misc]  # jupyter_client is not followed by the type checker
    """A provisioner that forks kernels by a fork server, which all such kernels of this loop share."""

    preload: list[str] = List(Unicode())
    """Modules that each kernel finds imported."""
    wall: dict[str, Any] | None = Dict(default_value=None, allow_none=True)
    """The wall around each kernel: `mode`, `workspace` (None: its own folder) and the settings of `kernel` that a wall
    has, such as `network`. None: no wall."""
    servers: list[str] | None = List(Unicode(), default_value=None, allow_none=True)
    """Names of MCP servers of `agent`. None: code finds no `agent`, until a client installs it."""
    audit: dict[str, Any] | None = Dict(default_value=None, allow_none=True)
    """The actions that code takes without asking (`guest/hook.py`). None: it asks about none."""

    _server: ForkServer | None = None
    _folder: KernelFolder | None = None
    """The folder of the kernel's sockets; behind a wall, all that the kernel may write. Given up when the kernel ends."""
    pid: int | None = None
    """The kernel's process; None: not started, or its end is known to the caller of `wait`."""
    exited: asyncio.Future[int] | None = None
    """The kernel's exit code, when it has ended."""
    connection_info: dict[str, Any]

    @property
    def has_process(self) -> bool:
        """Whether the kernel has a process."""
        return self.pid is not None

    async def poll(self) -> int | None:
        """Returns the exit code, once the kernel has ended."""
        return self.exited.result() if self.exited is not None and self.exited.done() else None

    async def wait(self) -> int | None:
        """Waits for the kernel's end, and returns the exit code."""
        if self.exited is None:
            return 0
        code = await asyncio.shield(self.exited)
        self.pid = None
        return code

    async def send_signal(self, signum: int) -> None:
        """Sends a signal to the kernel's process group."""
        if self.pid is not None and self.exited is not None and not self.exited.done():
            # not through the server: a signal that arrives late would interrupt the next cell
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signum)

    async def kill(self, restart: bool = False) -> None:  # noqa: ARG002  # the signature is Jupyter's
        """Ends the kernel and everything it has started."""
        if self._server is not None and self.pid is not None and self.exited is not None and not self.exited.done():
            self._server.end(self.pid)
            await asyncio.wait({self.exited}, timeout=KILL_TIMEOUT_SECONDS)

    terminate = kill

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Makes the kernel's folder and connection file; returns the arguments of `launch_kernel`."""
        self.exited = None
        manager = self.parent
        # clients of a kernel that is restarted find it at the same address
        self._folder = KernelFolder(make_folder(self._folder.path if self._folder else None))
        # Jupyter looks for free ports and lets go of them again: two kernels that start at once may get the same one
        manager.transport, manager.ip = "ipc", str(self._folder.path / "k")
        if self.wall is not None:  # nobody but this kernel reads the key
            manager.connection_file = str(self._folder.path / "kernel.json")
        # as Jupyter does for its own: by the session, programs find the kernel of a notebook
        manager.write_connection_file(jupyter_session=kwargs.get("env", {}).get("JPY_SESSION_NAME", ""))
        self.connection_info = manager.get_connection_info()
        return dict(await super().pre_launch(cmd=manager.format_kernel_cmd(), **kwargs))

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> dict[str, Any]:
        """Forks the kernel; returns when its sockets are bound, so that no client waits for a second attempt to connect."""
        if (folder := self._folder) is None:
            raise RuntimeError("Jupyter calls pre_launch before launch_kernel")
        try:
            kernel = await self._launch(cmd[0], folder.path, **kwargs)
        except BaseException:
            folder.give_up()
            raise
        self.pid, self.exited = kernel.pid, kernel.ended
        # programs do not clean up after a kernel that has died
        self.exited.add_done_callback(lambda _: folder.give_up())
        return self.connection_info

    async def _launch(self, python: str, folder: Path, **kwargs: Any) -> ServedKernel:
        environment = dict(kwargs["env"])
        common = tuple(sorted(item for item in environment.items() if not item[0].startswith(OF_ONE_KERNEL)))
        key = ForkKey(python=python, preload=tuple(self.preload), environment=common)
        self._server = await _shared_server(key)
        cwd = Path(kwargs.get("cwd") or Path.cwd())
        wall = None
        if self.wall is not None:
            cwd, wall = await asyncio.to_thread(_built, dict(self.wall), python, environment, folder)
        return await self._server.start(
            {
                "connection": connection_of(self.parent),
                "connection_file": self.parent.connection_file,
                "attach": False,  # the connection file is written already
                "cwd": str(cwd),
                "environment": environment,
                "log": getattr(kwargs.get("stdout"), "name", os.devnull),
                "servers": self.servers,
                "audit": self.audit,
                "wall": wall,
            }
        )

    async def cleanup(self, restart: bool = False) -> None:  # noqa: ARG002  # the signature is Jupyter's
        """Gives up the kernel's folder; a kernel that was not launched has one too."""
        if self._folder is not None:
            self._folder.give_up()


_shared_servers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ForkKey, asyncio.Task[ForkServer]]] = WeakKeyDictionary()


async def _shared_server(key: ForkKey) -> ForkServer:
    """Returns the server for kernels of kernelspecs; it lasts as long as the program."""
    servers = _shared_servers.setdefault(asyncio.get_running_loop(), {})
    known = servers.get(key)
    if known is None or (known.done() and (known.cancelled() or known.exception() is not None or not known.result().alive)):
        servers[key] = asyncio.create_task(_opened(ForkServer(key)), name="start fork server")
    return await asyncio.shield(servers[key])


async def _opened(server: ForkServer) -> ForkServer:
    try:
        await asyncio.to_thread(sweep)  # folders of a program that was killed
        await server.open()
        atexit.register(server.end_with_program)
    except BaseException:
        await server.aclose()
        raise
    return server


def _built(
    settings: dict[str, Any], python: str, environment: dict[str, str], folder: Path
) -> tuple[Path, dict[str, Any] | None]:
    """Makes the folders and the wall of a kernel, as `LocalLauncher` does.

    Args:
        settings: See `ForkProvisioner.wall`.
        python: The kernel's Python.
        environment: The kernel's environment; private variables are added.
        folder: The kernel's own folder.

    Returns:
        The working directory, and the openings of the wall.
    """
    scratch = folder / "tmp"
    scratch.mkdir(exist_ok=True)
    workspace = Path(settings.pop("workspace", None) or scratch)
    mode = settings.pop("mode", "auto")
    policy = sandbox.policy_for(mode, KernelConfig(python=python, **settings), workspace)
    spec = KernelSpec(owner_id="", python=python, workspace=workspace, environment=environment, sandbox=policy)
    private = private_environment(spec, scratch)
    for path in private.values():
        Path(path).mkdir(parents=True, exist_ok=True)
    environment |= {**private, VARIABLE: str(folder)}
    if policy is None:
        return workspace, None
    machine, kept = sandbox.look(policy)
    sandbox.check(policy, machine, kept)
    return workspace, sandbox.wire(policy, machine, folder, workspace, kept)
