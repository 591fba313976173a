"""`GatewayKernel`: a kernel of a gateway, with what its guest needs to live far from its host."""

import importlib.resources
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from freeact_sub.config.gateway import GatewayConfig
from freeact_sub.errors import KernelError
from freeact_sub.kernels.gateway.channels import GatewayChannels
from freeact_sub.kernels.gateway.launcher import GatewayLauncher
from freeact_sub.kernels.guest import guest_source
from freeact_sub.kernels.jupyter import JupyterKernel
from freeact_sub.kernels.kernel import HostRequestHandler, KernelSpec
from freeact_sub.kernels.output import CellClock

KNOWN_REQUESTS: Final = 10_000
PIECE_BYTES: Final = 4 * 2**20

INSTALL: Final = """
def _freeact_install():
    import asyncio, sys, types
    place = types.ModuleType("freeact_gateway")
    exec(compile({place!r}, "<freeact_gateway>", "exec"), place.__dict__)
    folder = place.settle({environment!r}, {workspace!r})
    exec(compile({guest!r}, "<freeact_guest>", "exec"), {{}})
    audit = {audit!r}
    if audit is not None:
        audit["folders"].append(folder)
    install = sys.modules["freeact_guest.agent"].install
    requests = install(get_ipython(), {servers!r}, asyncio.get_running_loop(), audit)
    place.attach(get_ipython().kernel, requests, folder, {lease_seconds!r})
_freeact_install()
del _freeact_install
"""


class GatewayKernel(JupyterKernel):
    """A kernel of a gateway. See `Kernel`."""

    def __init__(
        self,
        spec: KernelSpec,
        launcher: GatewayLauncher,
        handler: HostRequestHandler,
        *,
        settings: GatewayConfig,
    ) -> None:
        super().__init__(spec, launcher, handler)
        self.launcher = launcher
        self._settings = settings
        self._known: OrderedDict[Any, None] = OrderedDict()

    @property
    def may_be_replaced(self) -> bool:
        """See `Kernel`."""
        return self._settings.retry or not self.launcher.gateway_is_gone

    def on_request(self, content: dict[str, Any], clock: CellClock | None) -> None:
        """See `KernelOwner`. The guest asks again what is not answered; it may have been heard all the same."""
        request_id = content.get("id")
        if isinstance(request_id, str) and request_id in self._known:
            return
        if isinstance(request_id, str):
            self._known[request_id] = None
            if len(self._known) > KNOWN_REQUESTS:
                self._known.popitem(last=False)
        super().on_request(content, clock)

    async def read_values(self, name: str) -> AsyncIterator[bytes]:
        """The content of a file in its scratch folder, in pieces; the file is gone afterwards.

        Raises:
            KernelError: It cannot be read.
        """
        offset, size = 0, 1
        while offset < size:
            answer, buffers = await self._values(op="read", name=name, offset=offset, size=PIECE_BYTES)
            size = int(answer.get("size", 0))
            piece = b"".join(buffers)
            if not piece and offset < size:
                raise KernelError("inputs: what the kernel has written has become shorter")
            offset += len(piece)
            yield piece
        await self._values(op="remove", name=name)

    async def write_values(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        """Write a file into its scratch folder.

        Raises:
            KernelError: It cannot be written.
        """
        offset = 0
        async for piece in pieces:
            await self._values([piece], op="write", name=name, offset=offset)
            offset += len(piece)

    def _bootstrap(self) -> str:
        """The first, silent cell."""
        place = importlib.resources.files("freeact_sub.kernels.gateway").joinpath("guest.py").read_text(encoding="utf-8")
        return INSTALL.format(
            place=place,
            environment=dict(self.spec.environment),
            workspace=str(self.spec.workspace) if self._settings.workspace == "shared" else None,
            guest=guest_source(),
            audit=self.spec.hook_settings(),
            servers=list(self.spec.mcp_servers),
            lease_seconds=self._settings.lease_seconds,
        )

    async def _values(self, buffers: list[bytes] | None = None, **content: Any) -> tuple[Mapping[str, Any], list[bytes]]:
        channels = self.launcher.channels
        if not isinstance(channels, GatewayChannels):
            raise KernelError("inputs: the kernel has ended")
        answer, received = await channels.ask("freeact_values", content, buffers=buffers or ())
        if "error" in answer:
            raise KernelError(f"inputs: {answer['error']}")
        return answer, received
