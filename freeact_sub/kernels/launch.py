"""`Launcher`: where the process of one kernel comes from, and the power over it; all that differs from place to place."""

import asyncio
from pathlib import Path
from typing import Protocol

from freeact_sub.kernels.channels import KernelChannels
from freeact_sub.kernels.forkserver.branches import Branches
from freeact_sub.kernels.kernel import KernelSpec
from freeact_sub.kernels.workspaces import OwnFiles


class Launcher(Protocol):
    """Starts one kernel, once."""

    has_guest: bool
    """What code finds as `agent` is in the kernel from its start; False: a first cell installs it."""
    exited: asyncio.Future[str] | None
    """How the process has ended, as the end of a sentence, once it has; None: it was not started."""

    @property
    def own_files(self) -> OwnFiles | None:
        """See `Kernel`."""
        ...

    @property
    def scratch(self) -> Path | None:
        """See `Kernel`."""
        ...

    async def launch(self) -> KernelChannels:
        """Starts the process. It need not be ready: the client waits for it.

        Raises:
            KernelStartError: It cannot be started; the message says why.
        """
        ...

    async def settle(self) -> None:
        """Called once when the kernel is ready, before anybody's code runs in it.

        Raises:
            KernelStartError: It is not what it should be.
        """
        ...

    async def interrupt(self) -> None:
        """Delivers an interrupt to what the kernel is doing."""
        ...

    async def kill(self) -> None:
        """Ends the process and everything it has started, within a few seconds. Can be called again, and before `launch`."""
        ...

    async def aclose(self, *, lost: bool) -> None:
        """Removes what is left, after `kill`. Args: lost: the process had ended by itself."""
        ...

    def log_tail(self) -> str:
        """The end of what the process wrote to its standard streams, as far as it can be read."""
        ...

    def branch(self, spec: KernelSpec, branches: Branches) -> "Launcher":
        """What starts a branch of the kernel, which is alive.

        Args:
            spec: Of the branch.
            branches: Of the kernel; they have it fork itself.

        Raises:
            KernelBranchError: The kernel cannot be branched; the message says why.
        """
        ...
