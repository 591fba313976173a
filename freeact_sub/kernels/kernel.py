"""The two protocols between agents and the places where code runs: `Kernel` and `KernelProvider`."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from freeact_sub.cells import CellOutput, ExecuteReply
from freeact_sub.kernels.output import CellClock, CellOutputBuffer
from freeact_sub.kernels.sandbox import SandboxPolicy

HostRequestHandler: TypeAlias = Callable[[str, Mapping[str, Any], CellClock | None], Awaitable[Any]]
"""Answers what code in a kernel asks of its host: method, parameters and the clock of the cell that asks (None where no
cell runs) to a value that JSON can carry. What it raises is raised in the kernel. The value may be an asynchronous
generator: the texts that it yields are shown in the cell as they come, and its last item, no text, is the value."""


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """What the audit hook in a kernel lets pass; all else that it sees is asked for (`check` requests)."""

    writable: tuple[Path, ...] = ()
    """Folders in which code writes unasked, besides the kernel's own."""
    asked: tuple[tuple[str, str], ...] = ()
    """What is asked for in them all the same: regular expressions of a folder, with its last `/`, and of a name in it."""
    no_network: str = ""
    """Why no socket of the network can be made; empty: it can. The wall's own answer would not tell."""


@dataclass(frozen=True, kw_only=True)
class KernelSpec:
    """What a kernel is started with."""

    owner_id: str
    """Id of the agent that the kernel is for; names it in logs."""
    python: str
    """The Python that runs the kernel."""
    workspace: Path
    """Working directory of the kernel."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The whole environment of the kernel's process."""
    start_timeout_seconds: float = 60
    mcp_servers: tuple[str, ...] = ()
    """Names of the servers that code in the kernel finds under `agent.mcp`."""
    sandbox: SandboxPolicy | None = None
    """The wall around the kernel; None: there is none."""
    audit: AuditSettings | None = None
    """What code does without asking its host. None: it asks for nothing that it does by itself."""


class Kernel(Protocol):
    """One IPython kernel. An agent runs its cells in it, one at a time."""

    @property
    def lost_reason(self) -> str | None:
        """One sentence on how the kernel ended, None while it lives."""
        ...

    @property
    def scratch(self) -> Path | None:
        """A folder of the kernel's own in which its code may write; None: it has none on this machine."""
        ...

    def execute(
        self, code: str, buffer: CellOutputBuffer, clock: CellClock, *, silent: bool = False
    ) -> AsyncGenerator[CellOutput | ExecuteReply, None]:
        """Run a cell. Yields its output as it comes and at last one `ExecuteReply`. A silent cell is not counted.

        When the clock runs out the cell is interrupted, and the kernel is killed if that does not help within two
        seconds; both end in status `timeout`. A kernel that dies ends the cell with status `kernel_lost`. Closing the
        iterator early interrupts the cell. Never raises for what the code does.
        """
        ...

    async def interrupt(self) -> None:
        """Interrupt the running cell, if any, and what it waits for at the host."""
        ...

    async def wait_lost(self) -> str:
        """Wait until the kernel's process has ended, and say how."""
        ...

    async def branch(self, spec: KernelSpec, handler: HostRequestHandler) -> "Kernel":
        """Start a kernel that is a copy of this one as it is now: same variables, imports and functions.

        It is a fork: memory is copied when one of the two changes it. It is made at the next moment at which this kernel is
        idle or its cell waits for its host, and neither sees what the other does afterwards. The branch outlives this
        kernel. Cancelling leaves nothing behind.

        Args:
            spec: Python, workspace, environment and sandbox must be those of this kernel.
            handler: Answers what code in the branch asks of its host.

        Raises:
            KernelBranchError: It is not safe, or not possible; the text says why.
        """
        ...

    async def aclose(self) -> None:
        """End the kernel and all processes its cells started, and remove its files. Can be called again."""
        ...


class KernelProvider(Protocol):
    """Starts kernels. One per root agent; closed after the last kernel."""

    async def start(self, spec: KernelSpec, handler: HostRequestHandler) -> Kernel:
        """Start a kernel and wait until it is ready; cancelling leaves nothing behind.

        Raises:
            KernelStartError: The kernel did not become ready within the spec's time.
        """
        ...

    async def aclose(self) -> None:
        """Release what the provider holds besides its kernels. Can be called again."""
        ...
