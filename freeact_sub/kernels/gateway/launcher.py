"""`GatewayLauncher`: one kernel of a gateway, from its start to its end."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from freeact_sub.errors import KernelBranchError, KernelLostError, KernelStartError
from freeact_sub.kernels.forkserver.branches import Branches
from freeact_sub.kernels.gateway.channels import GatewayChannels
from freeact_sub.kernels.gateway.server import GatewayServer, UnreachableError, live
from freeact_sub.kernels.kernel import KernelSpec
from freeact_sub.kernels.launch import Launcher
from freeact_sub.kernels.wire.channels import KernelChannels

ANSWER_SECONDS: Final = 20.0
"""Seconds that the guest of a new kernel may take to answer."""
GUEST_END_SECONDS: Final = 1.0
"""Seconds that the guest may take to confirm its end; its thread does not run while code in C holds the interpreter."""


class GatewayLauncher:
    """Starts a kernel at the server that has the fewest of ours. See `Launcher`."""

    has_guest = greets = False
    scratch = None
    own_files = None

    def __init__(
        self,
        spec: KernelSpec,
        choose: Callable[[], list[GatewayServer]],
        kernel_name: str,
        make_channels: Callable[..., GatewayChannels],
    ) -> None:
        """Make it.

        Args:
            spec: The settings of the kernel.
            choose: The servers, in the order in which they are to be asked.
            kernel_name: The name of the kernelspec there.
            make_channels: Called with the server, the kernel's id and `on_lost`.
        """
        self._spec = spec
        self._choose = choose
        self._kernel_name = kernel_name
        self._make_channels = make_channels
        self.exited: asyncio.Future[str] | None = None
        self.server: GatewayServer | None = None
        self.kernel_id = ""
        self.channels: GatewayChannels | None = None
        self.gateway_is_gone = False
        self._killed = self._has_guest = False

    @property
    def restarted(self) -> bool:
        """The server has replaced this kernel, which died."""
        return self.channels is not None and self.channels.restarted

    async def launch(self) -> KernelChannels:
        """See `Launcher`."""
        servers = self._choose()
        for server in servers:
            live[server.url] += 1
            self.server = server
            try:
                self.kernel_id = await server.start_kernel(self._kernel_name, self._spec.start_timeout_seconds)
                break
            except BaseException as error:
                live[server.url] -= 1
                self.server = None
                if not isinstance(error, UnreachableError):
                    raise
                server.ask_last()
                if server is servers[-1]:
                    raise
        if self.server is None:
            raise KernelStartError("no gateway is named: set kernel.gateway.url")
        self.exited = asyncio.get_running_loop().create_future()
        self.channels = self._make_channels(self.server, self.kernel_id, on_lost=self._on_lost)
        await self.channels.open()
        return self.channels

    async def settle(self) -> None:
        """See that what the host says reaches the guest, and its reply the host."""
        self._has_guest = True
        try:
            if self.channels is not None:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self.channels.ask("freeact_values", {"op": "ping"})
        except TimeoutError as error:
            raise KernelStartError(
                "the gateway blocks messages of freeact_sub: start it without MappingKernelManager.allowed_message_types"
            ) from error

    async def interrupt(self) -> None:
        """See `Launcher`."""
        if self.server is not None and self.kernel_id:
            await self.server.interrupt(self.kernel_id)

    async def kill(self) -> None:
        """See `Launcher`."""
        if self.server is None or not self.kernel_id or self._killed:
            return
        if not self.gateway_is_gone:
            self._killed = True
            if self.channels is not None and self._has_guest:
                # the server asks a busy kernel to end and waits for seconds, and it leaves the kernel's daemons
                with contextlib.suppress(KernelLostError, TimeoutError):
                    async with asyncio.timeout(GUEST_END_SECONDS):
                        await self.channels.ask("freeact_end", {})
            await self.server.end_kernel(self.kernel_id)
        self._on_lost("it was ended", self.gateway_is_gone)

    async def aclose(self, *, lost: bool) -> None:
        """See `Launcher`."""
        del lost
        server, self.server = self.server, None
        try:
            if self.channels is not None:
                await self.channels.aclose()
        finally:
            if server is not None:
                live[server.url] -= 1

    def log_tail(self) -> str:
        """See `Launcher`. The log stays there."""
        return ""

    def branch(self, spec: KernelSpec, branches: Branches) -> Launcher:
        """See `Launcher`."""
        del spec, branches
        raise KernelBranchError("a kernel of a gateway cannot be branched (kernel.provider = 'gateway')")

    def _on_lost(self, reason: str, gone: bool) -> None:
        self.gateway_is_gone = self.gateway_is_gone or gone
        if gone and self.server is not None:
            self.server.ask_last()
        if self.exited is not None and not self.exited.done():
            self.exited.set_result(reason)
