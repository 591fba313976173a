"""`GuardedProvisioner`: Jupyter's local provisioner, with the process guard between host and kernel.

The seam is Jupyter's own (`jupyter_client.provisioning`), so the kernel stays one that any Jupyter tool can attach to. The
guard (`freeact_sub/guard.py`) is the process that is started; it starts the kernel and ends all that came of it.
"""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

from jupyter_client.provisioning import LocalProvisioner

import freeact_sub.guard

GUARD_COMMAND: Final = (sys.executable, "-I", "-S", str(Path(freeact_sub.guard.__file__)))
KILL_TIMEOUT_SECONDS: Final = 3.0


class GuardedProvisioner(LocalProvisioner):  # type: ignore[misc]  # jupyter_client is not followed by the type checker
    """Starts the kernel through the guard, and ends it through the guard."""

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
        folder = str(Path(self.parent.connection_file).parent)
        kwargs["cmd"] = [*GUARD_COMMAND, str(os.getpid()), "--remove", folder, *kwargs["cmd"]]
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
