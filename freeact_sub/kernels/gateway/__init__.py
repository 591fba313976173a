"""Kernels on other machines: of Jupyter Kernel Gateways, Enterprise Gateways and Jupyter servers."""

from collections.abc import Callable

from freeact_sub.config.schema import KernelConfig
from freeact_sub.extras import require_extra
from freeact_sub.kernels.kernel import KernelProvider


def make_gateway(settings: KernelConfig, *, on_notice: Callable[[str], None] | None = None) -> KernelProvider:
    """Make the provider that `kernel.provider = "gateway"` names.

    Raises:
        ConfigError: A setting is missing or wrong, or a package is missing.
    """
    require_extra("websockets", extra="gateway", needed_by='the setting `kernel.provider = "gateway"`')
    from freeact_sub.kernels.gateway.kernel import GatewayKernelProvider  # noqa: PLC0415  # needs that package

    return GatewayKernelProvider(settings, on_notice=on_notice)
