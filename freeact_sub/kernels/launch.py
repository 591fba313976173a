"""`Launcher`: starts, interrupts and kills the process of one kernel; all differences between places are here."""

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
    """Whether `agent` exists in the kernel from the start. False: a first cell installs it."""
    greets: bool
    """Whether the kernel greets a subscriber to iopub, and not before it is ready for a cell (`KernelClient.open`)."""
    exited: asyncio.Future[str] | None
    """Set to the reason when the process has ended. None: it was not started."""

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
        """Called once when the kernel is ready, before any code runs in it.

        Raises:
            KernelStartError: The kernel does not work as expected.
        """
        ...

    async def interrupt(self) -> None:
        """Interrupts the kernel."""
        ...

    async def kill(self) -> None:
        """Ends the process and everything it has started, within a few seconds. Can be called again, and before `launch`."""
        ...

    async def aclose(self, *, lost: bool) -> None:
        """Removes the kernel's files, after `kill`. Args: lost: the process had ended by itself."""
        ...

    def log_tail(self) -> str:
        """Returns the tail of the process's standard streams, if it can be read."""
        ...

    def branch(self, spec: KernelSpec, branches: Branches) -> "Launcher":
        """Returns a launcher for a branch of the live kernel.

        Args:
            spec: The settings of the branch.
            branches: The branches of the kernel; they have it fork itself.

        Raises:
            KernelBranchError: The kernel cannot be branched; the message says why.
        """
        ...
