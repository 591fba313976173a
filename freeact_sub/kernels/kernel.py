"""The protocols between agents and the places where code runs: `Kernel`, `BranchingKernel` and `KernelProvider`.

Every kernel runs cells (`Kernel`). One that can be copied, and whose variables can be saved, is a `BranchingKernel` as well.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

from freeact_sub.config.schema import KernelConfig
from freeact_sub.errors import KernelBranchError, KernelError
from freeact_sub.kernels.wire.output import CellClock, CellOutputBuffer, CellRun
from freeact_sub.modes import Mode

if TYPE_CHECKING:
    from freeact_sub.config.project_texts import SkillModule
    from freeact_sub.kernels.files import OwnFiles
    from freeact_sub.kernels.snapshot_reports import RestoreReport, SnapshotReport
    from freeact_sub.kernels.wall.sandbox import SandboxPolicy

ADVICE: Final = (
    "The sandbox keeps what is run outside of it later: Python environments, repositories, the source of projects that are "
    "installed in editable form. To change it, call "
    '`await agent.shell("COMMAND", reason="...")`, such as `pip install ...` or `git apply changes.patch`: '
    "a person is asked, and it runs outside of the sandbox."
)
"""The reason for code in a walled kernel that cannot change a file."""

HostRequestHandler: TypeAlias = Callable[[str, Mapping[str, Any], CellClock | None], Awaitable[Any]]
"""Handles a request of code in a kernel: gets the method, the parameters and the asking cell's clock (None if no cell
runs), and returns a value for JSON. Its exceptions are raised in the kernel. The value may be an asynchronous generator:
the cell shows the texts that it yields, and its last item, which is not a text, is the value."""


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """The actions that a kernel's audit hook allows; it asks the host about all others (`check` requests)."""

    writable: tuple[Path, ...] = ()
    """Folders that code may write without approval, besides the kernel's own."""
    asked: tuple[tuple[str, str], ...] = ()
    """Exceptions that need approval: regular expressions for a folder, with its final `/`, and for a name in it."""
    no_network: str = ""
    """The reason why network sockets cannot be made; the wall's own error would not say."""


@dataclass(frozen=True, kw_only=True)
class TrialBounds:
    """The bounds of a trial's branch; it changes nothing outside of its own folder and of its copy of the workspace."""

    memory_bytes: int
    """Memory besides that of its origin, and the size of each file that it writes."""


@dataclass(frozen=True, kw_only=True)
class KernelSpec:
    """The settings of one kernel's start."""

    owner_id: str
    """The id of the kernel's agent, for logs."""
    python: str
    workspace: Path
    """Working directory of the kernel."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The whole environment of the kernel's process."""
    start_timeout_seconds: float = 60
    mode: Mode = "full"
    """The mode of its agent, for kernels without a wall."""
    mcp_servers: tuple[str, ...] = ()
    """Names of the servers under `agent.mcp` in the kernel."""
    skills: tuple["SkillModule", ...] = ()
    """The Python of skills, which code in the kernel imports as `skills.NAME`."""
    sandbox: "SandboxPolicy | None" = None
    audit: AuditSettings | None = None
    """The actions that code may take without asking its host. None: all of them."""

    own_files: bool = False
    """Whether a branch works in its own copy of the workspace. Branches of such a branch always do."""
    trial: TrialBounds | None = None
    """The bounds of a branch that is dropped after one cell, which nobody has approved yet."""

    def hook_settings(self, *own: Path) -> dict[str, Any] | None:
        """Returns `audit` as the guest reads it (`guest/hook.py`). Args: own: the kernel's own folders."""
        if self.audit is None:
            return None
        folders = [str(path) for path in (*self.audit.writable, *own)]
        is_walled = self.sandbox is not None and self.sandbox.writable
        settings = {"folders": folders, "asked": self.audit.asked, "no_network": self.audit.no_network}
        return {**settings, "advice": ADVICE if is_walled else ""}


@dataclass(frozen=True, kw_only=True)
class KernelPlace:
    """The place where an agent's kernels run."""

    wall: "SandboxPolicy | None"
    environment: Mapping[str, str]
    description: str
    """Sentences that tell the agent's model about the place."""


class Kernel(Protocol):
    """One IPython kernel. An agent runs its cells in it, one at a time."""

    @property
    def lost_reason(self) -> str | None:
        """A sentence on how the kernel ended, if it has."""
        ...

    @property
    def unread(self) -> str:
        """The output of earlier cells since the last cell ended. The next cell shows it."""
        ...

    @property
    def may_be_replaced(self) -> bool:
        """Whether the agent's run goes on with a new kernel when this one is lost; if not, the run ends."""
        ...

    @property
    def scratch(self) -> Path | None:
        """The kernel's own writable folder on this machine, if any."""
        ...

    def execute(
        self, code: str, buffer: CellOutputBuffer, clock: CellClock, *, silent: bool = False
    ) -> AbstractAsyncContextManager[CellRun]:
        """Runs a cell for the time of the context; only one runs at a time. A silent cell is not counted.

        When the clock runs out the cell is interrupted, and the kernel is killed if that does not help within five
        seconds; both end in status `timeout`. A kernel that dies ends the cell with status `kernel_lost`. Leaving
        the context early interrupts the cell. Never raises for what the code does.
        """
        ...

    async def interrupt(self) -> None:
        """Interrupts the running cell, if any, and its open requests to the host."""
        ...

    async def wait_lost(self) -> str:
        """Waits until the kernel's process has ended, and returns the reason."""
        ...

    def ask_about(self, names: tuple[tuple[str, str], ...]) -> None:
        """Makes the hook ask about these names from now on, instead of those in `AuditSettings.asked`."""
        ...

    async def aclose(self) -> None:
        """Ends the kernel and all processes that its cells started, and removes its files. Can be called again."""
        ...


