"""Jupyter kernel provisioners: `GuardedProvisioner` starts a kernel as a subprocess, `ForkProvisioner` forks it.

The seam is Jupyter's own (`jupyter_client.provisioning`), so a kernel stays one that any Jupyter tool can attach to, and
both can be named in a kernelspec (entry points `freeact-local`, `freeact-fork`).
"""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from jupyter_client.provisioning import KernelProvisionerBase, LocalProvisioner

from freeact_sub.kernels.forkserver import GUARD_COMMAND, ForkKey, ForkServer
from freeact_sub.kernels.sandbox import wall_script

KILL_TIMEOUT_SECONDS: Final = 3.0


class GuardedProvisioner(LocalProvisioner):  # type: ignore[misc]  # jupyter_client is not followed by the type checker
    """Puts the process guard between host and kernel: it starts the kernel and ends all that came of it."""

    folder: Path | None = None
    """The kernel's private folder, which the guard removes where the host has ended and so cannot; None: there is none."""
    wall: Mapping[str, Any] | None = None
    """What the wall around the kernel leaves open (`sandbox.wire`); None: there is no wall."""
    _exit: "asyncio.Future[int] | None" = None
    _pidfd: int | None = None

    def watch_exit(self) -> asyncio.Future[int]:
        """A future with the exit code of the kernel's process; negative for a signal. Asked for again, it is the same."""
        if self._exit is None:
            self._exit = asyncio.get_running_loop().create_future()
            self._pidfd = os.pidfd_open(self.process.pid) if hasattr(os, "pidfd_open") else None
            if self._pidfd is not None:
                asyncio.get_running_loop().add_reader(self._pidfd, self._on_exit)
            else:
                self._poll_exit()
        return self._exit

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Put the guard in front of the kernel's command."""
        kwargs = await super().pre_launch(**kwargs)
        remove = [] if self.folder is None else ["--remove", str(self.folder)]
        python = kwargs["cmd"][0]
        wall = [] if self.wall is None else [python, "-I", "-S", str(wall_script()), json.dumps(self.wall)]
        kwargs["cmd"] = [*GUARD_COMMAND, str(os.getpid()), *remove, *wall, *kwargs["cmd"]]
        self._exit = self._pidfd = None
        return kwargs

    async def kill(self, restart: bool = False) -> None:  # noqa: ARG002  # the signature is Jupyter's
        """Tell the guard to end everything; only if it does not, kill the group itself."""
        if self.process is None:
            return
        ended = self.watch_exit()
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        done, _ = await asyncio.wait({ended}, timeout=KILL_TIMEOUT_SECONDS)
        if not done:
            await self.send_signal(signal.SIGKILL)
            await asyncio.wait({ended}, timeout=KILL_TIMEOUT_SECONDS)

    terminate = kill

    def _on_exit(self) -> None:
        if self._pidfd is not None:
            # before the close: a number that is used again while registered is never polled
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        if self._exit is not None and not self._exit.done():
            self._exit.set_result(self.process.wait())

    def _poll_exit(self) -> None:
        if self.process.poll() is None:
            asyncio.get_running_loop().call_later(0.1, self._poll_exit)
        else:
            self._on_exit()


class ForkProvisioner(KernelProvisionerBase):  # type: ignore[misc]  # jupyter_client is not followed by the type checker
    """Has a kernel forked by a fork server."""

    server: ForkServer | None = None
    """The server to fork from, set before the kernel is started; None: one that all such kernels of this loop share."""
    servers: tuple[str, ...] | None = None
    """Names of the MCP servers that code finds under `agent.mcp`; None: it finds no `agent`."""
    audit: Mapping[str, Any] | None = None
    """What code does without asking (`guest/hook.py`); None: it does not ask."""
    wall: Mapping[str, Any] | None = None
    """See `GuardedProvisioner`."""
    pid: int | None = None
    exited: asyncio.Future[int] | None = None
    """The kernel's exit code, when it has ended; None: it was not started."""
    connection_info: dict[str, Any]

    @property
    def has_process(self) -> bool:
        """See Jupyter."""
        return self.pid is not None

    def watch_exit(self) -> asyncio.Future[int]:
        """A future with the exit code of the kernel's process; negative for a signal."""
        if self.exited is None:
            raise RuntimeError("the kernel was not started")
        return self.exited

    async def poll(self) -> int | None:
        """See Jupyter."""
        return self.exited.result() if self.exited is not None and self.exited.done() else None

    async def wait(self) -> int | None:
        """See Jupyter."""
        if self.exited is None:
            return 0
        code = await asyncio.shield(self.exited)
        self.pid = None
        return code

    async def send_signal(self, signum: int) -> None:
        """See Jupyter."""
        if self.pid is not None and self.exited is not None and not self.exited.done():
            # not through the server: a signal that arrives late would interrupt the next cell
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signum)

    async def kill(self, restart: bool = False) -> None:  # noqa: ARG002  # the signature is Jupyter's
        """End the kernel and all that it has started."""
        if self.server is not None and self.pid is not None and self.exited is not None and not self.exited.done():
            self.server.end(self.pid)
            await asyncio.wait({self.exited}, timeout=KILL_TIMEOUT_SECONDS)

    terminate = kill

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """See Jupyter."""
        self.exited = None
        manager = self.parent
        manager.write_connection_file()
        self.connection_info = manager.get_connection_info()
        return dict(await super().pre_launch(cmd=manager.format_kernel_cmd(), **kwargs))

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> dict[str, Any]:
        """Fork the kernel; returns when its sockets are bound, so that no client waits for a second attempt to connect."""
        environment = dict(kwargs["env"])
        if self.server is None:
            self.server = await _shared_server(ForkKey(python=cmd[0], environment=tuple(sorted(environment.items()))))
        self.pid, self.exited = await self.server.start(
            {
                "connection_file": self.parent.connection_file,
                "cwd": str(kwargs.get("cwd") or Path.cwd()),
                "environment": environment,
                "log": getattr(kwargs.get("stdout"), "name", os.devnull),
                "umask": _umask(),
                "servers": self.servers,
                "audit": self.audit,
                "wall": self.wall,
            }
        )
        return self.connection_info

    async def cleanup(self, restart: bool = False) -> None:
        """See Jupyter."""
        if not restart:
            Path(f"{self.parent.connection_file}-forks").unlink(missing_ok=True)  # noqa: ASYNC240  # one small file


_shared_servers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ForkKey, asyncio.Task[ForkServer]]] = WeakKeyDictionary()


async def _shared_server(key: ForkKey) -> ForkServer:
    """For kernels that other Jupyter programs start by a kernelspec: a server that lasts as long as the program."""
    servers = _shared_servers.setdefault(asyncio.get_running_loop(), {})
    if key not in servers:
        servers[key] = asyncio.create_task(_opened(ForkServer(key)), name="start fork server")
    return await asyncio.shield(servers[key])


async def _opened(server: ForkServer) -> ForkServer:
    try:
        await server.open()
    except BaseException:
        await server.aclose()
        raise
    return server


def _umask() -> int:
    """This process's file mode mask; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
