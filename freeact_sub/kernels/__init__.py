"""Where code runs: kernels, what starts them, and how code in them reaches its host."""

from freeact_sub.kernels.kernel import HostRequestHandler, Kernel, KernelProvider, KernelSpec
from freeact_sub.kernels.local import LocalKernelProvider
from freeact_sub.kernels.output import CellClock, CellOutputBuffer

__all__ = [
    "CellClock",
    "CellOutputBuffer",
    "HostRequestHandler",
    "Kernel",
    "KernelProvider",
    "KernelSpec",
    "LocalKernelProvider",
]
