"""`CopyLauncher`: starts a kernel as a copy of the one that this process is."""

import asyncio
import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from freeact_sub.errors import KernelStartError
from freeact_sub.kernels.copies.safety import unsafe
from freeact_sub.kernels.forkserver.branches import choose_connection
from freeact_sub.kernels.guest import compiled_guest
from freeact_sub.kernels.kernel import KernelSpec
from freeact_sub.kernels.launch import private_environment
from freeact_sub.kernels.local import LOG_FILE, LocalLauncher
from freeact_sub.kernels.wire.channels import KernelChannels, ZmqContext
from freeact_sub.system.guard import GUARD_COMMAND
from freeact_sub.system.private_folders import KernelFolder

KILL_SECONDS: Final = 3.0


class CopyLauncher(LocalLauncher):
    """Forks this process. Its folder outlives the copy: the next copy of the same agent has it too."""

    has_guest = True

    def __init__(
        self, spec: KernelSpec, context: ZmqContext, folder: KernelFolder, app: Any, forget: Callable[[], None]
    ) -> None:
        """Args: app: the `IPKernelApp` of this process. forget: called in the copy, takes out what runs agents here."""
        super().__init__(spec, context, folder)
        self._app = app
        self._forget = forget
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
        if reason := unsafe(self._app):
            raise KernelStartError(reason)
        fork_copy, become_copy = _forking()
        loop = asyncio.get_running_loop()
        private = private_environment(self.spec, self.scratch)
        request = {
            "connection": choose_connection(self._manager),
            "connection_file": self._manager.connection_file,
            "attach": False,
            "log": str(self.folder.path / LOG_FILE),
            "environment": {**environment, **private},
            "folders": list(private.values()),
            "cwd": str(self.spec.workspace),
            "wall": self.wall,
            "servers": self.spec.mcp_servers,
            "skills": [asdict(module) for module in self.spec.skills],
            "audit": self.spec.hook_settings(self.scratch),
        }
        compiled_guest()  # for the copy, which then need not do it
        guard = [*GUARD_COMMAND, str(os.getpid()), "--remove", str(self.folder.path)]
        self._guard, self._copy = fork_copy(partial(become_copy, self._app, loop, request, self._forget), guard)
        self._ended = loop.create_future()
        self._watch()
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

    def _watch(self) -> None:
        """Learns of the end of the guard, which is a child of this process."""
        loop, guard, ended = asyncio.get_running_loop(), self._guard, self._ended
        assert guard is not None  # it has just been forked
        assert ended is not None
        descriptor = os.pidfd_open(guard)

        def on_end() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            code = -signal.SIGKILL
            with contextlib.suppress(ChildProcessError):  # the user's own code may have been quicker
                code = os.waitstatus_to_exitcode(os.waitpid(guard, 0)[1])
            if not ended.done():
                ended.set_result(code)

        loop.add_reader(descriptor, on_end)


def _forking() -> tuple[Any, Any]:
    """`fork_copy` and `become_copy`, which are made for Linux and use names that another ipykernel may not have.

    Raises:
        KernelStartError: It has not.
    """
    try:
        forking: Any = importlib.import_module("freeact_sub.kernels.copies.forking")
        becoming: Any = importlib.import_module("freeact_sub.kernels.copies.becoming")
    except (ImportError, AttributeError, TypeError) as error:
        raise KernelStartError(f"this ipykernel is built differently: {error}") from error
    return forking.fork_copy, becoming.become_copy


def kernel_app() -> Any | None:
    """The `IPKernelApp` of this process. None: it is no Jupyter kernel of ipykernel."""
    module = sys.modules.get("ipykernel.kernelapp")
    return module.IPKernelApp.instance() if module is not None and module.IPKernelApp.initialized() else None
