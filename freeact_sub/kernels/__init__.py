"""Where code runs: kernels, what starts them, and how code in them reaches its host."""

from freeact_sub.kernels.fork import ForkKernelProvider
from freeact_sub.kernels.handover import hand_over
from freeact_sub.kernels.kernel import AuditSettings, HostRequestHandler, Kernel, KernelProvider, KernelSpec
from freeact_sub.kernels.local import LocalKernelProvider
from freeact_sub.kernels.output import CellClock, CellOutputBuffer
from freeact_sub.kernels.provider import make_provider
from freeact_sub.kernels.sandbox import policy_for

__all__ = [
    "AuditSettings",
    "CellClock",
    "CellOutputBuffer",
    "ForkKernelProvider",
    "HostRequestHandler",
    "Kernel",
    "KernelProvider",
    "KernelSpec",
    "LocalKernelProvider",
    "hand_over",
    "make_provider",
    "policy_for",
]
