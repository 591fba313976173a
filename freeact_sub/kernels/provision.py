"""`GuardedProvisioner`: starts a kernel as a subprocess behind the process guard.

The seam is Jupyter's own (`jupyter_client.provisioning`), so a kernel stays one that any Jupyter tool can attach to, and a
kernelspec can name the provisioner (entry point `freeact-local`; `freeact-fork` is in `forkserver/provisioner.py`).
"""

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from jupyter_client.provisioning import LocalProvisioner
from traitlets import Dict, Unicode

from freeact_sub.kernels.wall.sandbox import wall_script
from freeact_sub.system.closing import end_guarded, end_with_loop, forget
from freeact_sub.system.guard import ENDING, GUARD_COMMAND, open_pidfd

KILL_TIMEOUT_SECONDS: Final = 3.0


class GuardedProvisioner(LocalProvisioner):  # type: ignore[misc]  # jupyter_client is not followed by the type checker
    """A provisioner with the process guard between host and kernel. The guard ends the kernel with its descendants."""

    folder: str | None = Unicode(default_value=None, allow_none=True)
    """The kernel's private folder, which the guard removes if the host has ended."""
    wall: Mapping[str, Any] | None = Dict(default_value=None, allow_none=True)
    """The openings of the kernel's wall (`sandbox.wire`)."""
    _exit: "asyncio.Future[int] | None" = None
    _pidfd: int | None = None

    def watch_exit(self) -> asyncio.Future[int]:
        """Returns a future with the exit code of the kernel's process; negative for a signal. Each call returns the same."""
        if self._exit is None:
            end_with_loop(self.end_guard)
            self._exit = asyncio.get_running_loop().create_future()
            self._pidfd = open_pidfd(self.process.pid)
            if self._pidfd is not None:
                asyncio.get_running_loop().add_reader(self._pidfd, self._on_exit)
            else:
                self._poll_exit()
        return self._exit

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Puts the guard in front of the kernel's command."""
        kwargs = await super().pre_launch(**kwargs)
        remove = [] if self.folder is None else ["--remove", self.folder]
        python = kwargs["cmd"][0]
        wall = [] if self.wall is None else [python, "-I", "-S", str(wall_script()), json.dumps(self.wall)]
        kwargs["cmd"] = [*GUARD_COMMAND, str(os.getpid()), *remove, *wall, *kwargs["cmd"]]
        self._exit = self._pidfd = None
        return kwargs

    async def kill(self, restart: bool = False) -> None:  # noqa: ARG002  # the signature is Jupyter's
        """Ends the kernel with its descendants, by the guard."""
        if self.process is not None:
            await end_guarded(self.process, self.watch_exit(), timeout_seconds=KILL_TIMEOUT_SECONDS)

    terminate = kill

    def end_guard(self) -> None:
        """Ends the kernel by the guard and removes its folder, where a loop ended without closing it; waits for it."""
        if self.folder is not None:
            with contextlib.suppress(OSError):
                Path(self.folder, ENDING).touch()
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(KILL_TIMEOUT_SECONDS)

    def _on_exit(self) -> None:
        forget(self.end_guard)
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
