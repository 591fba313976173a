"""Where code runs: kernels, their providers, and the bridge between code and host."""

from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.kernels.guest.line import WALLED
from freeact_sub.kernels.guest.portable import block_type
from freeact_sub.kernels.handover import (
    described_variables,
    give_values,
    hand_over,
    move_values,
    put_values,
    take_value,
    write_value,
)
from freeact_sub.kernels.kernel import (
    AuditSettings,
    BranchingKernel,
    HostRequestHandler,
    Kernel,
    KernelPlace,
    KernelProvider,
    KernelSpec,
    TrialBounds,
    branching,
    own_files_of,
)
from freeact_sub.kernels.local import LocalKernelProvider
from freeact_sub.kernels.provider import make_provider
from freeact_sub.kernels.wall.sandbox import SandboxPolicy, policy_for, with_programs, with_read_only
from freeact_sub.kernels.wire.output import CellClock, CellOutputBuffer, CellRun
from freeact_sub.kernels.workspaces import UNDONE, Changes, OwnFiles, promote, recover

__all__ = [
    "UNDONE",
    "WALLED",
    "AuditSettings",
    "BranchingKernel",
    "CellClock",
    "CellOutputBuffer",
    "CellRun",
    "Changes",
    "ForkKernelProvider",
    "HostRequestHandler",
    "Kernel",
    "KernelPlace",
    "KernelProvider",
    "KernelSpec",
    "LocalKernelProvider",
    "OwnFiles",
    "SandboxPolicy",
    "TrialBounds",
    "block_type",
    "branching",
    "described_variables",
    "give_values",
    "hand_over",
    "make_provider",
    "move_values",
    "own_files_of",
    "policy_for",
    "promote",
    "put_values",
    "recover",
    "take_value",
    "with_programs",
    "with_read_only",
    "write_value",
]
