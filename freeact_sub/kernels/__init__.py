"""Kernels, in which code runs, their providers, and the bridge between code and host."""

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
from freeact_sub.kernels.wire.output import CellClock, CellOutputBuffer, CellRun

__all__ = [
    "WALLED",
    "AuditSettings",
    "BranchingKernel",
    "CellClock",
    "CellOutputBuffer",
    "CellRun",
    "HostRequestHandler",
    "Kernel",
    "KernelPlace",
    "KernelProvider",
    "KernelSpec",
    "TrialBounds",
    "block_type",
    "branching",
    "described_variables",
    "give_values",
    "hand_over",
    "move_values",
    "own_files_of",
    "put_values",
    "take_value",
    "write_value",
]
