"""`make_provider`: the kernel provider that the settings name."""

from freeact_sub.config import KernelConfig
from freeact_sub.kernels.fork import ForkKernelProvider
from freeact_sub.kernels.kernel import KernelProvider
from freeact_sub.kernels.local import LocalKernelProvider


def make_provider(settings: KernelConfig) -> KernelProvider:
    """`fork` (forks from a warm process where that is safe), or `local` (a plain subprocess for each kernel)."""
    if settings.provider == "fork":
        return ForkKernelProvider(preload=settings.preload, spares=settings.spares)
    return LocalKernelProvider()
