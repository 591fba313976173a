"""`make_provider`: the kernel provider that the settings name."""

from collections.abc import Callable

from freeact_sub.config import KernelConfig
from freeact_sub.kernels.fork import ForkKernelProvider
from freeact_sub.kernels.kernel import KernelProvider
from freeact_sub.kernels.local import LocalKernelProvider


def make_provider(settings: KernelConfig, *, on_notice: Callable[[str], None] | None = None) -> KernelProvider:
    """`fork` (forks from a warm process where that is safe), or `local` (a plain subprocess for each kernel).

    Args:
        settings: Which one, and how.
        on_notice: Told once what of the kernels' sandbox this machine cannot enforce. None: the log is told.
    """
    if settings.provider == "fork":
        return ForkKernelProvider(preload=settings.preload, spares=settings.spares, on_notice=on_notice)
    return LocalKernelProvider(on_notice=on_notice)