@runtime_checkable
class BranchingKernel(Kernel, Protocol):
    """A kernel whose state can be copied and kept. Where one cannot, `branching` says so."""

    @property
    def own_files(self) -> "OwnFiles | None":
        """The kernel's copy of the workspace. None: it works in the workspace itself."""
        ...

    async def branch(self, spec: KernelSpec, handler: HostRequestHandler) -> "Kernel":
        """Starts a kernel that is a copy of this one as it is now: same variables, imports and functions.

        It is a fork: memory is copied when one of the two changes it. It is made at the next moment at which this kernel is
        idle or its cell waits for its host, and neither sees later changes of the other. The branch outlives this kernel.
        Cancelling leaves nothing behind.

        Args:
            spec: Python, workspace, environment and sandbox must be those of this kernel.
            handler: Handles the requests of code in the branch.

        Raises:
            KernelBranchError: Branching is unsafe or impossible; the message says why.
        """
        ...

    async def snapshot(self, folder: Path, *, max_bytes: int | None = None, keep: Collection[str] = ()) -> "SnapshotReport":
        """Saves the variables into files, between two cells: a running cell ends first, and the next one does not wait.

        A fork of the kernel writes while the kernel continues; where none can be made, the kernel itself saves as much as it
        can in 0.2 s and 8 MB, and the report says so. Variables that share objects share them when they come back. Values
        that have not changed since the last snapshot in the folder are not written again. At most 4 GiB are kept, nothing
        that takes more than 60 s to pickle, and nothing of IPython's (`In`, `Out`); the folder holds the last snapshot only.
        One at a time; a second call waits. Cancelling leaves nothing behind but the snapshot before.

        Args:
            folder: A folder of the host, outside what kernels may write, for this agent alone, since its kernels know its
                files; it is made if need be. To keep a copy, copy its files or make links to them: none is ever changed.
            max_bytes: Bytes that it may take; small variables come first. None: 4 GiB.
            keep: Variables of the last snapshot that stay in the folder, with the rights of the kernel that saved them, as
                long as this kernel has none of these names (`RestoreReport.left_out`).

        Raises:
            KernelSnapshotError: Nothing is saved; the snapshot before is still there. The message says why.
        """
        ...

    async def restore(self, folder: Path, *, allow_more: bool = False) -> "RestoreReport":
        """Brings the variables of a snapshot back, modules, search path and working directory included.

        For a kernel that has just started. Functions and classes of cells are as they were defined. Large arrays are read
        when they are used. Code of their types counts as a cell's code, and is asked about in the same way.
        Variables of a kernel that could do less than this one are left out, and the report names them: their code would get
        rights that it did not have (mode, network, folders).

        Args:
            folder: See `snapshot`. It stays as it is.
            allow_more: A person has agreed that they come back nevertheless.

        Raises:
            KernelSnapshotError: Nothing is brought back, for example because nothing was saved. The message says why.
        """
        ...


def branching(kernel: Kernel, error: type[KernelError] = KernelBranchError) -> BranchingKernel:
    """Returns the kernel as one whose state can be copied and kept.

    Args:
        kernel: A kernel.
        error: Raised if its state cannot be copied.

    Raises:
        KernelBranchError: Its state cannot be copied (or `error`).
    """
    if not isinstance(kernel, BranchingKernel):
        raise error(
            f"a {type(kernel).__name__} can neither be branched nor have its variables saved: its provider starts others"
        )
    return kernel


def own_files_of(kernel: Kernel) -> "OwnFiles | None":
    """Returns the copy of the workspace in which a kernel works. None: it works in the workspace itself."""
    return kernel.own_files if isinstance(kernel, BranchingKernel) else None


class KernelProvider(Protocol):
    """A provider of kernels for one or several root agents. Its creator closes it, after its last kernel."""

    def place(self, mode: Mode, settings: KernelConfig, workspace: Path) -> KernelPlace:
        """Describes the place where an agent's kernels run.

        Args:
            mode: The mode of the agent.
            settings: The kernels' settings; only those that count where they run.
            workspace: The workspace of the agent, on this machine.

        Raises:
            ConfigError: The provider has no kernels for such an agent; the message names the setting that allows it.
        """
        ...

    def hook(self, settings: AuditSettings) -> AuditSettings | None:
        """Returns the actions that the audit hook in a kernel lets pass. None: no hook; only the wall confines code.

        Args:
            settings: The actions that the agent's rules allow on this machine. Kernels elsewhere have other folders.
        """
        ...

    async def start(self, spec: KernelSpec, handler: HostRequestHandler) -> Kernel:
        """Starts a kernel and waits until it is ready; cancelling leaves nothing behind.

        Raises:
            KernelStartError: The kernel did not become ready within the spec's time.
        """
        ...

    async def aclose(self) -> None:
        """Releases the provider's other resources. Can be called again."""
        ...
