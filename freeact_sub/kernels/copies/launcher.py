"""`CopyLauncher`: starts a kernel as a copy of a notebook's kernel, which is another process than this one (`Origin`)."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final, Protocol

from freeact_sub.kernels.forkserver.branches import choose_connection
from freeact_sub.kernels.kernel import KernelSpec
from freeact_sub.kernels.launch import private_environment
from freeact_sub.kernels.local import LOG_FILE, LocalLauncher
from freeact_sub.kernels.wire.channels import KernelChannels, ZmqContext
from freeact_sub.system.private_folders import KernelFolder

KILL_SECONDS: Final = 3.0


class Origin(Protocol):
    """The notebook's kernel, as the process of its agents knows it. Its end is `CopyMaker` (`making.py`)."""

    async def fork(self, request: Mapping[str, Any]) -> tuple[int, int]:
        """Forks a copy. Args: request: see `become_copy`. Returns the process ids of its guard and of the copy.

        Raises:
            KernelStartError: It cannot be copied now; the message says why.
        """
        ...

    async def exit_code(self, guard: int) -> int:
        """Waits for the end of a guard. Returns its exit code, negative for a signal."""
        ...


class CopyLauncher(LocalLauncher):
    """Has the notebook's kernel fork. Its folder outlives the copy: the next copy of the same agent has it too."""

    has_guest = True

    def __init__(self, spec: KernelSpec, context: ZmqContext, folder: KernelFolder, origin: Origin) -> None:
        """Args: origin: the kernel that is copied."""
        super().__init__(spec, context, folder)
        self._origin = origin
        self._copy: int | None = None
        self._guard: int | None = None
        self._ended: asyncio.Future[int] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the copy, the leader of its process group."""
        return self._copy

    async def launch(self) -> KernelChannels:
        """See `Launcher`."""
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
        self._guard, self._copy = await self._origin.fork(request)
        self._ended = asyncio.ensure_future(self._origin.exit_code(self._guard))
        return self._started(self._ended)

    async def interrupt(self) -> None:
        """See `Launcher`."""
        if self._copy is not None and self._ended is not None and not self._ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._copy, signal.SIGINT)

    async def kill(self) -> None:
        """See `Launcher`."""
        if self._guard is None or self._ended is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self._ended.done():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._guard, number)
                await asyncio.wait({self._ended}, timeout=KILL_SECONDS)

    async def aclose(self, *, lost: bool) -> None:
        """See `Launcher`. The folder belongs to whoever gave it."""
        if lost:
            await asyncio.to_thread(self.folder.end_processes)
